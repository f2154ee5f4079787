"""A worker's memory of scripts that clients loaded or ran, by their SHA1.

Scripts that a client loaded with SCRIPT LOAD outlast those that only ran with EVAL. **bounded**: by number
(:data:`~proxy.engine.loaded.MOST_SCRIPTS`) and by bytes; of each kind the least recently used goes first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from proxy.engine.loaded import MOST_SCRIPTS

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of scripts that a worker remembers: more than those of an application, and little beside its clients."""
LONGEST_BODY = 4 * 1024 * 1024
"""A longer script is not remembered: it would have to fit into one message between processes."""

AGES = 4
"""A script that is used is asked for at least so often while as many new ones come as there is room for."""
RUN = 1
"""The level of a script that only ran; 0 is the level of an unknown one."""
LOADED = 2
"""The level of a script that a client asked to be kept."""


def digest(body: bytes) -> bytes:
    """The SHA1 of a script, as Redis computes it."""
    return hashlib.sha1(body, usedforsecurity=False).hexdigest().encode()


class KnownScripts:
    """Remembered scripts, as many as there is room for."""

    def __init__(self) -> None:
        self._bytes = 0
        # What came since it aged last.
        self._new = self._new_bytes = 0
        # The least recently used first.
        self._loaded: OrderedDict[bytes, bytes] = OrderedDict()
        self._seen: OrderedDict[bytes, bytes] = OrderedDict()

    def remember(self, body: bytes, loaded: bool = False) -> bytes:
        """Remember a script; give its SHA1. ``loaded`` says that a client asked for it to be kept."""
        name = digest(body)
        if len(body) > min(LONGEST_BODY, MOST_BYTES):
            return name
        if name in self._loaded:
            self._loaded.move_to_end(name)
        elif name in self._seen and not loaded:
            self._seen.move_to_end(name)
        else:
            if self._seen.pop(name, None) is None:
                self._bytes += len(body)
                self._age(len(body))
            (self._loaded if loaded else self._seen)[name] = body
            self._make_room(loaded)
        return name

    def _age(self, added: int) -> None:
        """One script more is known, of so many bytes."""
        self._new += 1
        self._new_bytes += added
        if self._new * AGES >= MOST_SCRIPTS or self._new_bytes * AGES >= MOST_BYTES:
            self._new = self._new_bytes = 0
            self.aged()

    def aged(self) -> None:
        """Many scripts are new. Those that are used have to be asked for again, to count as used."""

    def _make_room(self, newest_is_loaded: bool) -> None:
        while self._bytes > MOST_BYTES or len(self) > MOST_SCRIPTS:
            # The newest script stays, even if it is the only one of its kind.
            from_seen = len(self._seen) > (not newest_is_loaded) or not self._loaded
            _, body = (self._seen if from_seen else self._loaded).popitem(last=False)
            self._bytes -= len(body)
            self.dropped()

    def dropped(self) -> None:
        """A script had to go."""

    def body(self, name: bytes) -> bytes | None:
        """The script with a SHA1, if it is known; it counts as used now."""
        for known in (self._loaded, self._seen):
            body = known.get(name)
            if body is not None:
                known.move_to_end(name)
                return body
        return None

    def level(self, name: bytes) -> int:
        """:data:`LOADED`, :data:`RUN`, or 0 for a script that is not known."""
        return LOADED if name in self._loaded else RUN if name in self._seen else 0

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
        """Forget every script."""
        self._loaded.clear()
        self._seen.clear()
        self._bytes = 0
