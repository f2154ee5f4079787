"""Packed commands as their words."""

import hiredis


def words(command: bytes) -> list[bytes]:
    """The arguments of one packed command."""
    reader = hiredis.Reader()
    reader.feed(command)
    found = reader.gets()
    assert isinstance(found, list)
    assert reader.gets() is False
    return found
