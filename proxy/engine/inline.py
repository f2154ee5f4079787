"""Inline requests: words on a line, quoted as Redis's ``sdssplitargs`` reads them."""

import re

TOKEN = re.compile(
    rb"""
    [ \t\r\n\x0b\x0c\0]*            # space before a word
    (?P<word>(?:
        "(?:\\x[0-9a-fA-F]{2}|\\.|[^"\\])*"    # double quotes, with escapes
        (?=[ \t\r\n\x0b\x0c\0]|$)
      | '(?:\\'|[^'])*'                        # single quotes, in which only \' is an escape
        (?=[ \t\r\n\x0b\x0c\0]|$)
      | [^ \t\r\n\x0b\x0c\0"']
    )+)
    """,
    re.VERBOSE | re.DOTALL,
)
PIECE = re.compile(
    rb"""(?P<double>"(?:\\x[0-9a-fA-F]{2}|\\.|[^"\\])*")|(?P<single>'(?:\\'|[^'])*')|(?P<bare>[^"'])""", re.DOTALL
)
ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return NAMED.get(match[2], match[2])


def split_inline(line: bytes) -> list[bytes]:
    """Words of an inline request.

    Raises:
        ValueError: where quotes are not closed, or something follows a closing quote.
    """
    words: list[bytes] = []
    position = 0
    line = line.rstrip(b"\r\n")
    while position < len(line):
        match = TOKEN.match(line, position)
        if match is None:
            if line[position:].strip(b" \t\r\n\x0b\x0c\0"):
                raise ValueError("unbalanced quotes")
            break
        word = b""
        for piece in PIECE.finditer(match["word"]):
            if piece["double"] is not None:
                word += ESCAPE.sub(_unescape, piece["double"][1:-1])
            elif piece["single"] is not None:
                word += piece["single"][1:-1].replace(b"\\'", b"'")
            else:
                word += piece["bare"]
        words.append(word)
        position = match.end()
        if position < len(line) and line[position : position + 1] not in b" \t\r\n\x0b\x0c\0":
            raise ValueError("unbalanced quotes")
    return words
