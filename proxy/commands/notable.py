"""A worker's log of notable requests: those that took long, for SLOWLOG, and all of them, for topom.

What is notable the engine decides (:mod:`proxy.engine.statistics`). A request's arguments are gone when its reply
comes; the engine has kept the beginning of its key, if it found the key itself. So an entry names the command, the key,
its slot, the server that answered, the user and the client. No value is kept.

**bounded**: the oldest entry goes when a new one has no room.
"""

import base64
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from proxy.engine.hotkeys import HASH_CHARACTERS, hash_of_key
from proxy.engine.statistics import Noted
from slots.messages.load import MOST_NOTABLE, Notable, Why

MOST_ENTRIES = 128
"""How many slow requests a worker keeps: as many as Redis does by default."""
MOST_COMMAND = 64
"""Characters of a command's name that are told: a module may give it any name."""
MOST_CLIENT = 64


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One request that took long.

    ``at`` is the time of the answer, in seconds since 1970. ``slot`` is -1 if there is none. ``key`` has the first
    bytes of the key; those that are no UTF-8 are there, too (``surrogateescape``). ``key_bytes`` is the whole key's
    length, and 0 if the key is not known or not to be shown. ``server`` is empty if the proxy answered, or several
    servers did.
    """

    id: int
    at: float
    microseconds: int
    command: str
    slot: int
    key: str
    key_bytes: int
    server: str
    client: str
    client_name: str

    def to_wire(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


class NotableLog:
    """The newest notable requests of one worker.

    Args:
        first_id, step: ids of slow requests are ``first_id``, ``first_id + step`` and so on, the same in no two
            workers.
        hash_keys: the setting ``hash_hot_keys``.
        clock: seconds.
    """

    def __init__(
        self,
        first_id: int = 0,
        step: int = 1,
        hash_keys: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # As the engine noted them: if everything is slow, many are noted, and few are ever read.
        self._slow: deque[tuple[int, float, Noted]] = deque(maxlen=MOST_ENTRIES)
        self._untold: deque[tuple[float, Noted]] = deque(maxlen=MOST_NOTABLE)
        self._next_id = first_id
        self._step = step
        self._hash_keys = hash_keys
        self._clock = clock

    def note(self, noted: Noted) -> None:
        """Add one; called by the engine."""
        if noted.slow:
            self._slow.append((self._next_id, time.time(), noted))
            self._next_id += self._step
        self._untold.append((self._clock(), noted))

    def take(self) -> list[Notable]:
        """Those that were not taken yet, the oldest first."""
        now = self._clock()
        taken = [self._notable(noted, max(now - at, 0.0)) for at, noted in self._untold]
        self._untold.clear()
        return taken

    def _notable(self, noted: Noted, seconds: float) -> Notable:
        key, length = noted.key, noted.length
        if self._hash_keys and length:
            key, length = hash_of_key(key), HASH_CHARACTERS
        return Notable(
            why=cast(Why, noted.why),
            command=_visible(noted.command, MOST_COMMAND),
            database=noted.database,
            slot=noted.slot,
            key=base64.b64encode(key).decode(),
            length=length,
            user=noted.user,
            client=_visible(noted.client, MOST_CLIENT) if noted.client else "",
            server=noted.server or "",
            seconds=round(seconds, 3),
            microseconds=round(noted.microseconds, 1),
            bytes_in=noted.bytes_in,
            bytes_out=noted.bytes_out,
            elements=noted.elements,
        )

    def newest(self, count: int | None = None) -> list[SlowRequest]:
        """The newest slow requests, the newest first; all of them without ``count``."""
        return [self._slow_request(*each) for each in list(reversed(self._slow))[:count]]

    def _slow_request(self, number: int, at: float, noted: Noted) -> SlowRequest:
        shown = not self._hash_keys
        return SlowRequest(
            id=number,
            at=at,
            microseconds=int(noted.microseconds),
            command=noted.command,
            slot=noted.slot,
            key=noted.key.decode(errors="surrogateescape") if shown else "",
            key_bytes=noted.length if shown else 0,
            server=noted.server or "",
            client=noted.client,
            client_name=noted.client_name.decode(errors="replace"),
        )

    def reset(self) -> None:
        """Forget the slow requests. topom hears of them all the same."""
        self._slow.clear()

    def __len__(self) -> int:
        return len(self._slow)


def _visible(text: str, most: int) -> str:
    """A text that fits a message."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most]) or "?"
