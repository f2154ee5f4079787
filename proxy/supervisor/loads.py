"""What the workers have counted of their traffic, until topom asks for it.

Counts wait here by slot, by server and by user. topom says how many of them an answer may have. Those that have waited
longest go first, and the others wait on, with what is added meanwhile.

**bounded**: there is one count for each slot. Servers and users that wait are :data:`MOST_WAITING` at most. With more,
the one that has waited longest is forgotten: a topom that does not ask wants no statistics. Nor does what was counted
in a long time before an answer wait for a later one, which would tell it as if it were of the seconds since. Notable
requests wait, too, :data:`MOST_NOTABLE_WAITING` at most; with more, the oldest go.
"""

import base64
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from proxy.channel import ChannelError
from slots.messages import channel
from slots.messages.control import Load, News, Registered, TellLoad
from slots.messages.load import MOST_NOTABLE, HotKey, Notable, ServerTraffic, Traffic
from slots.slotload import SlotLoad

MOST_WAITING = 20_000
LONG_SECONDS = 15.0
"""An answer of more is the first one after a time without a topom that asks."""
MOST_NOTABLE_WAITING = 256
MOST_TOLD_HOT_KEYS = 128
HOT_KEYS_SECONDS = 5.0
"""For how long a worker's hot keys are told. Workers tell theirs each second."""

NONE: Final = Traffic(0, 0, 0, 0)
SERVER, USER = "server", "user"


class Loads:
    """The counts that wait (:class:`proxy.supervisor.control.Listener`).

    Args:
        send: sends an answer to topom.
        hashed: whether workers tell hashes in place of hot keys.
        clock: seconds.
    """

    def __init__(self, send: Callable[[Load], None], hashed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._hashed = hashed
        self._clock = clock
        self._slots: SlotLoad | None = None
        self._waiting: dict[tuple[str, str], tuple[float, ...]] = {}  # by kind and name, the longest waiting first
        self._all = NONE
        self._hot_keys: dict[int, tuple[float, list[HotKey]]] = {}  # by worker, with the time when they came
        self._notable: deque[tuple[float, Notable]] = deque(maxlen=MOST_NOTABLE_WAITING)  # with the time of its answer
        self._since = clock()

    def begin(self, number_of_slots: int) -> None:
        """The product is known; it never changes."""
        self._slots = SlotLoad(number_of_slots)

    def take(self, worker: int, load: channel.Load) -> None:
        """Take what a worker has counted.

        Raises:
            ChannelError: the rows of slots are none.
        """
        assert self._slots is not None
        try:
            self._slots.add(base64.b64decode(load.slots, validate=True))
        except ValueError as error:
            raise ChannelError(f"a message 'load' came that cannot be used: {error}") from error
        for address, server in load.servers.items():
            self._add(SERVER, address, server)
        for name, user in load.users.items():
            self._add(USER, name, user)
            self._all = Traffic(*map(sum, zip(self._all, user, strict=True)))
        now = self._clock()
        self._hot_keys[worker] = now, load.hot_keys
        self._notable.extend((now - notable.seconds, notable) for notable in load.notable)

    def ended(self, worker: int) -> None:
        """A worker has ended; what it counted stays."""
        self._hot_keys.pop(worker, None)

    def _add(self, kind: str, name: str, counts: tuple[float, ...]) -> None:
        waiting = self._waiting.get((kind, name))
        if waiting is None and len(self._waiting) >= MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[kind, name] = counts if waiting is None else added(waiting, counts)

    def told(self, question: TellLoad) -> Load:
        """The answer to a question. What it has waits no more."""
        now = self._clock()
        rows = b"" if self._slots is None else self._slots.take(question.slots)
        servers: dict[str, ServerTraffic] = {}
        users: dict[str, Traffic] = {}
        for kind, name in list(self._waiting)[: question.names]:
            requests, errors, bytes_in, bytes_out, *time = self._waiting.pop((kind, name))
            counts = int(requests), int(errors), int(bytes_in), int(bytes_out)
            if kind == SERVER:
                microseconds, timed = time
                servers[name] = ServerTraffic(*counts, microseconds, int(timed))
            else:
                users[name] = Traffic(*counts)
        seconds = max(now - self._since, 0.0)
        if seconds > LONG_SECONDS:
            self._waiting.clear()
            if self._slots is not None:
                self._slots = SlotLoad(self._slots.number_of_slots)
        answer = Load(
            number=question.number,
            seconds=seconds,
            slots=base64.b64encode(rows).decode(),
            servers=servers,
            users=users,
            hot_keys=merged(keys for came, keys in self._hot_keys.values() if now - came < HOT_KEYS_SECONDS),
            notable=self._take_notable(now),
            hashed=self._hashed,
            all=self._all,
            untold=len(self._waiting) + (0 if self._slots is None else len(self._slots)),
        )
        self._since = now
        self._all = NONE
        return answer

    def _take_notable(self, now: float) -> list[Notable]:
        """The oldest ones, as many as an answer may have."""
        taken = [self._notable.popleft() for _ in range(min(len(self._notable), MOST_NOTABLE))]
        return [notable._replace(seconds=round(max(now - at, 0.0), 3)) for at, notable in taken]

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """topom asks when it wants to know."""

    def heard(self, message: News) -> None:
        """Answer a question."""
        if isinstance(message, TellLoad):
            self._send(self.told(message))

    def lost(self) -> None:
        """The counts wait for the next topom that asks."""


def added(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """The sums of two counts."""
    return tuple(mine + theirs for mine, theirs in zip(one, other, strict=True))


def merged(lists: Iterable[list[HotKey]]) -> list[HotKey]:
    """The hottest keys of all workers, the hottest first. At least the rate without the excess is a key's own: a worker
    that does not name a key may have had some requests for it."""
    found: dict[tuple[int, int, str, int], tuple[float, ...]] = {}
    for keys in lists:
        for key in keys:
            figures = key.rate, key.excess
            found[key[:4]] = added(found.get(key[:4], (0.0, 0.0)), figures)
    hottest = sorted(found.items(), key=lambda item: item[1][0] - item[1][1], reverse=True)[:MOST_TOLD_HOT_KEYS]
    return [HotKey(*key, round(rate, 1), round(excess, 1)) for key, (rate, excess) in hottest]
