"""Writes RDB files by hand, for versions whose servers are not at hand.

The format is that of ``rdb.h``, ``rdb.c`` and ``listpack.c`` of Redis and Valkey; the checksum is Redis's ``crc64.c``.
"""

from __future__ import annotations

import struct

from rdb.input import crc64

CREATED = 1_700_000_000
"""Seconds since 1970 at which every file says it was made."""


def length(value: int) -> bytes:
    if value < 64:
        return bytes([value])
    if value < 16384:
        return struct.pack(">H", value | 0x4000)
    return b"\x80" + struct.pack(">I", value) if value < 1 << 32 else b"\x81" + struct.pack(">Q", value)


def string(value: bytes | str | int) -> bytes:
    data = value.encode() if isinstance(value, str) else b"%d" % value if isinstance(value, int) else value
    return length(len(data)) + data


def lzf(data: bytes) -> bytes:
    """A string stored compressed: its first bytes as they are, the rest a copy of them where it repeats one byte."""
    packed = b""
    if len(set(data)) == 1 and len(data) > 12:
        packed, left = bytes([0]) + data[:1], len(data) - 1
        while left >= 9:
            part = min(left, 264)
            packed += bytes([7 << 5, part - 9, 0])
            left -= part
        packed += bytes([left - 1]) + data[:left] if left else b""
    else:
        for at in range(0, len(data), 32):
            part = data[at : at + 32]
            packed += bytes([len(part) - 1]) + part
    return b"\xc3" + length(len(packed)) + length(len(data)) + packed


def milliseconds(value: int) -> bytes:
    return struct.pack("<q", value)


def stream_id(number: int) -> bytes:
    return struct.pack(">QQ", number, 0)


class RdbWriter:
    """A file that grows; ``magic`` is ``REDIS`` or ``VALKEY``."""

    def __init__(self, version: int, magic: str = "REDIS", server: str | None = None) -> None:
        self.data = f"{magic}{version:0{9 - len(magic)}}".encode()
        self.aux("valkey-ver" if magic == "VALKEY" else "redis-ver", server or "0.0.0")
        self.aux("ctime", CREATED)
        self.raw(b"\xfe\x00\xfb\x05\x01")

    def raw(self, data: bytes) -> RdbWriter:
        self.data += data
        return self

    def aux(self, name: str, value: str | int) -> RdbWriter:
        return self.raw(b"\xfa" + string(name) + string(value))

    def key(self, code: int, body: bytes, key: bytes = b"key", before: bytes = b"") -> RdbWriter:
        return self.raw(before + bytes([code]) + string(key) + body)

    def end(self, checksum: bool = True) -> bytes:
        data = self.data + b"\xff"
        if data[:9] < b"REDIS0005":
            # There was no checksum yet.
            return data
        return data + (struct.pack("<Q", crc64(data)) if checksum else bytes(8))
