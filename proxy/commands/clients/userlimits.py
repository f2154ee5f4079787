"""How much each user may ask for in a second at this worker: its meters, and its shares of the limits.

The supervisor says which share of a user's limits this worker has (:mod:`proxy.supervisor.limitshares`), and is told
what each user asked for.
"""

from collections.abc import Iterable, Mapping

import structlog

from proxy.engine.meter import Meter
from proxy.engine.requests import Loop
from proxy.users import User
from slots.limitshares import BEGINNING
from slots.messages.load import Share, UserDemand

log = structlog.get_logger()


class UserLimits:
    """The meters of those users that have limits.

    Args:
        loop: of the worker.
        workers: of the proxy.
    """

    def __init__(self, loop: Loop, workers: int) -> None:
        self._loop = loop
        self._unheard = Share(BEGINNING // workers, BEGINNING // workers)
        """The share of a user that the supervisor has not named yet."""
        self._shares: Mapping[str, Share] = {}
        self._meters: dict[str, Meter] = {}
        self._gone: list[Meter] = []
        self._since = loop.now

    def of(self, user: User) -> Meter | None:
        """The meter for a user's sessions; None for a user without limits."""
        return self._meters.get(user.name)

    def change(self, users: Iterable[User]) -> None:
        """There are these users from now on. A user that stays keeps its meter, with what is in it."""
        before, self._meters = self._meters, {}
        for user in users:
            if user.requests_per_second or user.bytes_per_second or user.worker_percent:
                meter = before.get(user.name) or self._made(user)
                refuses = user.over_limit == "refuse"
                meter.limit(user.requests_per_second, user.bytes_per_second, refuses, user.worker_percent)
                self._meters[user.name] = meter
        for name in before.keys() - self._meters.keys():
            # What waits there has its turn at the next tick, unless its session is closed because of the change.
            before[name].limit(0, 0, False)
            self._gone.append(before[name])
        self.share(self._shares)

    def _made(self, user: User) -> Meter:
        meter = Meter(self._loop, user.name)
        if (user.bytes_per_second or user.worker_percent) and not meter.told_apart:
            log.warning("user_not_told_apart", user=user.name, reason="restart the proxy: it has had too many users")
        return meter

    def share(self, shares: Mapping[str, Share]) -> None:
        """From now on, these shares of the limits are this worker's."""
        self._shares = shares
        for name, meter in self._meters.items():
            meter.share(*shares.get(name, self._unheard))

    def tick(self) -> None:
        """Let requests that wait have their turn."""
        for meter in (*self._meters.values(), *self._gone):
            meter.tick()
        self._gone.clear()

    def take(self) -> dict[str, UserDemand]:
        """What each user asked for since the last time; requests and bytes in a second."""
        seconds = max(self._loop.now - self._since, 0.001)
        self._since = self._loop.now
        found = {}
        for name, meter in self._meters.items():
            requests, octets, delayed, refused, worked = meter.take()
            found[name] = UserDemand(_rate(requests, seconds), _rate(octets, seconds), delayed, refused, worked)
        return found


def _rate(count: int, seconds: float) -> int:
    """A count that is not 0 makes a rate that is not 0."""
    return round(count / seconds) or int(count > 0)
