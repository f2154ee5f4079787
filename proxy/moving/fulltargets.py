"""Reads and deletes of keys at the source while a target takes no keys, because it is at its maxmemory.

Such a request no longer waits for moves. It runs here in parts, one for each slot, at the server that has the slot's
keys. A key goes to the target only as before, once it is known to be absent from the source (**absent-first**).

**Reads** run at the source like reads of a key that goes in pieces (:mod:`proxy.moving.sourcereads`). MGET, EXISTS and
TOUCH may find some keys there and others gone. Then the gone keys are read at the target first. After that the others
are read at the source, which must still have all of them. A write needs its keys at the target. So a key that the
source still has was unchanged when the target was read, and both replies are of that moment.

**Deletes** remove keys at the source, in one step that also checks the permit and the claims there
(:data:`slots.moving.DELETE`). So no step of an earlier attempt can have a later effect (**one-way**), and no mover has
a copy in hand. A DEL or UNLINK of a key that goes in pieces therefore does not wait for the move, whether the target is
full or not. Before that, the target says which of the keys it has. By the same permit, no key can come there without a
claim. So the deleted key at the source was the only one, and nothing that is written at the target later is touched.
Keys that had left the source are deleted at the target, as always. If both have a key, a copy is left from an
interrupted attempt, and nothing is deleted.

**run-id**: a target that comes back in between may have the key as it was at an earlier time. So the target is asked
once more when the source has deleted keys, and the client gets an error unless the process that the permit names has
answered both times. That process lacked the keys when they were deleted at the source.

**drained**: the slots count as in use until the client is answered. Every other request gets the error of the move.
**bounded**: by the number of keys, by the limits of the connections, and for deletes by ``big_key_seconds``.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import hiredis
import structlog

from proxy.engine.backend import command
from proxy.engine.router import MIGRATING, OPEN, Router
from proxy.engine.session import Session
from proxy.moving.move import Origin, Sleeper
from proxy.moving.permits import Permits
from proxy.moving.sourcereads import SourceReads, read_keys
from proxy.settings import ProxySettings
from slots.moving import DELETE, LOOK_AT_TARGET
from slots.permits import processes_of
from slots.reserved import STATE
from slots.scripts import CLAIMED, COPIED, NOT_PERMITTED

log = structlog.get_logger()

DELETES = frozenset({b"DEL", b"UNLINK"})
DIVISIBLE = frozenset({b"MGET", b"EXISTS", b"TOUCH"})
"""Reads whose reply can be made from the replies for their single keys."""
WITHOUT_PERMIT, ON_ITS_WAY, HAS_COPY = REFUSED = tuple(f"-{why}".encode() for why in (NOT_PERMITTED, CLAIMED, COPIED))
"""Answers of the source's step that mean that nothing was deleted."""
MOST_KEYS = 1000
"""The most keys of a request that runs here."""
READ_TRIES = 5
"""How many times a read starts again because keys leave the source meanwhile."""
FIRST_WAIT, MOST_WAIT = 0.01, 0.1
"""Seconds between two tries."""


@dataclass(eq=False, slots=True)
class _Part:
    """The keys of one slot and their results: ``deleted`` counts so far; :attr:`keys` are still to be deleted.

    ``touched``: whether any may have been deleted.
    """

    slot: int
    keys: list[bytes]
    deleted: int = 0
    touched: bool = False


@dataclass(eq=False, slots=True)
class _Request:
    """The request of a waiting session. ``error`` is its answer if it cannot run here.

    ``waits``: whether a delete waits for obstacles, as it would wait for the move of a big key; else it is refused.
    """

    session: Session
    name: bytes
    keys: list[bytes]
    payload: bytes
    error: bytes
    waits: bool
    parts: list[_Part] = field(default_factory=list)

    @property
    def touched(self) -> bool:
        """Whether any key may have been deleted."""
        return any(part.touched for part in self.parts)

    def failed(self, error: bytes) -> bytes:
        """The client's error. It says that nothing was run only where that is true."""
        return error.replace(b"nothing was run", b"some keys may be deleted") if self.touched else error

    def is_left(self) -> bool:
        """Whether its client left before anything was deleted: then nothing is deleted
        (:mod:`proxy.engine.session`)."""
        return not self.touched and self.session.has_left()


