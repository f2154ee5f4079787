"""A worker's replicas: whether each is fit to be read, and which slot's reads go to which replica.

Reads of a session that wants them (by the setting ``replica_reads``, or READONLY) go to a replica if one is fit: it
follows the group's master with its link up, is not too far behind, and is **caught-up** for the slot
(:mod:`proxy.worker.replicas.replicagroup`). All other requests go to the master. A replica is not used unless it is
certainly fit. These events put it out of use: the table that moves the slot or changes the group (before that table is
acknowledged); the end of any connection to it, for it may have been restarted with older data; a fence; an unfit
answer; no answer within ``replica_check_seconds``. It is asked once in that time.

**bounded**: one question at a time to each server, and none while no session wants to read from replicas.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import structlog

from proxy.engine.backend import Backend
from proxy.engine.router import Router
from proxy.settings import ProxySettings
from proxy.worker.replicas.replicagroup import Limits, ReplicaGroup
from proxy.worker.replicas.replication import QUESTION, Replication, read
from slots.slot import Slot
from slots.states import AS_AT_REST
from slots.table import SlotTable

log = structlog.get_logger()

IDLE_ROUNDS = 10
"""Rounds of questions after the last session wanted the answers: one that watches keys wants them again soon."""

Answered = Callable[[Replication | None], None]


class Connection(Protocol):
    """The part of a :class:`proxy.engine.backend.Backend` that is needed here."""

    def call(self, payload: bytes, callback: Callable[[bytes], None]) -> None:
        """Send a request; ``callback`` gets the reply, or an error."""

    def check_time(self) -> None:
        """Close the connection if a reply takes too long."""

    def reset(self, reason: str) -> None:
        """End the connection; the next request opens another."""

    def close(self, reason: str = ...) -> None:
        """End it for good."""


class Check:
    """Questions to one server, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._asked_at: float | None = None
        self._answered: Answered | None = None

    def ask(self, now: float, answered: Answered) -> bool:
        """Ask, and have ``answered`` called with the server's answer; False while it owes an answer."""
        if self._asked_at is not None:
            return False
        self._asked_at = now
        self._answered = answered
        self.connection.call(QUESTION, self._take)
        return True

    def _take(self, reply: bytes) -> None:
        answered, self._answered, self._asked_at = self._answered, None, None
        if answered is not None:
            answered(read(reply))

    def disregard(self) -> None:
        """Something has happened since the question: its answer does not count."""
        self._answered = None

    def silent_since(self, moment: float) -> bool:
        """Whether it owes an answer to a question put before ``moment``."""
        return self._asked_at is not None and self._asked_at < moment


