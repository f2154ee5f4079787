"""Writes collections that are stored as one string, in the formats of ``listpack.c``, ``ziplist.c``, ``intset.c`` and
``zipmap.c`` of Redis and Valkey."""

from __future__ import annotations

import struct


def packed_number(number: int) -> bytes:
    """A number as ``lpEncodeIntegerGetType`` of listpack.c writes it."""
    if 0 <= number <= 127:
        return bytes([number])
    if -4096 <= number <= 4095:
        bits = number & 8191
        return bytes([0xC0 | bits >> 8, bits & 255])
    for code, width in ((0xF1, 2), (0xF2, 3), (0xF3, 4), (0xF4, 8)):
        if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
            return bytes([code]) + number.to_bytes(width, "little", signed=True)
    raise AssertionError


def packed_string(text: bytes) -> bytes:
    if len(text) < 64:
        return bytes([0x80 | len(text)]) + text
    if len(text) < 4096:
        return bytes([0xE0 | len(text) >> 8, len(text) & 255]) + text
    return b"\xf0" + struct.pack("<I", len(text)) + text


def listpack(*items: bytes | int) -> bytes:
    body = b""
    for item in items:
        coded = packed_number(item) if isinstance(item, int) else packed_string(item)
        size, back = len(coded), []
        while True:
            back.insert(0, size & 127 | (128 if back else 0))
            size >>= 7
            if not size:
                break
        body += coded + bytes(back)
    return struct.pack("<IH", 7 + len(body), min(len(items), 65535)) + body + b"\xff"


def chained_number(number: int) -> bytes:
    """A number as ``zipTryEncoding`` of ziplist.c writes it."""
    if 0 <= number <= 12:
        return bytes([0xF1 + number])
    for code, width in ((0xFE, 1), (0xC0, 2), (0xF0, 3), (0xD0, 4), (0xE0, 8)):
        if -(1 << 8 * width - 1) <= number < 1 << 8 * width - 1:
            return bytes([code]) + number.to_bytes(width, "little", signed=True)
    raise AssertionError


def chained_string(text: bytes) -> bytes:
    if len(text) < 64:
        return bytes([len(text)]) + text
    if len(text) < 16384:
        return bytes([0x40 | len(text) >> 8, len(text) & 255]) + text
    return b"\x80" + struct.pack(">I", len(text)) + text


def ziplist(*items: bytes | int) -> bytes:
    body, before, last = b"", 0, 10
    for item in items:
        last = 10 + len(body)
        head = bytes([before]) if before < 254 else b"\xfe" + struct.pack("<I", before)
        coded = head + (chained_number(item) if isinstance(item, int) else chained_string(item))
        body, before = body + coded, len(coded)
    return struct.pack("<IIH", 11 + len(body), last, min(len(items), 65535)) + body + b"\xff"


def zipmap(pairs: list[tuple[bytes, bytes, int]]) -> bytes:
    def head(text: bytes) -> bytes:
        return bytes([len(text)]) if len(text) < 254 else b"\xfe" + struct.pack("<I", len(text))

    body = b"".join(
        head(name) + name + head(value) + bytes([free]) + value + bytes(free) for name, value, free in pairs
    )
    return bytes([min(len(pairs), 254)]) + body + b"\xff"


def intset(*numbers: int) -> bytes:
    return struct.pack("<II", 8, len(numbers)) + b"".join(struct.pack("<q", number) for number in numbers)