class FullTargets:
    """Runs the reads and deletes of one worker's sessions whose keys a target does not take.

    Args:
        router: gives the slot of a key, and the state of the slot.
        permits: the permits for moving and deleting keys.
        reads: the reads at sources.
        settings: limits.
        origin: gives where the keys of a migrating slot come from.
        start: runs a coroutine in the background.
    """

    def __init__(
        self,
        router: Router,
        permits: Permits,
        reads: SourceReads,
        settings: ProxySettings,
        origin: Callable[[int], Origin | None],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._router = router
        self._permits = permits
        self._reads = reads
        self._settings = settings
        self._origin = origin
        self._start = start

    def deletes(self, sleeper: Sleeper) -> bool:
        """Whether this session waits for a delete that may run here."""
        request = self._request(sleeper, b"", False)
        return request is not None and request.name in DELETES

    def begin(self, sleeper: Sleeper, error: bytes, waits: bool = False) -> bool:
        """Run the request of a session that waits for nothing else; false if it cannot run here.

        Args:
            error: the answer if it cannot.
            waits: whether a delete waits for obstacles.
        """
        request = self._request(sleeper, error, waits)
        if request is None:
            return False
        if any(self._router.route(part.slot)[0] not in (OPEN, MIGRATING) for part in request.parts):
            # It waits for a lock, or is refused.
            request.session.wake()
            return True
        for part in request.parts:
            self._router.loop.hold_slot(part.slot)
        self._start(self._run(request))
        return True

    def _request(self, sleeper: Sleeper, error: bytes, waits: bool) -> _Request | None:
        """The request at the front of a waiting session, if it reads or deletes keys that it names."""
        session = sleeper.session
        front = session.front() if session is not None else None
        if session is None or front is None:
            return None
        argv, payload = front
        name = argv[0].upper()
        keys = argv[1 : MOST_KEYS + 2] if name in DELETES else read_keys(argv)
        if not keys or len(keys) > MOST_KEYS:
            return None
        parts: dict[int, list[bytes]] = {}
        for key in dict.fromkeys(keys) if name in DELETES else keys:
            parts.setdefault(self._router.slot_of_key(session.database, key), []).append(key)
        if len(parts) > 1 and name not in DELETES | DIVISIBLE:
            return None
        made = [_Part(*part) for part in parts.items()]
        return _Request(session, name, keys, payload, error, waits, made)

    async def _run(self, request: _Request) -> None:
        session, before = request.session, request.session.stage
        reply: bytes | None = None
        over = False
        try:
            parts = (self._run_part(request, part) for part in request.parts)
            # drained: while any part runs, the slots of all parts are in use.
            replies: list[bytes | None] = []
            for outcome in await asyncio.gather(*parts, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                replies.append(outcome)
            reply = self._joined(request, replies)
            over = True
        except Exception:
            log.exception("request_not_run_at_source", command=request.name.decode(errors="replace"))
        finally:
            if not over:
                reply = request.failed(request.error)
            for part in request.parts:
                self._router.loop.release_slot(part.slot)
            if session.stage == before:
                if reply is None:
                    session.wake()
                else:
                    session.complete(reply)

    async def _run_part(self, request: _Request, part: _Part) -> bytes | None:
        """The reply of one part. None if the slot is neither at rest nor migrating, so that all is looked at again."""
        # A claimed key counts as one that goes in pieces.
        deadline = time.monotonic() + self._settings.big_key_seconds
        wait = FIRST_WAIT
        for tries in range(1, 1_000_000):
            if request.is_left():
                break
            state, address, _ = self._router.route(part.slot)
            origin = self._origin(part.slot)
            if state == OPEN and address is not None:
                return await self._at(address, request, part, part.keys)
            if state != MIGRATING or address is None or origin is None:
                return None
            if request.name in DELETES:
                reply = await self._delete(request, part, origin, address, deadline)
            else:
                reply = await self._read(request, part, origin, address)
            if reply is not None:
                return reply
            if time.monotonic() + wait > deadline or (request.name not in DELETES and tries == READ_TRIES):
                break
            await asyncio.sleep(wait)
            wait = min(MOST_WAIT, wait * 2)
        return request.error

    async def _at(self, address: str, request: _Request, part: _Part, keys: list[bytes]) -> bytes:
        """The reply of the server that has these keys, if any has."""
        part.touched = part.touched or request.name in DELETES
        payload = request.payload if keys == request.keys else command((request.name, *keys))
        reply = await self._router.shared(request.session, address).ask(payload)
        if reply.startswith(b":") and request.name in DELETES:
            return b":%d\r\n" % (part.deleted + int(reply[1:]))
        return reply

    def _is_current(self, part: _Part, origin: Origin, target: str) -> bool:
        """by-action: whether the knowledge about the source still holds."""
        state, address, _ = self._router.route(part.slot)
        return (state, address, self._origin(part.slot)) == (MIGRATING, target, origin)

    # -- reads ---------------------------------------------------------------------------------------------

    async def _read(self, request: _Request, part: _Part, origin: Origin, target: str) -> bytes | None:
        keys = part.keys
        payload = request.payload if keys == request.keys else command((request.name, *keys))
        seen = await self._reads.read(request.session, origin, keys, payload)
        if seen is None or not self._is_current(part, origin, target):
            return None
        there, reply = seen
        if all(there):
            return reply
        if not any(there):
            return await self._at(target, request, part, keys)
        if request.name not in DIVISIBLE:
            return request.error
        gone = await self._at(target, request, part, [key for key, here in zip(keys, there, strict=True) if not here])
        if gone.startswith(b"-"):
            return gone
        rest = [key for key, here in zip(keys, there, strict=True) if here]
        seen = await self._reads.read(request.session, origin, rest, command((request.name, *rest)))
        if seen is None or not all(seen[0]) or not self._is_current(part, origin, target):
            return None
        if seen[1].startswith(b"-"):
            return seen[1]
        return _merged(there, seen[1], gone, request.session.protocol)

    # -- deletes -------------------------------------------------------------------------------------------

    async def _delete(
        self, request: _Request, part: _Part, origin: Origin, target: str, deadline: float
    ) -> bytes | None:
        """Delete the remaining keys of a part; None to try again."""
        session = request.session
        permit = self._permits.get(origin.address, target)
        at_source, at_target = processes_of(permit)
        if permit and origin.beginning.keeps_target(at_source, at_target):
            # The source's copies may be old ones, so the target decides whether a key exists.
            return None if request.waits else request.error
        look = await self._look_at_target(session, target, at_target, part.keys)
        if look.startswith(WITHOUT_PERMIT):
            return await self._renew(request, origin, target, deadline)
        copies = _numbers(look, len(part.keys))
        if copies is None:
            return look if look.startswith(b"-") else request.error
        if not self._is_current(part, origin, target):
            return None
        if request.is_left():
            return request.error
        part.touched = True
        script = command(
            ("EVAL", DELETE.text, 1 + len(part.keys), STATE, *part.keys, permit, session.database, *copies)
        )
        reply = await self._reads.backend(origin.address, session.database).ask(script)
        if reply.startswith(REFUSED):
            # The client left before anything was deleted.
            part.touched = part.deleted > 0
        if reply.startswith(WITHOUT_PERMIT):
            return await self._renew(request, origin, target, deadline)
        if reply.startswith(ON_ITS_WAY):
            return None
        if reply.startswith(HAS_COPY):
            return None if request.waits else request.error
        there = _numbers(reply, len(part.keys))
        if there is None:
            return reply if reply.startswith(b"-") else request.error
        if any(there) and _numbers(await self._look_at_target(session, target, at_target, []), 0) is None:
            # run-id: another process may have brought back what was deleted.
            return request.error
        part.deleted += sum(there)
        part.keys = [key for key, here in zip(part.keys, there, strict=True) if not here]
        if not part.keys:
            return b":%d\r\n" % part.deleted
        # absent-first: the keys are not at the source, as it has just said.
        return await self._at(target, request, part, part.keys) if self._is_current(part, origin, target) else None

    async def _look_at_target(self, session: Session, target: str, run_id: str, keys: list[bytes]) -> bytes:
        """Which keys a target has; an error if it is not this process."""
        script = command(("EVAL", LOOK_AT_TARGET.text, len(keys), *keys, run_id))
        reply: bytes = await self._router.shared(session, target).ask(script)
        return reply

    async def _renew(self, request: _Request, origin: Origin, target: str, deadline: float) -> bytes | None:
        """Get a permit that holds; None to try again."""
        try:
            # bounded: a renewal waits for flushes; other requests go on meanwhile.
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return None if await self._permits.renew(origin.address, target) is None else request.error
        except TimeoutError:
            return request.error

    # -- replies -------------------------------------------------------------------------------------------

    def _joined(self, request: _Request, replies: list[bytes | None]) -> bytes | None:
        """One reply made of the parts' replies; None if the request has to be looked at again."""
        said = [reply for reply in replies if reply is not None]
        failed = next((reply for reply in said if reply.startswith(b"-")), None)
        if failed is None and len(said) < len(replies):
            if not request.touched:
                return None
            failed = request.error
        if failed is not None:
            return request.failed(failed)
        if len(said) == 1:
            return said[0]
        if request.name != b"MGET":
            return b":%d\r\n" % sum(int(reply[1:]) for reply in said)
        values: dict[int, list[bytes]] = {}
        for part, reply in zip(request.parts, said, strict=True):
            values[part.slot] = _elements(reply, request.session.protocol)[::-1]
        return _array([values[self._router.slot_of_key(request.session.database, key)].pop() for key in request.keys])


def _merged(there: list[int], at_source: bytes, at_target: bytes, protocol: int) -> bytes:
    """One reply made of two: ``there`` marks the keys that the source has."""
    if at_source.startswith(b":"):
        return b":%d\r\n" % (int(at_source[1:]) + int(at_target[1:]))
    values = {1: _elements(at_source, protocol)[::-1], 0: _elements(at_target, protocol)[::-1]}
    return _array([values[here].pop() for here in there])


def _elements(reply: bytes, protocol: int) -> list[bytes]:
    """The single replies within an MGET's reply."""
    found = _parsed(reply)
    assert isinstance(found, list), "MGET is answered with an array"
    nothing = b"_\r\n" if protocol == 3 else b"$-1\r\n"
    return [nothing if value is None else b"$%d\r\n%b\r\n" % (len(value), value) for value in found]


def _array(items: list[bytes]) -> bytes:
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def _numbers(reply: bytes, count: int) -> list[int] | None:
    found = _parsed(reply)
    if isinstance(found, list) and len(found) == count and all(type(number) is int for number in found):
        return found
    return None


def _parsed(reply: bytes) -> Any:
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()
