"""The scripts that a worker has seen, by their SHA1, and which servers are known to have them loaded.

Those that a client loaded with SCRIPT LOAD outlast those that were merely run with EVAL. **bounded**: in their number
and in their bytes; the least recently used goes first. What a server has loaded counts only as long as the connection
that it was learned over (:mod:`proxy.standing`).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection
from itertools import islice

from proxy.engine.backend import Backend
from proxy.standing import Standing

LONGEST_BODY = 4 * 1024 * 1024
"""A longer script is not remembered: it would have to fit into one message between processes."""


def digest(body: bytes) -> bytes:
    """The name of a script, as Redis makes it."""
    return hashlib.sha1(body, usedforsecurity=False).hexdigest().encode()


class Scripts:
    """What one worker remembers.

    Args:
        most: how many scripts.
        most_bytes: how many bytes of them together.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        # The least recently used first.
        self._loaded: OrderedDict[bytes, bytes] = OrderedDict()
        self._seen: OrderedDict[bytes, bytes] = OrderedDict()
        self._at: dict[str, OrderedDict[bytes, Standing]] = {}
        self.flushes = 0
        """Grows when scripts are forgotten; what was asked of a server before says nothing afterwards."""

    # -- bodies --------------------------------------------------------------------------------------------

    def remember(self, body: bytes, loaded: bool = False) -> bytes:
        """Remember a script; its SHA1. ``loaded`` says that a client asked for it to be kept."""
        name = digest(body)
        if len(body) > min(LONGEST_BODY, self._most_bytes):
            return name
        if name in self._loaded:
            self._loaded.move_to_end(name)
        elif name in self._seen and not loaded:
            self._seen.move_to_end(name)
        else:
            if self._seen.pop(name, None) is None:
                self._bytes += len(body)
            (self._loaded if loaded else self._seen)[name] = body
            self._make_room()
        return name

    def _make_room(self) -> None:
        while self._bytes > self._most_bytes or len(self) > self._most:
            # The newest is not the one to go, even where it is the only one that was merely run.
            from_seen = len(self._seen) > 1 or not self._loaded
            _, body = (self._seen if from_seen else self._loaded).popitem(last=False)
            self._bytes -= len(body)

    def body(self, name: bytes) -> bytes | None:
        """The script of a SHA1, if it is known; it counts as used now."""
        for known in (self._loaded, self._seen):
            body = known.get(name)
            if body is not None:
                known.move_to_end(name)
                return body
        return None

    def is_loaded(self, name: bytes) -> bool:
        """Whether it is known, and a client loaded it."""
        return name in self._loaded

    def loaded(self) -> list[bytes]:
        """The SHA1s of the scripts that clients loaded."""
        return list(self._loaded)

    def __contains__(self, name: bytes) -> bool:
        return name in self._loaded or name in self._seen

    def __len__(self) -> int:
        return len(self._loaded) + len(self._seen)

    def forget(self) -> None:
        """Forget every script, and what the servers have."""
        self._loaded.clear()
        self._seen.clear()
        self._bytes = 0
        self.forget_servers()

    # -- servers -------------------------------------------------------------------------------------------

    def is_at(self, name: bytes, address: str) -> bool:
        """Whether a server is known to have a script loaded."""
        there = self._at.get(address)
        standing = there.get(name) if there is not None else None
        return standing is not None and standing.holds

    def note_at(self, name: bytes, backend: Backend) -> None:
        """A server has a script loaded: it has just said so over ``backend``."""
        there = self._at.setdefault(backend.address, OrderedDict())
        there[name] = Standing(backend)
        there.move_to_end(name)
        while len(there) > self._most:
            there.popitem(last=False)

    def to_check(self, most: int) -> dict[Backend, list[bytes]]:
        """For each server a connection to it, and some of the scripts it is known to have: others at each call."""
        found: dict[Backend, list[bytes]] = {}
        for there in self._at.values():
            names: list[bytes] = []
            backend: Backend | None = None
            for name, standing in list(islice(there.items(), most)):
                if not standing.holds:
                    del there[name]
                    continue
                there.move_to_end(name)
                names.append(name)
                backend = standing.backend
            if backend is not None:
                found[backend] = names
        return found

    def keep_servers(self, addresses: Collection[str]) -> None:
        """Forget what every server that is not in ``addresses`` has."""
        for address in self._at.keys() - set(addresses):
            del self._at[address]

    def forget_server(self, address: str) -> None:
        """A server has lost its scripts."""
        self._at.pop(address, None)

    def forget_servers(self) -> None:
        """Any server may have lost its scripts."""
        self.flushes += 1
        self._at.clear()
