"""How the connections that a user may have are shared out: by topom over proxies, and by a proxy over its workers.

A share is a number of connections. Who has some open keeps them. What is free goes to those that lately refused a
client, and what they do not want goes to all in even parts.

All shares together are never above the limit. A share grows only by what nobody else holds, and whoever has a share is
taken to hold it until it says that it does not. It says which share it goes by, and is told no other one before it has
said so of the last one. So nobody can hold one that is no longer counted. A limit that is lowered closes no connection:
who has more open than its share lets nobody in.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from slots.messages.load import Connections

LATE_SECONDS = 5
"""Who has been told no share for so long has a tenth of the limit. Before that, it has none."""

Party = TypeVar("Party")


def beginning(limit: int) -> int:
    """The share of one that is told none."""
    return max(limit // 10, 1)


class _Entry(NamedTuple):
    """What one of them has said, with the share that it was told since."""

    said: Connections
    told: int
    held: int

    @property
    def heard(self) -> bool:
        """Whether it goes by the share that it was told last."""
        return self.said.share == self.told


class _Together(NamedTuple):
    """Sums over all of them."""

    parties: int = 0
    open: int = 0
    wanted: int = 0
    held: int = 0

    def plus(self, one: _Entry, sign: int) -> "_Together":
        return _Together(
            self.parties + sign,
            self.open + sign * one.said.open,
            self.wanted + sign * one.said.wanted,
            self.held + sign * one.held,
        )


NOTHING = _Together()


class ConnectionShares(Generic[Party]):
    """What all of them have said, and were told."""

    def __init__(self) -> None:
        self._entries: dict[Party, dict[str, _Entry]] = {}
        self._together: dict[str, _Together] = {}

    def take(self, party: Party, said: Mapping[str, Connections]) -> None:
        """What one of them says of each user whose connections are limited."""
        before = self._entries.get(party, {})
        self._put(party, {name: _taken(one, before.get(name)) for name, one in said.items()})

    def forget(self, party: Party) -> None:
        """It has no connections any more."""
        self._put(party, {})
        del self._entries[party]

    def knows(self, party: Party) -> bool:
        """Whether it has said anything."""
        return party in self._entries

    def together(self, name: str) -> tuple[int, int, int]:
        """How many connections of a user are open, wanted, and held, by all of them."""
        sums = self._together.get(name, NOTHING)
        return sums.open, sums.wanted, sums.held

    def tell(self, party: Party, limits: Mapping[str, int]) -> dict[str, int]:
        """The shares of one of them from now on.

        Args:
            limits: how many connections all of them may have together, by user.
        """
        entries = self._entries.get(party, {})
        found = {}
        for name in entries.keys() & limits.keys():
            one = entries[name]
            found[name] = share = self._share(name, one, limits[name])
            if share != one.told:
                self._count(name, one, -1)
                entries[name] = one = one._replace(told=share, held=max(one.held, share))
                self._count(name, one, 1)
        return found

    def _share(self, name: str, one: _Entry, limit: int) -> int:
        if not one.heard:
            return one.told
        together = self._together[name]
        fair = one.said.open + _part_of_free(one.said.wanted, together, limit)
        if together.wanted == one.said.wanted and one.told * 9 < fair * 10 < one.told * 10:
            # Nobody else wants any: while numbers go up and down a little, nothing changes hands.
            fair = one.told
        return max(0, min(fair, limit - (together.held - one.held)))

    def _put(self, party: Party, entries: dict[str, _Entry]) -> None:
        before = self._entries.get(party, {})
        for name in before.keys() | entries.keys():
            old, new = before.get(name), entries.get(name)
            if old != new:
                for one, sign in ((new, 1), (old, -1)):
                    if one is not None:
                        self._count(name, one, sign)
                if not self._together[name].parties:
                    del self._together[name]
        self._entries[party] = entries

    def _count(self, name: str, one: _Entry, sign: int) -> None:
        self._together[name] = self._together.get(name, NOTHING).plus(one, sign)


def _taken(said: Connections, before: _Entry | None) -> _Entry:
    if before is None or said.share == before.told:
        return _Entry(said, said.share, max(said.held, said.share))
    return _Entry(said, before.told, max(said.held, said.share, before.told))


def _part_of_free(wanted: int, together: _Together, limit: int) -> int:
    free = max(limit - together.open, 0)
    if together.wanted > free:
        return max(free * wanted // together.wanted, min(wanted, 1))
    unwanted, parties = free - together.wanted, together.parties
    # What cannot be divided stays with one of them, unless another one wants it.
    return wanted + (unwanted // parties if together.wanted > wanted else -(-unwanted // parties))
