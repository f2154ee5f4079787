"""Shares of the limits of users, for proxies.

A proxy says in each heartbeat what each user with limits asked for there in the last second, and which share of the
limits it has. The answer is its share from now on: its part of what is asked for everywhere.

A share shrinks by a tenth at least, or not at all: while demand goes up and down a little, nothing changes hands.

All shares together are the whole limit, at most. So a proxy's share grows only by what others have given up, and say so
in their heartbeats. A proxy keeps its share while it hears of no other one. So until each proxy has been heard of since
this topom began to lead, nobody is told a share. A lost proxy has none any more.

Connections are shared out by :mod:`slots.connectionshares`. What is said here of lost proxies, and of those that were
not heard of, holds for them, too.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from slots.connectionshares import ConnectionShares
from slots.limitshares import WHOLE, floor, share
from slots.messages.control import Heartbeat, Shares
from slots.messages.load import Share


class Known(Protocol):
    """What is known of a proxy (:class:`topom.proxies.member.Member`)."""

    @property
    def lost(self) -> bool:
        """Whether its lease has ended."""


class _Said(NamedTuple):
    """What a proxy has said, with the larger one of the share that it had and the one that it was told since."""

    requests: int
    bytes: int
    share_of_requests: int
    share_of_bytes: int


class LimitShares:
    """What all proxies have said.

    Args:
        members: gives all proxies, by id.
    """

    def __init__(self, members: Callable[[], Mapping[int, Known]]) -> None:
        self._members = members
        self._said: dict[int, dict[str, _Said]] = {}
        # Sums over all proxies, by user.
        self._parties: Counter[str] = Counter()
        self._sums: list[Counter[str]] = [Counter() for _ in _Said._fields]
        self._connections: ConnectionShares[int] = ConnectionShares()

    def answer(self, proxy_id: int, heartbeat: Heartbeat) -> Shares | None:
        """Take what a heartbeat says, and give the proxy's shares; None if it has none, or if it is not known what
        others have."""
        members = self._members()
        for other in [one for one in self._said if one not in members or members[one].lost]:
            self._put(other, {})
            del self._said[other]
            self._connections.forget(other)
        if proxy_id not in members:
            return None
        self._put(proxy_id, {name: _Said(*one) for name, one in heartbeat.limited.items()})
        self._connections.take(proxy_id, heartbeat.connections)
        if any(other not in self._said and not member.lost for other, member in members.items()):
            return None
        limits = {name: one.limit for name, one in heartbeat.connections.items()}
        answer = Shares(shares=self._told(proxy_id), connections=self._connections.tell(proxy_id, limits))
        return answer if answer.shares or answer.connections else None

    def _told(self, proxy_id: int) -> dict[str, Share]:
        shares = {name: self._share(name, one) for name, one in self._said[proxy_id].items()}
        self._put(
            proxy_id,
            {
                name: one._replace(
                    share_of_requests=max(one.share_of_requests, shares[name].requests),
                    share_of_bytes=max(one.share_of_bytes, shares[name].bytes),
                )
                for name, one in self._said[proxy_id].items()
            },
        )
        return shares

    def _share(self, name: str, one: _Said) -> Share:
        parties = self._parties[name]
        all_requests, all_bytes, held_of_requests, held_of_bytes = (sums[name] for sums in self._sums)
        return Share(
            _granted(share(one.requests, all_requests, parties), one.share_of_requests, held_of_requests, parties),
            _granted(share(one.bytes, all_bytes, parties), one.share_of_bytes, held_of_bytes, parties),
        )

    def _put(self, proxy_id: int, said: dict[str, _Said]) -> None:
        for sign, entries in ((-1, self._said.get(proxy_id, {})), (1, said)):
            for name, one in entries.items():
                self._parties[name] += sign
                for sums, figure in zip(self._sums, one, strict=True):
                    sums[name] += sign * figure
        for name in self._said.get(proxy_id, {}).keys() - said.keys():
            self._forget(name)
        self._said[proxy_id] = said

    def _forget(self, name: str) -> None:
        if not self._parties[name]:
            for sums in (self._parties, *self._sums):
                del sums[name]


def _granted(wanted: int, held: int, held_by_all: int, parties: int) -> int:
    if held * 9 < wanted * 10 < held * 10:
        wanted = held
    return max(floor(parties), min(wanted, WHOLE - (held_by_all - held)))
