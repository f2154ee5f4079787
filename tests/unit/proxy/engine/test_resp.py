"""The parser of requests and the measure of replies: split anywhere, malformed, huge, negative."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.resp import find_requests, measure_replies

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


def reply_of(protocol: int) -> st.SearchStrategy[bytes]:
    simple = st.one_of(
        st.sampled_from([b"+OK\r\n", b"-ERR no\r\n", b":-12\r\n", b"$-1\r\n", b"*-1\r\n", b"+\r\n", b"*0\r\n"]),
        st.binary(max_size=50).map(lambda value: b"$%d\r\n%b\r\n" % (len(value), value)),
    )
    if protocol == 3:
        simple = st.one_of(
            simple,
            st.sampled_from(
                [b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(123456789012345678901\r\n", b"=7\r\ntxt:abc\r\n", b"!2\r\nno\r\n"]
            ),
        )

    def nest(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        arrays = st.lists(inner, max_size=4).map(lambda items: b"*%d\r\n%b" % (len(items), b"".join(items)))
        if protocol == 2:
            return arrays
        pairs = st.lists(st.tuples(inner, inner), max_size=3)
        return st.one_of(
            arrays,
            st.lists(inner, max_size=3).map(lambda items: b"~%d\r\n%b" % (len(items), b"".join(items))),
            pairs.map(lambda items: b"%%%d\r\n%b" % (len(items), b"".join(a + b for a, b in items))),
            st.tuples(pairs, inner).map(
                lambda both: b"|%d\r\n%b%b" % (len(both[0]), b"".join(a + b for a, b in both[0]), both[1])
            ),
        )

    return st.recursive(simple, nest, max_leaves=12)


@pytest.mark.parametrize("protocol", [2, 3])
@given(data=st.data())
def test_replies_end_where_they_end_however_they_arrive(protocol: int, data: st.DataObject) -> None:
    replies = data.draw(st.lists(reply_of(protocol), min_size=1, max_size=5))
    stream = b"".join(replies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert measure_replies(pieces) == ([len(reply) for reply in replies], 0)
    assert measure_replies([bytes([byte]) for byte in stream]) == ([len(reply) for reply in replies], 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_measured_or_refused(stream: bytes) -> None:
    try:
        lengths, rest = measure_replies([stream])
    except ValueError:
        return
    assert sum(lengths) + rest == len(stream)
