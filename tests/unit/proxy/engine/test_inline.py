"""Inline requests: Redis's way with quotes, in time that grows with the line's length and no faster."""

import time

import pytest

from proxy.engine.inline import split_inline


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\r\n", []),
        (b"  PING \t x\r\n", [b"PING", b"x"]),
        (b"SET \"a b\" 'c d'\n", [b"SET", b"a b", b"c d"]),
        (b"\"\" ''\r\n", [b"", b""]),
        (b'foo"bar" x', [b"foobar", b"x"]),
        (rb'"\x41\x4g\n\r\t\b\a\q\"\\"', [b'Ax4g\n\r\t\b\aq"\\']),
        (rb"'it\'s \n'", [rb"it's \n"]),
        (rb"a\x41b", [rb"a\x41b"]),
        (b"\xff\xfe x", [b"\xff\xfe", b"x"]),
        (b"GET a\0b c", [b"GET", b"a"]),
    ],
)
def test_words(line: bytes, words: list[bytes]) -> None:
    assert split_inline(line) == words


@pytest.mark.parametrize(
    "line",
    [b'GET "a', b"GET 'a", b'GET "a"b', b"GET 'a'b", rb"GET 'a\' b", rb'GET "a\"', b'GET "\\'],
)
def test_unbalanced_quotes(line: bytes) -> None:
    with pytest.raises(ValueError, match="quote"):
        split_inline(line)


@pytest.mark.parametrize("piece", [rb"\x41", rb"\'", rb"\"", rb"\\", b"'\"", b"\"'"])
def test_no_line_takes_long(piece: bytes) -> None:
    begun = time.monotonic()
    for quote in (b'"', b"'"):
        try:
            split_inline(b"GET " + quote + piece * 16000)
        except ValueError:
            continue
    assert time.monotonic() - begun < 2
