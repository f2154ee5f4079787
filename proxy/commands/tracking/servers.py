"""The connections by which the servers tell a worker of every key that changes there: one to each master.

A worker tracks once at each server, with BCAST: a server then remembers nothing by key, and tells each change once to
each worker. Which session has read a key is known in the worker (:mod:`proxy.engine.tracking`). The connections are
there while a session tracks, and a little longer.

A worker is *told of everything* while all masters in use have confirmed that they track. When that ends, and when it
begins, all sessions are told to drop everything; in between they are told so every :data:`FLUSH_SECONDS`. So no client
keeps a value for ever that has changed, whatever was lost: a connection, a server, the proxy's right to use it. They
are also told so when a slot has got another master without an action. A slot that changes hands by its states needs no
such word: its target is a master in use from before the lock, so the worker is told of all that changes there.

**bounded**: a server that cannot be reached is not waited for. The loss of a silent connection shows within two
``backend_reply_seconds``.
"""

import asyncio
from collections.abc import Callable

import structlog

from proxy.commands.services import Services
from proxy.engine.backend import Backend, command
from proxy.engine.tracking import TrackedKeys
from slots.states import UNTOUCHED
from slots.table import Slot, SlotTable

log = structlog.get_logger()

TRACK = command(("CLIENT", "TRACKING", "ON", "BCAST"))
PING = command(("PING",))
FLUSH_SECONDS = 1.0
AGAIN_SECONDS = 1.0
"""How often a server is asked again that has refused."""
IDLE_SECONDS = 10.0
"""How long the connections stay when no session tracks any more."""


class TrackedServer:
    """The connection to one master.

    Args:
        services: the worker's parts.
        address: of the master.
        received: gets every push.
        changed: called when one of the attributes may have changed.
    """

    def __init__(
        self, services: Services, address: str, received: Callable[[bytes], None], changed: Callable[[], None]
    ) -> None:
        self.address = address
        self.tells = False
        """The server has confirmed that it tracks, and the connection is up."""
        self.is_settled = False
        """It tells, or the latest attempt has failed."""
        self.refused: str | None = None
        """What it said when it refused."""
        self._services = services
        self._received = received
        self._changed = changed
        self._quiet_seconds = services.settings.backend_reply_seconds
        self._heard = self._again_at = 0.0
        router = services.router
        self._backend = backend = Backend(router.loop, address, 0, 3, services.options, self._quiet_seconds)
        backend.on_ready = self._ask
        backend.on_down = self._lost
        backend.on_push = self._pushed
        backend.open()

    def _ask(self) -> None:
        self._again_at = self._services.now() + AGAIN_SECONDS
        self._backend.call(TRACK, self._answered)

    def _answered(self, reply: bytes) -> None:
        if not self._backend.is_ready:
            return  # the connection was lost: see _lost
        self._heard = self._services.now()
        self.is_settled = True
        self.tells = not reply.startswith(b"-")
        refused = None if self.tells else reply[1:].decode(errors="replace").strip()
        if refused is not None and refused != self.refused:
            log.warning("tracking_refused", server=self.address, reason=refused)
        self.refused = refused
        self._changed()

    def _lost(self, reason: str) -> None:
        self.tells = False
        self.is_settled = True
        self._changed()

    def _pushed(self, push: bytes) -> None:
        self._heard = self._services.now()
        self._received(push)

    def _pinged(self, reply: bytes) -> None:
        self._heard = self._services.now()

    def tick(self) -> None:
        """Check the limits of time; called a few times a second."""
        backend, now = self._backend, self._services.now()
        backend.check_time()
        if not backend.is_ready:
            backend.open()
        elif backend.queued:
            return
        elif not self.tells:
            if now >= self._again_at:
                self._ask()
        elif now - self._heard > self._quiet_seconds:
            # If the other end has gone without a word, the missing reply shows it.
            backend.call(PING, self._pinged)

    def reset(self, reason: str) -> None:
        """End the connection, and reconnect."""
        self._backend.reset(reason)

    def close(self, reason: str) -> None:
        """End the connection."""
        self._backend.on_down = None
        self._backend.close(reason)


class TrackedServers:
    """The connections of one worker.

    Args:
        services: the worker's parts.
        keys: tells the sessions.
    """

    def __init__(self, services: Services, keys: TrackedKeys) -> None:
        self._services = services
        self._keys = keys
        self._instance = services.options.instance
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
            self.close("is left: no client tracks any more")
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
        instance = self._services.options.instance
        if instance != self._instance:
            self._instance = instance
            for server in self._open.values():
                server.reset("was left: this proxy takes a new identity")
        masters = set(self._services.every_master())
        for address in self._open.keys() - masters:
            self._open.pop(address).close("is no master in the slot table any more")
        for address in masters - self._open.keys():
            self._open[address] = TrackedServer(self._services, address, self._keys.received, self._look)
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
    """Whether a slot or a group has got another master without an action by which the worker knew that it would."""
    return any(
        old is not new and _owner(new) not in (old.group_id, old.action.target_id if old.action is not None else None)
        for old, new in zip(before.slots, table.slots, strict=True)
    ) or any(before.master_of(number) != table.master_of(number) for number in before.groups.keys() & table.groups)


def _owner(slot: Slot) -> int:
    """The group that the slot's requests go to."""
    return slot.group_id if slot.action is None or slot.action.state in UNTOUCHED else slot.action.target_id
