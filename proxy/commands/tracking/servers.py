"""The connections by which the servers tell a worker of every key that changes there: one to each master.

A worker tracks once at each server, with BCAST: a server then remembers nothing by key, and tells each change once to
each worker. Which session has read a key is known in the worker (:mod:`proxy.engine.tracking`). The connections are
there while a session tracks or the worker has values of hot keys, and a little longer.

A worker is *told of everything* while all masters in use have confirmed that they track. When that ends, and when it
begins, all sessions are told to drop everything; in between they are told so every :data:`FLUSH_SECONDS`. So no client
keeps a value for ever that has changed, whatever was lost: a connection, a server, the proxy's right to use it. They
are also told so when a slot has got another master without an action, and when it goes back to its source, which may
have come back with older data meanwhile. A slot that changes hands by its states needs no such word: its target is a
master in use from before the lock, so the worker is told of all that changes there.

**bounded**: a server that cannot be reached is not waited for.
"""

import asyncio

import structlog

from proxy.commands.services import Services
from proxy.commands.tracking.trackedserver import TrackedServer
from proxy.engine.backend import command
from proxy.engine.tracking import TrackedKeys
from slots.slot import Slot
from slots.states import UNTOUCHED, Course
from slots.table import SlotTable

log = structlog.get_logger()

TRACK = command(("CLIENT", "TRACKING", "ON", "BCAST"))
FLUSH_SECONDS = 1.0
IDLE_SECONDS = 10.0
"""How long the connections stay when no session tracks any more."""


class TrackedServers:
    """The connections of one worker.

    Args:
        services: the worker's parts.
        keys: tells the sessions.
    """

    def __init__(self, services: Services, keys: TrackedKeys) -> None:
        self._services = services
        self._keys = keys
        self._open: dict[str, TrackedServer] = {}
        self._wanted = False
        self._wanted_at = 0.0
        self._told_of_everything = False
        self._flushed_at = 0.0
        # One for each session that waits.
        self._waiting: list[asyncio.Future[None]] = []
        self._table: SlotTable | None = None

    async def begin(self) -> str | None:
        """Have all masters track, for a session that is about to; gives why one of them does not want to."""
        self._wanted = True
        self._wanted_at = self._services.now()
        self._follow()
        # Others that wait keep the connections, too, and so does the session from then on.
        while not self._is_settled():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        for address in self._services.masters():
            refused = self._open[address].refused if address in self._open else None
            if refused is not None:
                return f"server {address} says: {refused}"
        return None

    def want(self) -> None:
        """Have all masters track, for the worker's own sake. Called again as long as that is so."""
        self._wanted_at = self._services.now()
        if not self._wanted:
            self._wanted = True
            self._follow()

    @property
    def heard(self) -> float:
        """Until when the worker knows that it was told of everything; 0 if it is not told so now."""
        if not self._told_of_everything:
            return 0.0
        masters = [self._open.get(address) for address in self._services.masters()]
        return min((server.heard if server is not None else 0.0 for server in masters), default=0.0)

    def _is_settled(self) -> bool:
        return all(server.is_settled for server in self._open.values())

    # -- what is told --------------------------------------------------------------------------------------

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        before, self._table = self._table, table
        if not self._wanted:
            return
        self._follow()
        if before is not None and before is not table and _went_elsewhere(before, table):
            self._flush()

    def tick(self) -> None:
        """Check the limits of time; called a few times a second."""
        now = self._services.now()
        if not self._wanted:
            return
        if self._keys.sessions or self._waiting:
            self._wanted_at = now
            if not self._told_of_everything and now - self._flushed_at >= FLUSH_SECONDS:
                self._flush()
        elif now - self._wanted_at > IDLE_SECONDS:
            self.close("is left: nobody tracks any more")
            return
        for server in list(self._open.values()):
            server.tick()

    def close(self, reason: str = "is left: the worker ends") -> None:
        """End all connections."""
        self._wanted = self._told_of_everything = False
        for server in self._open.values():
            server.close(reason)
        self._open.clear()
        self._look()

    # -- the connections -----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Have a connection to every master of the table, also of groups without slots, which may get some."""
        for server in self._open.values():
            server.take_identity()
        masters = set(self._services.every_master())
        for address in self._open.keys() - masters:
            self._open.pop(address).close("is no master in the slot table any more")
        for address in masters - self._open.keys():
            self._open[address] = TrackedServer(self._services, address, TRACK, self._keys.received, self._look)
        self._look()

    def _look(self) -> None:
        """See whether the worker is told of everything."""
        masters = self._services.masters()
        told = bool(masters) and all(address in self._open and self._open[address].tells for address in masters)
        if told != self._told_of_everything:
            self._told_of_everything = told
            log.info("told_of_every_change" if told else "not_told_of_every_change", sessions=self._keys.sessions)
            self._flush()
        if self._waiting and self._is_settled():
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _flush(self) -> None:
        self._flushed_at = self._services.now()
        self._keys.flush()


def _went_elsewhere(before: SlotTable, table: SlotTable) -> bool:
    """Whether a slot or a group has got another master without an action by which the worker knew that it would, or a
    slot the one that it had before."""
    return any(
        old is not new and _owner(new) not in _owners_from_now_on(old)
        for old, new in zip(before.slots, table.slots, strict=True)
    ) or any(before.master_of(number) != table.master_of(number) for number in before.groups.keys() & table.groups)


def _owners_from_now_on(slot: Slot) -> tuple[int, ...]:
    """The group that the slot's requests go to, and the one to which its action sends them for the first time."""
    if slot.action is None or slot.action.course is Course.BACK:
        return (_owner(slot),)
    return _owner(slot), slot.action.target_id


def _owner(slot: Slot) -> int:
    """The group that the slot's requests go to."""
    return slot.group_id if slot.action is None or slot.action.state in UNTOUCHED else slot.action.target_id
