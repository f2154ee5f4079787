"""A blocking command's timeout: as Redis reads it, and what is left of it when the command is sent again."""

import math

import pytest

from proxy.commands.blocking.blockingrequest import BlockingRequest, milliseconds_of, seconds_of
from proxy.engine.backend import command


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"0", 0.0),
        (b"0.0e7", 0.0),
        (b"0x0p3", 0.0),
        (b"1", 1.0),
        (b"+1.5", 1.5),
        (b".25", 0.25),
        (b"2.", 2.0),
        (b"1e2", 100.0),
        (b"0x10", 16.0),
        (b"0x1p-2", 0.25),
        (b"1e-9", 0.001),
        (b"1e-400", 0.001),
        (b"1e400", math.inf),
        (b"", None),
        (b"-1", None),
        (b"-0.5", None),
        (b"-0.0011", None),
        (b"-0.001", 0.0),
        (b"-0.0009", 0.0),
        (b"-1e-400", 0.0),
        (b"-0x1p-20", 0.0),
        (b" 1", None),
        (b"1 ", None),
        (b"1_0", None),
        (b"nan", None),
        (b"inf", None),
        (b"0x", None),
        (b"0x1p99999", None),
        (b"1e", None),
        (b"\xff", None),
    ],
)
def test_seconds_are_read_as_redis_reads_them(text: bytes, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"0", 0.0), (b"1500", 1.5), (b"010", None), (b"+1", None), (b"-1", None), (b"1.5", None), (b"9" * 19, None)],
)
def test_milliseconds_are_integers(text: bytes, seconds: float | None) -> None:
    assert milliseconds_of(text) == seconds


def test_what_is_left_of_the_timeout_is_sent() -> None:
    request = BlockingRequest([b"BLPOP", b"key", b"10"], 2, False, now=100.0)
    assert request.deadline == 110.0
    assert request.payload(100.0) == command(("BLPOP", "key", "10"))
    assert request.payload(103.25) == command(("BLPOP", "key", "6.750"))
    assert request.left(103.25) == 6.75
    # A timeout is never shorter than it was asked to be: what is left is rounded up.
    assert request.payload(103.2501) == command(("BLPOP", "key", "6.750"))
    # And never 0, which would be for ever.
    assert request.payload(111.0) == command(("BLPOP", "key", "0.001"))


def test_what_is_left_in_milliseconds() -> None:
    request = BlockingRequest([b"XREAD", b"BLOCK", b"2000", b"STREAMS", b"s", b"$"], 2, True, now=0.0)
    request.ids[5] = b"7-1"
    assert request.payload(0.0) == command(("XREAD", "BLOCK", "2000", "STREAMS", "s", "7-1"))
    assert request.payload(1.5) == command(("XREAD", "BLOCK", "500", "STREAMS", "s", "7-1"))
    assert request.payload(3.0) == command(("XREAD", "BLOCK", "1", "STREAMS", "s", "7-1"))


@pytest.mark.parametrize(("text", "left"), [(b"0", math.inf), (b"1e12", math.inf), (b"abc", 0.0), (b"-1", 0.0)])
def test_without_a_deadline_the_request_stays_as_it_is(text: bytes, left: float) -> None:
    """It waits for ever or almost so, or the server refuses it and has to say so itself."""
    request = BlockingRequest([b"BLPOP", b"key", text], 2, False, now=0.0)
    assert request.deadline is None
    assert request.left(1e6) == left
    assert request.payload(1e6) == command((b"BLPOP", b"key", text))


@pytest.mark.parametrize(
    ("name", "protocol", "reply"),
    [
        (b"blpop", 2, b"*-1\r\n"),
        (b"blmove", 2, b"*-1\r\n"),
        (b"BRPOPLPUSH", 2, b"*-1\r\n"),
        (b"blpop", 3, b"_\r\n"),
        (b"blmove", 3, b"_\r\n"),
        (b"WAIT", 3, b":0\r\n"),
    ],
)
def test_what_is_said_when_nothing_came(name: bytes, protocol: int, reply: bytes) -> None:
    assert BlockingRequest([name, b"1"], 1, False, now=0.0).nothing(protocol) == reply
