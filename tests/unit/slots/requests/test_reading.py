"""The requests of a stream are given whole, with their sizes, however it is cut; whatever else there is ends it."""

import re
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.requests.reading import LONGEST_BULK, LONGEST_REQUEST, MOST_ARGUMENTS, NotRequests, Requests

WORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


def encode(argv: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in argv)


def read(reader: Requests, stream: bytes, piece: int) -> Iterator[tuple[list[bytes], int]]:
    """What comes of a stream that is fed in pieces of so many bytes."""
    for start in range(0, len(stream), piece):
        reader.feed(stream[start : start + piece])
        yield from reader


@given(st.lists(WORDS, max_size=8), st.data())
def test_requests_come_out_as_they_went_in(requests: list[list[bytes]], data: st.DataObject) -> None:
    stream = b"".join(map(encode, requests))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, found = Requests(1000), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        found += list(reader)
        assert reader.offset + reader.pending == 1000 + end
        assert reader.offset == 1000 + sum(size for _, size in found)
    assert found == [(argv, len(encode(argv))) for argv in requests]


def test_a_stream_may_be_cut_at_every_place() -> None:
    requests = [[b"SET", b"key", b"v" * 120], [b"PING"], [b"", b"\r\n*1\r\n$1\r\nx\r\n"], [b"MULTI"]]
    stream = b"".join(map(encode, requests))
    wanted = [(argv, len(encode(argv))) for argv in requests]
    for cut in range(len(stream) + 1):
        reader = Requests()
        reader.feed(stream[:cut])
        found = list(reader)
        reader.feed(stream[cut:])
        assert found + list(reader) == wanted
    reader, found = Requests(), []
    for index in range(len(stream)):
        reader.feed(stream[index : index + 1])
        found += list(reader)
    assert found == wanted


def test_a_request_far_larger_than_what_is_fed_at_once() -> None:
    argv = [b"MSET", *(b"%d" % index for index in range(60_000)), b"x" * 10_000_000]
    stream = encode(argv) * 2 + encode([b"PING"])
    reader, found = Requests(), []
    for start in range(0, len(stream), 65536):
        reader.feed(memoryview(stream)[start : start + 65536])
        found += list(reader)
    assert found == [(argv, len(encode(argv))), (argv, len(encode(argv))), ([b"PING"], 14)]
    assert (reader.offset, reader.pending) == (len(stream), 0)


def test_bounded_a_long_request_does_not_keep_its_memory() -> None:
    reader = Requests()
    long = encode([b"SET", b"a", b"x" * 40_000_000])
    assert sum(size for _, size in read(reader, long, 1_000_000)) == len(long)
    assert sys.getsizeof(reader) > len(long)
    reader.feed(encode([b"PING"]) + b"*")
    assert [argv for argv, _ in reader] == [[b"PING"]]
    assert sys.getsizeof(reader) < 5_000_000
    reader.feed(b"1\r\n$4\r\nPING\r\n")
    assert [argv for argv, _ in reader] == [[b"PING"]]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"PING\r\n", "no request begins with"),
        (b"\n", "no request begins with"),
        (b"$3\r\n", "no request begins with"),
        (b"*0\r\n", "no arguments"),
        (b"*-1\r\n", "no arguments"),
        (b"*%d\r\n" % (MOST_ARGUMENTS + 1), "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$%d\r\n" % (LONGEST_BULK + 1), "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*2\r\n$1\r\na\r\n:1\r\n", "an argument begins with: b':"),
        (b"*1\r\n$1\r\nabcd", "behind an argument stands: b'b"),
        (b"*1\r\n$1\r\na\r*", "behind an argument stands"),
    ],
)
def test_what_is_no_request_ends_the_stream(stream: bytes, words: str) -> None:
    before = encode([b"SET", b"a", b"1"])
    reader = Requests(500)
    reader.feed(before + stream)
    assert next(reader) == ([b"SET", b"a", b"1"], len(before))
    for _ in range(2):
        with pytest.raises(NotRequests, match=f"byte {500 + len(before)} .*{re.escape(words)}") as raised:
            next(reader)
        assert raised.value.offset == 500 + len(before)
    with pytest.raises(NotRequests):
        reader.feed(b"*1\r\n$4\r\nPING\r\n")
    with pytest.raises(NotRequests, match=f"byte 0 .*{re.escape(words)}"):
        next(read(Requests(), stream + b"x" * 8, 1))


def test_what_is_no_argument_of_a_begun_request_is_not_waited_for() -> None:
    reader = Requests()
    reader.feed(b"*2\r\n$3\r\nDEL\r\n")
    assert list(reader) == []
    reader.feed(b":1000\r\n")
    with pytest.raises(NotRequests, match="an argument begins with: b':1000"):
        next(reader)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_bounded_a_request_that_is_too_long_ends_the_stream(piece: int) -> None:
    fits, too_long = encode([b"SET", b"a", b"x" * 50]), encode([b"SET", b"a", b"x" * 51])
    assert len(too_long) == len(fits) + 1
    reader = Requests(0, len(fits))
    requests = read(reader, fits + fits + too_long, piece)
    assert [next(requests), next(requests)] == [([b"SET", b"a", b"x" * 50], len(fits))] * 2
    with pytest.raises(NotRequests, match=f"more than {len(fits)} bytes") as raised:
        next(requests)
    assert raised.value.offset == 2 * len(fits)


@pytest.mark.parametrize("header", [b"*2\r\n$3\r\nSET\r\n$61\r\n", b"*3\r\n$3\r\nSET\r\n$55\r\n", b"*20\r\n$0\r\n"])
def test_bounded_a_request_that_says_it_is_too_long_is_not_waited_for(header: bytes) -> None:
    for piece in range(1, len(header) + 1):
        with pytest.raises(NotRequests, match="more than 80 bytes"):
            next(read(Requests(0, 80), header + b"x" * 8, piece))


def test_bounded_requests_have_to_be_taken_before_more_is_fed() -> None:
    reader = Requests(0, 20)
    reader.feed(encode([b"PING"]) * 2)
    with pytest.raises(ValueError, match="28 bytes were fed"):
        reader.feed(b"*")
    assert len(list(reader)) == 2
    reader.feed(encode([b"PING"]))
    assert len(list(reader)) == 1
    assert LONGEST_REQUEST >= LONGEST_BULK
