"""The keys that clients of a worker wait for over several slots: when a key may hold something, and whose turn it is.

The owner of a key tells the worker when it changes, by CLIENT TRACKING for this key alone: the worker reads the key
once over its connection there, and hears of the next change. Then it reads it again. Each time the read has been
confirmed, the key *may hold* something, and the client that has waited longest looks. Whatever comes after the read is
told. So what a look has missed brings another look.

A key is read again, and looked at, too, when its slot has been locked or has another server, when a connection was lost
by which its server tells, and when slot rules change. A server tells names without their databases, which may cost a
look in vain.

Clients that read streams take nothing. All of them look at a key that may hold something, once each, and at no other
key: where nothing was told, there is nothing.

**bounded**: by :data:`MOST_TOGETHER`. A server that remembers more than its ``tracking-table-max-keys`` tells of a
change that was none.
"""

from collections.abc import Iterable
from functools import partial

import hiredis

from proxy.commands import replies
from proxy.commands.blocking.keywait import KeyWait, WaitedKey
from proxy.commands.blocking.waiter import Waiter
from proxy.commands.services import Services
from proxy.commands.tracking.trackedserver import TrackedServer
from proxy.engine.backend import command
from proxy.engine.router import MIGRATING, OPEN
from proxy.engine.session import Session
from slots.table import SlotTable

TRACK = command(("CLIENT", "TRACKING", "ON"))
MOST_TOGETHER = 100_000
"""The most keys that all clients of a worker wait for over several slots; a key counts once for each client."""
FULL = replies.error(
    f"ERR max number of keys that clients of a worker wait for over several slots reached: {MOST_TOGETHER}"
)
IDLE_SECONDS = 10.0
"""How long the connections stay when no client waits any more."""
NOT_ALLOWED = b"-NOPERM "
NOT_NOW = (b"-BUSY ", b"-LOADING ", b"-MASTERDOWN ", b"-MISCONF ", b"-NOREPLICAS ", b"-READONLY ")
"""Errors by which a server says that it has run nothing, and may later. As in Redis, who waits goes on waiting."""
COMMAND = "a command that waits"


class FullError(Exception):
    """There is no room for more keys."""


