"""Decides which replica of one group is read for which slot.

**caught-up**: a slot is read from a replica only while it is at rest, and only once the replica has run everything that
its master had when the slot came to rest there. The slot's *mark* is the master's place in its stream of writes, asked
for after the slot came. A replica that has not passed the mark may lack keys that the slot brought along, even old
ones. If the group gets another master, or the master another stream, every mark is made again. A mark is compared with
the replica's latest answer, so a replica that was restarted and has fallen back does not pass either.

A replica in the proxy's own datacenter is preferred to one elsewhere. Among equals, each slot has its own order, which
differs in each worker. So reads are spread, and a replica that comes or goes only changes its own share.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from proxy.worker.replicas.replication import Replication
from slots.group import Group


@dataclass(frozen=True, slots=True)
class Limits:
    """How far behind its master a replica may be."""

    lag_bytes: int
    lag_seconds: float


class ReplicaGroup:
    """The replicas of one group with one master, and the slots at rest there.

    Args:
        group: the group in the slot table; it has a master.
        datacenter: the proxy's own datacenter.
        limits: a replica beyond them is not read.
        salt: makes the choice differ between workers.
    """

    def __init__(self, group: Group, datacenter: str, limits: Limits, salt: str) -> None:
        assert group.master is not None, "a group without a master has no replicas"
        self.id = group.id
        self.master = group.master
        self._datacenter = datacenter
        self._limits = limits
        self._salt = salt
        self._near: dict[str, bool] = {}
        self._said: dict[str, Replication] = {}
        # The master's latest answer; None while it is not known to be a master.
        self._stream: str | None = None
        self._offset = 0
        # By slot: the place that a replica has to have reached, or when the slot came if that place is not known yet.
        self._marks: dict[int, int] = {}
        self._highest = 0
        self._unmarked: dict[int, int] = {}
        self._clock = 0
        self._chosen: dict[int, str] = {}
        self._last: tuple[str, ...] | None = None
        self.set_replicas(group)

    @property
    def replicas(self) -> tuple[str, ...]:
        """Addresses of all replicas, readable or not."""
        return tuple(self._near)

    @property
    def slots_read(self) -> int:
        """How many slots are read from a replica now."""
        return len(self._chosen)

    def set_replicas(self, group: Group) -> None:
        """Take the group's present replicas, except those not to be read. The master is the same."""
        readable = [server for server in group.replicas if server not in group.unread]
        near = {server: group.datacenter_of(server) == self._datacenter for server in readable}
        if near == self._near:
            return
        self._near = near
        self._said = {server: said for server, said in self._said.items() if server in self._near}
        self._last = None

    # -- slots ---------------------------------------------------------------------------------------------

    def join(self, slots: Iterable[int]) -> None:
        """These slots came to rest at the group."""
        self._clock += 1
        self._unmarked.update(dict.fromkeys(slots, self._clock))
        self._last = None

    def leave(self, slot: int) -> None:
        """The slot is in motion, or at rest elsewhere. From now on it is not read from a replica."""
        self._unmarked.pop(slot, None)
        self._marks.pop(slot, None)
        self._chosen.pop(slot, None)

    # -- servers -------------------------------------------------------------------------------------------

    def asking(self) -> int:
        """Call this when the master is asked, and give the result to :meth:`master_said` with the answer."""
        return self._clock

    def master_said(self, said: Replication | None, asked: int) -> None:
        """The master answered a question that was put when :meth:`asking` gave ``asked``, or (None) it did not
        answer."""
        if said is None:
            # Its earlier answer still says which place a replica has to have reached.
            return
        if not said.is_master:
            self._stream = None
            self._last = None
            return
        if said.stream != self._stream:
            self._stream = said.stream
            self._marks = dict.fromkeys(self._marks, said.offset)
            self._last = None
        self._offset = said.offset
        # caught-up: a slot that came after the question may have brought keys that this offset does not cover.
        marked = [slot for slot, joined in self._unmarked.items() if joined <= asked]
        for slot in marked:
            del self._unmarked[slot]
            self._marks[slot] = said.offset
        if marked or self._last is None:
            self._highest = max(self._marks.values(), default=0)
            self._last = None

    def replica_said(self, address: str, said: Replication | None) -> None:
        """A replica answered, or (None) its answer no longer counts."""
        if said is None or address not in self._near:
            self._said.pop(address, None)
        else:
            self._said[address] = said

    def forget(self) -> None:
        """Forget all answers, and treat every slot as having come just now."""
        self._said.clear()
        self._stream = None
        self.join([*self._marks, *self._unmarked])
        self._marks.clear()

    def problem(self, address: str) -> str | None:
        """Why a replica is not read for any slot; None if it may be read."""
        said = self._said.get(address)
        if said is None:
            return "does not say how its replication stands"
        if self._stream is None:
            return f"its master {self.master} does not say that it is one"
        if said.is_master:
            return "is a master"
        if not said.link_up:
            return "has no link to its master"
        if said.stream != self._stream:
            return f"does not follow {self.master}"
        if self._offset - said.offset > self._limits.lag_bytes:
            return f"is {self._offset - said.offset} bytes behind its master"
        if said.silent_seconds > self._limits.lag_seconds:
            return f"has not heard from its master for {said.silent_seconds} s"
        return None

    # -- the choice ----------------------------------------------------------------------------------------

    def refresh(self) -> list[tuple[int, str | None]]:
        """Choose again. Gives the slots whose choice has changed, each with the replica to read or None for the
        master."""
        offsets = {server: self._said[server].offset for server in self._near if self.problem(server) is None}
        if all(offset >= self._highest for offset in offsets.values()):
            healthy = tuple(offsets)
            if healthy == self._last:
                return []
            self._last = healthy
        else:
            # Replicas differ in the slots for which they may be read, and that changes with every answer.
            self._last = None
        chosen: dict[int, str] = {}
        for slot, mark in self._marks.items():
            # caught-up: its latest answer counts, not an earlier one.
            server = self._choose(slot, [server for server, offset in offsets.items() if offset >= mark])
            if server is not None:
                chosen[slot] = server
        before, self._chosen = self._chosen, chosen
        changed: list[tuple[int, str | None]] = [(slot, None) for slot in before.keys() - chosen.keys()]
        changed += [(slot, server) for slot, server in chosen.items() if before.get(slot) != server]
        return changed

    def _choose(self, slot: int, caught_up: list[str]) -> str | None:
        candidates = [server for server in caught_up if self._near[server]] or caught_up
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        return max(candidates, key=lambda server: self._rank(slot, server))

    def _rank(self, slot: int, server: str) -> bytes:
        return blake2b(f"{self._salt} {slot} {server}".encode(), digest_size=8).digest()
