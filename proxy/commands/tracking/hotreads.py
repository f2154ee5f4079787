"""Chooses the hot keys from whose values a worker answers GET by itself, and keeps these values right.

The values are for users with ``cached_reads``. They are asked for as clients ask, while the worker is
told of every change (:mod:`proxy.commands.tracking.servers`). Word of a change ends a value, and also the question that
is under way. So a value is at most as old as word of a change is late; :data:`proxy.engine.hotvalues` says when else it
is not given.

**bounded**: :data:`MOST_VALUES` keys of :data:`MOST_BYTES` each. A key that changes often is asked for at most every
:data:`AGAIN_SECONDS` because of that.
"""

import math

from proxy.commands.services import Services
from proxy.commands.tracking.servers import TrackedServers
from proxy.engine.backend import command
from proxy.engine.hotvalues import MOST_VALUES, HotValues
from proxy.engine.outcomes import CACHED
from proxy.engine.router import OPEN
from proxy.engine.tracking import TrackedKeys

LEAST_A_SECOND = 200.0
"""A key is hot if this worker gets so many requests for it a second, by the sample of hot keys; and until it gets less
than half as many."""
MOST_BYTES = 256 * 1024
"""Of a reply."""
CHOICE_SECONDS = 1.0
AGAIN_SECONDS = 0.02
NOTHING = (b"_\r\n", b"$-1\r\n")
NO_KEY, NO_END = -2, -1
"""Replies of PTTL."""


class HotKey:
    """A key that was chosen."""

    __slots__ = ("asked_at", "asked_by", "database", "has_string", "name", "number")

    def __init__(self, database: int, name: bytes) -> None:
        self.database = database
        self.name = name
        self.number = 0
        """Of the question whose answer counts; 0 for none."""
        self.has_string = True
        """Or nothing: the last answer could be kept. Else it is asked for with each choice, not with each change."""
        self.asked_at = -math.inf
        self.asked_by = (0, 0, 0)
        """The slot, its changes and the slot rules, by which it was asked."""


class HotReads:
    """Those of one worker.

    Args:
        services: the worker's parts.
        keys: tells of changes.
        servers: says whether it tells of all.
    """

    def __init__(self, services: Services, keys: TrackedKeys, servers: TrackedServers) -> None:
        self._services = services
        self._router = services.router
        self._tracked = keys
        self._servers = servers
        self._values = services.router.hot_values = HotValues()
        self._keys: dict[tuple[int, bytes], HotKey] = {}
        # Those that are asked for in the next tick.
        self._later: set[HotKey] = set()
        self._chosen_at = -math.inf
        self._values.on_old = self._needs_newer
        keys.on_followed = self._told

    def tick(self) -> None:
        """Called ten times a second."""
        now = self._services.now()
        if now - self._chosen_at >= CHOICE_SECONDS:
            self._chosen_at = now
            self._choose()
        # A server may be late by twice that time before it is known.
        late = 2 * self._services.settings.backend_reply_seconds
        self._values.until = self._servers.heard + late if self._keys else 0.0
        later, self._later = self._later, set()
        for key in later:
            self._ask(key)

    def _choose(self) -> None:
        hot_keys = self._router.loop.hot_keys
        is_used = any(user.cached_reads for user in self._services.settings.users) and any(
            session.attention & CACHED for session in self._router.sessions
        )
        if is_used:
            self._servers.want()
        kept = set(hot_keys.hottest(LEAST_A_SECOND / 2)) if is_used else set()
        for place in self._keys.keys() - kept:
            key = self._keys.pop(place)
            key.number = 0
            self._later.discard(key)
            self._values.drop(*place)
        if is_used:
            for place in hot_keys.hottest(LEAST_A_SECOND):
                if place not in self._keys and len(self._keys) < MOST_VALUES:
                    self._keys[place] = HotKey(*place)
            # Also those that could not be kept: their server may give another reply now.
            self._later.update(key for key in self._keys.values() if not key.number or not self._is_current(key))
        self._tracked.followed = {key.name for key in self._keys.values()}

    def _is_current(self, key: HotKey) -> bool:
        """Whether its slot is where it was when it was asked for."""
        slot, changes, ruling = key.asked_by
        return (self._router.changes(slot), self._router.ruling) == (changes, ruling)

    def _ask(self, key: HotKey) -> None:
        """Ask the key's server for its value and its life."""
        if (key.database, key.name) not in self._keys:
            return
        router = self._router
        slot = router.slot_of_key(key.database, key.name)
        state, address, _ = router.route(slot)
        if not self._servers.heard or state != OPEN or address is None:
            self._later.add(key)
            return
        number = key.number = self._values.ask()
        asked_at = key.asked_at = self._services.now()
        _, changes, ruling = key.asked_by = slot, router.changes(slot), router.ruling
        life: list[bytes] = []

        def answered(reply: bytes) -> None:
            until = _end(life[0], asked_at, reply)
            key.has_string = until is not None
            if key.number != number:
                return  # It has changed, or another question was asked.
            key.number = 0 if until is None else number
            if until is not None:
                value = None if reply in NOTHING else reply
                self._values.put(key.database, key.name, slot, changes, ruling, number, until, value)

        backend = router.shared_backend(address, key.database, 3)
        backend.call(command((b"PTTL", key.name)), life.append)
        backend.call(command((b"GET", key.name)), answered, most=MOST_BYTES)

    def _ask_again(self, key: HotKey) -> None:
        if self._services.now() - key.asked_at < AGAIN_SECONDS:
            self._later.add(key)
        else:
            self._ask(key)

    def _told(self, name: bytes | None) -> None:
        """A key has changed, or all may have."""
        for place, key in list(self._keys.items()):
            if name is None or key.name == name:
                key.number = 0
                self._values.drop(*place)
                if name is None:
                    self._later.add(key)
                elif key.has_string:
                    self._ask_again(key)

    def _needs_newer(self, database: int, name: bytes) -> None:
        """A session has written, and so does not get the value that is there."""
        key = self._keys.get((database, name))
        if key is not None:
            self._ask_again(key)


def _end(life: bytes, asked_at: float, reply: bytes) -> float | None:
    """When a value's life ends; None if it cannot be kept."""
    if not life.startswith(b":") or not reply.startswith((b"$", b"_")):
        return None
    milliseconds = int(life[1:])
    if reply in NOTHING or milliseconds == NO_END:
        return math.inf
    return None if milliseconds == NO_KEY else asked_at + milliseconds / 1000