class WaitedKeys:
    """All of one worker.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._keys: dict[tuple[int, bytes, bytes], WaitedKey] = {}
        self._by_name: dict[bytes, list[WaitedKey]] = {}
        self._by_slot: dict[int, set[WaitedKey]] = {}
        self._changes: dict[int, int] = {}
        self._ruling = 0
        # Those that cannot be asked for until their slot or their server's connection changes.
        self._later: set[WaitedKey] = set()
        # Those that are looked at again in the next tick.
        self._soon: set[WaitedKey] = set()
        self._servers: dict[str, TrackedServer] = {}
        self._used_at = 0.0
        self._places = 0

    # -- clients that wait ---------------------------------------------------------------------------------

    def is_waited_for(self, database: int, kind: bytes, name: bytes) -> bool:
        """Whether clients wait for this key."""
        return (database, kind, name) in self._keys

    def add(self, waiter: Waiter, kind: bytes, names: list[bytes]) -> KeyWait:
        """A client begins to wait. Call :meth:`remove` in the end.

        Raises:
            FullError: there is no room.
        """
        if self._places + len(names) > MOST_TOGETHER:
            raise FullError
        if not self._keys:
            self._ruling = self._router.ruling
        wait = KeyWait(waiter)
        self._places += len(names)
        for name in names:
            place = waiter.session.database, kind, name
            key = self._keys.get(place)
            if key is None:
                key = self._keys[place] = WaitedKey(*place, self._router.slot_of_key(place[0], name))
                self._by_name.setdefault(name, []).append(key)
                self._place(key)
            key.waits[wait] = None
            wait.keys.append(key)
        for key in wait.keys:
            if len(key.waits) == 1:
                self._look(key)
            elif key.is_read and key.told_by is not None:
                # What came since the client has read may have been told before it began to wait.
                wait.changed[key] = None
            else:
                self._serve(key)
        return wait

    def remove(self, wait: KeyWait) -> None:
        """A client waits no more."""
        self._places -= len(wait.keys)
        for key in wait.keys:
            del key.waits[wait]
            if not key.waits:
                self._forget(key)
        self.release(wait)

    def has_looked(self, wait: KeyWait) -> None:
        """The client whose turn it was has an answer from the key's server. If that changed the key, it will be
        told."""
        key = wait.turn
        if key is not None and key.looks == wait.looks:
            key.may_hold = False
        self.release(wait)

    def has_to_look_later(self, wait: KeyWait) -> None:
        """The client whose turn it was cannot look now."""
        key = wait.turn
        if key is not None:
            key.taker = wait.turn = None
            self._soon.add(key)
            self._serve_all(other for other in wait.keys if other is not key)

    def has_to_read_later(self, key: WaitedKey) -> None:
        """A client cannot read a key now."""
        key.may_hold = True
        self._soon.add(key)

    def can_be_asked(self, session: Session, key: WaitedKey) -> bool:
        """Whether a key's server can be asked at once."""
        address = self.owner(key)
        backend = None if address is None else self._router.shared(session, address)
        return backend is not None and backend.open() and backend.is_ready

    def release(self, wait: KeyWait) -> None:
        """End a client's turn, if it is its turn."""
        key = wait.turn
        if key is not None:
            key.taker = wait.turn = None
            self._serve(key)
            self._serve_all(wait.keys)

    def owner(self, key: WaitedKey) -> str | None:
        """The server where a key's commands run; None if they have to wait."""
        state, address, _ = self._router.route(key.slot)
        return address if state in (OPEN, MIGRATING) else None

    def _serve_all(self, keys: Iterable[WaitedKey]) -> None:
        for key in keys:
            if key.may_hold:
                self._serve(key)

    def _serve(self, key: WaitedKey) -> None:
        """Have the client that has waited longest look, at the first of its keys that may hold something; or all
        clients, if they only read it."""
        if key.is_read and self._is_open(key):
            key.may_hold = False
            for reader in key.waits:
                reader.changed[key] = None
                reader.wake()
        while self._is_open(key):
            wait = next((one for one in key.waits if one.turn is None and not one.waiter.stopped), None)
            if wait is None:
                return
            turn = next(other for other in wait.keys if self._is_open(other))
            turn.taker, wait.turn, wait.looks = wait, turn, turn.looks
            wait.wake()

    def _is_open(self, key: WaitedKey) -> bool:
        return key.may_hold and key.taker is None and key not in self._soon and self.owner(key) is not None

    # -- keys ----------------------------------------------------------------------------------------------

    def _place(self, key: WaitedKey) -> None:
        self._by_slot.setdefault(key.slot, set()).add(key)
        # A change that the slot's other keys have not followed yet counts for this one, too.
        self._changes.setdefault(key.slot, self._router.changes(key.slot))

    def _leave_place(self, key: WaitedKey) -> None:
        same = self._by_slot[key.slot]
        same.discard(key)
        if not same:
            del self._by_slot[key.slot], self._changes[key.slot]

    def _forget(self, key: WaitedKey) -> None:
        del self._keys[key.database, key.kind, key.name]
        self._later.discard(key)
        self._soon.discard(key)
        self._leave_place(key)
        same = self._by_name[key.name]
        same.remove(key)
        if not same:
            del self._by_name[key.name]

    def _look(self, key: WaitedKey) -> None:
        """Have a key's owner tell of its next change, if it does not."""
        self._later.discard(key)
        self._soon.discard(key)
        if not key.waits:
            return
        address = self.owner(key)
        server = self._server(address) if address is not None else None
        if address is not None and key.told_by == address:
            self._serve(key)
        elif server is not None and server.refused is not None:
            reason = f"server {address} says: {server.refused}"
            self._fail(key, replies.refused_over_slots(COMMAND, reason))
        elif address is None or server is None or not server.tells:
            self._later.add(key)
        else:
            key.asked += 1
            server.ask(command((b"EXISTS", key.name)), partial(self._answered, key, address, key.asked))

    def _answered(self, key: WaitedKey, address: str, number: int, reply: bytes) -> None:
        if number != key.asked or not key.waits:
            return
        if reply.startswith(b":"):
            key.told_by = address
            key.looks += 1
            key.may_hold = not self._is_absent(key, reply)
            self._serve(key)
        elif reply.startswith(NOT_ALLOWED):
            self._fail(key, reply)
        else:
            self._soon.add(key)

    def _is_absent(self, key: WaitedKey, reply: bytes) -> bool:
        """Whether a reply to EXISTS in database 0 shows that a key holds nothing, wherever its slot has been."""
        return reply == b":0\r\n" and key.database == 0 and self._router.route(key.slot)[0] == OPEN

    def refuse_all(self, reason: str) -> None:
        """End all waits with an error."""
        for key in self._keys.values():
            self._fail(key, replies.refused_over_slots(COMMAND, reason))

    def _fail(self, key: WaitedKey, error: bytes) -> None:
        for wait in key.waits:
            wait.failed = error
            wait.wake()
        # A client may begin to wait for it before those have left.
        self._soon.add(key)

    def _again(self, key: WaitedKey) -> None:
        """What was said of a key's changes does not hold any more."""
        key.told_by = None
        key.asked += 1
        self._look(key)

    # -- what is told --------------------------------------------------------------------------------------

    def _told(self, address: str, push: bytes) -> None:
        reader = hiredis.Reader()
        reader.feed(push)
        said = reader.gets()
        if not isinstance(said, list) or len(said) != 2 or said[0] != b"invalidate":
            return
        # Without names, all keys may have changed.
        names = self._by_name if said[1] is None else said[1]
        for key in [key for name in names for key in self._by_name.get(name, ())]:
            if key.told_by == address:
                self._again(key)

    def _server_changed(self, address: str) -> None:
        server = self._servers.get(address)
        if server is None:
            return
        if not server.tells:
            for key in list(self._keys.values()):
                if key.told_by == address:
                    self._again(key)
        for key in list(self._later):
            self._look(key)

    def _server(self, address: str) -> TrackedServer:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = TrackedServer(
                self._services,
                address,
                TRACK,
                partial(self._told, address),
                partial(self._server_changed, address),
            )
        return server

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""
        for server in self._servers.values():
            server.take_identity()
        self._follow()
        for address in self._servers.keys() - set(self._services.every_master()):
            self._servers.pop(address).close("is no master in the slot table any more")

    def tick(self) -> None:
        """Called ten times a second."""
        now = self._services.now()
        if self._keys:
            self._used_at = now
            self._follow()
        elif self._servers and now - self._used_at > IDLE_SECONDS:
            self.close("is left: no client waits over slots any more")
        for server in list(self._servers.values()):
            server.tick()

    def close(self, reason: str = "is left: the worker ends") -> None:
        """End all connections."""
        servers = list(self._servers.values())
        self._servers.clear()
        for server in servers:
            server.close(reason)

    def _follow(self) -> None:
        """Look at the keys whose slots have changed, and at those that had to wait."""
        if self._router.ruling != self._ruling:
            self._ruling = self._router.ruling
            for key in self._keys.values():
                slot = self._router.slot_of_key(key.database, key.name)
                if slot != key.slot:
                    self._leave_place(key)
                    key.slot = slot
                    self._place(key)
                    key.told_by = None
                    self._soon.add(key)
        for slot, keys in list(self._by_slot.items()):
            changes = self._router.changes(slot)
            if changes != self._changes[slot]:
                self._changes[slot] = changes
                for key in list(keys):
                    self._again(key)
        for key in list(self._soon):
            self._look(key)
