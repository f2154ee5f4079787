"""Gives a value that is whole its name, in one atomic step whose cost does not depend on its size."""

from __future__ import annotations

from migrator.connection import pack

EMPTY_STRING = b"\x00\x00\x06\x00\xcbv4\xc0\xfa*\x9eI"
"""An empty string as RESTORE takes it, of a format that every server reads."""


def require_absent(name: bytes) -> list[bytes]:
    """Commands to be run in one transaction, which leave ``name`` absent. If there was a key, the first one's reply is
    the error BUSYKEY, as of the RESTORE of a small value."""
    return [pack("RESTORE", name, 0, EMPTY_STRING), pack("UNLINK", name)]


def finish_commands(temporary: bytes, name: bytes, deadline_ms: int | None) -> list[bytes]:
    """Commands to be run in one transaction, which make ``temporary`` key ``name``.

    Any error among their replies makes the copy void: BUSYKEY says that the target had such a key, another that the
    value is not there.

    Args:
        deadline_ms: of the key, in milliseconds since 1970, or None; one that is past removes the key.
    """
    # Before the key has its name: it never stands there with another deadline than its own.
    life = pack("PERSIST", temporary) if deadline_ms is None else pack("PEXPIREAT", temporary, deadline_ms)
    return [*require_absent(name), life, pack("RENAME", temporary, name)]