class Replicas:
    """The replicas of all groups, for one worker.

    Args:
        router: gets where each slot's reads may go.
        settings: the proxy's settings.
        salt: differs between workers, so that they do not all read one slot from one replica.
        connect: makes a connection for questions to a server.
    """

    def __init__(
        self, router: Router, settings: ProxySettings, salt: str, connect: Callable[[str], Connection] | None = None
    ) -> None:
        self._router = router
        self._settings = settings
        self._salt = salt
        self._connect = connect or self._backend
        self._limits = Limits(settings.replica_lag_bytes_max, settings.replica_lag_seconds_max)
        self._table: SlotTable | None = None
        self._groups: dict[int, ReplicaGroup] = {}
        # The group of each slot at rest, if that group has replicas.
        self._homes: dict[int, ReplicaGroup] = {}
        self._checks: dict[str, Check] = {}
        self._fit: set[str] = set()
        self._fenced = False
        self._next_round = 0.0
        self._rounds_left = 0
        # Servers that were replicas and still owe replies.
        self._leaving: set[str] = set()

    @property
    def slots_read(self) -> int:
        """How many slots are read from a replica now by sessions that want it."""
        return sum(group.slots_read for group in self._groups.values())

    @property
    def leaving(self) -> frozenset[str]:
        """Servers that are no longer replicas and still owe replies: connections to them must not be closed yet."""
        return frozenset(self._leaving)

    # -- tables --------------------------------------------------------------------------------------------

    def apply(self, table: SlotTable) -> None:
        """A table is being put in force. When this returns, no slot in motion is read from a replica."""
        old, self._table = self._table, table
        self._let_go(old, table)
        regrouped = self._regroup(table)
        arrived: dict[int, list[int]] = {}
        for index, slot in enumerate(table.slots):
            if regrouped or old is None or slot is not old.slots[index]:
                home = self._homes.get(slot.id)
                # caught-up: only slots at rest.
                group = self._groups.get(slot.group_id) if _at_rest(slot) else None
                if group is home:
                    continue
                if home is not None:
                    home.leave(slot.id)
                    del self._homes[slot.id]
                    self._router.set_replica(slot.id, None)
                if group is not None:
                    self._homes[slot.id] = group
                    arrived.setdefault(group.id, []).append(slot.id)
        for group_id, slots in arrived.items():
            self._groups[group_id].join(slots)
        for group in self._groups.values():
            self._refresh(group)

    def _regroup(self, table: SlotTable) -> bool:
        """Take the groups of a table; say whether slots may have got another group, or another master."""
        changed = False
        for known in list(self._groups.values()):
            group = table.groups.get(known.id)
            if group is None or group.master != known.master or not group.replicas:
                del self._groups[known.id]
                changed = True
        for group in table.groups.values():
            if group.id in self._groups:
                self._groups[group.id].set_replicas(group)
            elif group.replicas:
                self._groups[group.id] = ReplicaGroup(group, self._settings.datacenter, self._limits, self._salt)
                changed = True
        asked = {server for group in self._groups.values() for server in (group.master, *group.replicas)}
        for address in self._checks.keys() - asked:
            self._close(address)
        self._fit &= {replica for group in self._groups.values() for replica in group.replicas}
        return changed

    def _let_go(self, old: SlotTable | None, table: SlotTable) -> None:
        """Note the replicas that have left and owe replies, so that the sessions get those."""
        servers = {server for group in table.groups.values() for server in group.servers}
        replicas = {replica for group in old.groups.values() for replica in group.replicas} if old else set()
        self._leaving = {address for address in (self._leaving | replicas) - servers if self._owes(address)}

    def _owes(self, address: str) -> bool:
        return any(backend.address == address and backend.queued for backend in self._router.shared_backends)

    # -- servers -------------------------------------------------------------------------------------------

    def server_lost(self, address: str) -> None:
        """A connection to a server has ended; a replica may have been restarted, with older data than before."""
        for group in self._groups.values():
            if address in group.replicas:
                if address in self._checks:
                    self._checks[address].disregard()
                self._replica_said(group, address, None)

    def fenced(self) -> None:
        """A server has fenced this proxy off: its table may be out of date, so nothing is read from a replica."""
        self._fenced = True
        self._forget()

    def reset(self, reason: str) -> None:
        """The proxy has a new identity: reconnect, and learn everything again."""
        self._fenced = False
        self._next_round = 0.0
        for check in self._checks.values():
            check.disregard()
            check.connection.reset(reason)
        self._forget()

    def _forget(self) -> None:
        for check in self._checks.values():
            check.disregard()
        for group in self._groups.values():
            group.forget()
            self._refresh(group)
        self._fit.clear()

    # -- questions -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ask the servers that are due, and give up on silent ones; called ten times a second."""
        now = asyncio.get_running_loop().time()
        for check in list(self._checks.values()):
            check.connection.check_time()
        # Some may have just answered with an error.
        for address, check in list(self._checks.items()):
            if address in self._fit and check.silent_since(now - self._settings.replica_check_seconds):
                self.server_lost(address)
        if self._leaving:
            self._close_left()
        if now < self._next_round:
            return
        # So not all workers ask at once.
        self._next_round = now + self._settings.replica_check_seconds * random.uniform(0.9, 1.1)
        if self._settings.replica_reads or any(session.replica_reads for session in self._router.sessions):
            self._rounds_left = IDLE_ROUNDS
        if self._fenced or not self._rounds_left:
            self._stop()
            return
        self._rounds_left -= 1
        for group in list(self._groups.values()):
            self._ask(group, now)

    def _ask(self, group: ReplicaGroup, now: float) -> None:
        """Ask the master, and then its replicas: they are measured by the master's answer."""
        if not self._check(group.master).ask(now, partial(self._master_said, group, group.asking())):
            # It still owes an answer. Its replicas may be fit all the same.
            self._ask_replicas(group)

    def _master_said(self, group: ReplicaGroup, asked: int, said: Replication | None) -> None:
        if self._groups.get(group.id) is group:
            group.master_said(said, asked)
            self._note(group, group.replicas)
            self._refresh(group)
            self._ask_replicas(group)

    def _ask_replicas(self, group: ReplicaGroup) -> None:
        now = asyncio.get_running_loop().time()
        for address in group.replicas:
            self._check(address).ask(now, partial(self._replica_said, group, address))

    def _replica_said(self, group: ReplicaGroup, address: str, said: Replication | None) -> None:
        if self._groups.get(group.id) is group:
            group.replica_said(address, said)
            self._note(group, (address,))
            self._refresh(group)

    def _check(self, address: str) -> Check:
        check = self._checks.get(address)
        if check is None:
            check = self._checks[address] = Check(self._connect(address))
        return check

    def _backend(self, address: str) -> Backend:
        router = self._router
        return Backend(router.loop, address, 0, 2, router.options, self._settings.backend_reply_seconds)

    def _stop(self) -> None:
        """No session wants to read from replicas: ask nothing, and use no earlier answer when one wants to again."""
        for address in list(self._checks):
            self._close(address)
        for group in self._groups.values():
            for address in group.replicas:
                self._replica_said(group, address, None)

    # -- what follows --------------------------------------------------------------------------------------

    def _refresh(self, group: ReplicaGroup) -> None:
        for slot, address in group.refresh():
            self._router.set_replica(slot, address)

    def _note(self, group: ReplicaGroup, addresses: Iterable[str]) -> None:
        """Log that a replica has become fit to be read, or is no longer fit."""
        for address in addresses:
            problem = group.problem(address)
            if problem is None and address not in self._fit:
                self._fit.add(address)
                log.info("replica_fit", server=address, group=group.id)
            elif problem is not None and address in self._fit:
                self._fit.discard(address)
                log.info("replica_unfit", server=address, group=group.id, reason=f"it {problem}")

    def _close(self, address: str) -> None:
        check = self._checks.pop(address)
        check.disregard()
        check.connection.close("is not asked any longer how its replication stands")

    def _close_left(self) -> None:
        done = {address for address in self._leaving if not self._owes(address)}
        if done:
            self._leaving -= done
            self._router.keep_servers({backend.address for backend in self._router.shared_backends} - done)

    def close(self) -> None:
        """The worker ends."""
        for address in list(self._checks):
            self._close(address)


def _at_rest(slot: Slot) -> bool:
    """Whether no step of an action was taken yet. From ``preparing`` on, the slot's keys may be about to leave."""
    return slot.action is None or slot.action.state in AS_AT_REST
