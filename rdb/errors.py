"""The faults of RDB files. Each error names the file and the offset, in bytes, at which the fault was noticed."""

from __future__ import annotations


class RdbError(Exception):
    """A file that cannot be read to its end.

    ``file`` is its path as it was given, ``offset`` the byte at which the fault was noticed, ``reason`` a sentence.
    """

    def __init__(self, file: str, offset: int, reason: str) -> None:
        # Spark carries it between processes, so all its values are in its arguments.
        super().__init__(file, offset, reason)
        self.file = file
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}, offset {self.offset}: {self.reason}"


class NotAnRdbFile(RdbError):
    """It does not begin as an RDB file does."""


class TruncatedRdb(RdbError):
    """It ends before the end that its content announces."""


class CorruptRdb(RdbError):
    """It has bytes that no server writes."""


class ChecksumMismatch(CorruptRdb):
    """It was read to its end, but its bytes are not the ones that the server wrote: any row of it may be wrong."""


class UnsupportedRdb(RdbError):
    """It has an unknown type or opcode, so the rest of it cannot be found."""


class UnreadableRdb(RdbError):
    """The file system gave an error."""


class HeldTooMuch(Exception):
    """A value has more bytes than its reader wants to hold. It is no fault of the file."""
