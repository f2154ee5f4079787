"""The parser of requests: split anywhere, malformed, huge, negative."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.requests.parsing import find_requests

words = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


def encode(argv: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in argv)


@given(st.lists(words, max_size=8), st.data())
def test_requests_are_found_whatever_they_hold(requests: list[list[bytes]], data: st.DataObject) -> None:
    stream = b"".join(map(encode, requests))
    cut = data.draw(st.integers(0, len(stream)))
    found, rest, error = find_requests(stream[:cut])
    assert error is None
    assert found == requests[: len(found)]
    assert b"".join(map(encode, found)) == stream[: cut - rest]
    assert find_requests(stream) == (requests, 0, None)


@given(st.binary(max_size=300))
def test_any_bytes_give_requests_or_an_error(stream: bytes) -> None:
    found, rest, error = find_requests(stream)
    assert 0 <= rest <= len(stream)
    assert error is None or isinstance(error, str)
    for request in found:
        assert isinstance(request, (bytes, list))


@given(st.lists(words, min_size=1, max_size=4), st.data())
def test_one_changed_byte_never_reads_past_the_end(requests: list[list[bytes]], data: st.DataObject) -> None:
    stream = bytearray(b"".join(map(encode, requests)))
    stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    found, rest, _ = find_requests(bytes(stream))
    assert rest <= len(stream)
    assert sum(len(word) for request in found if isinstance(request, list) for word in request) <= len(stream)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"*-1\r\n", None),
        (b"*0\r\n", None),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*--1\r\n", "invalid multibulk length"),
        (b"*1\n$1\r\na\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        (b"*1\r\n$18446744073709551617\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got '%c'"),
        (b"a" * 65536, "too big inline request"),
    ],
)
def test_malformed_lengths(stream: bytes, error: str | None) -> None:
    assert find_requests(stream)[2] == error


def test_limits_before_authentication() -> None:
    assert find_requests(b"*11\r\n", 16384, 10)[2] == "unauthenticated multibulk length"
    assert find_requests(b"*1\r\n$16385\r\n", 16384, 10)[2] == "unauthenticated bulk length"
