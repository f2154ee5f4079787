"""Faults that are planted on purpose: one invariant each, switched off in the processes that uphold it.

They show that the harness finds what it looks for. Nothing in Slotferry knows of them: a launcher replaces a function
before the process runs.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from slots.moving import DROP, PLACE, TAKE
from slots.scripts import Script
from slots.states import SlotState
from tests.histories.steps import DROP_UNCLAIMED, PLACE_ANYHOW, TAKE_CLAIMED

Plant = Callable[[], None]
SLOWLY_SECONDS = 0.2


def drained() -> None:
    """topom does not wait for the proxies before it hands slots on."""
    from topom.proxies.barrier import Barrier

    async def reach(self: Barrier, epoch: int, servers: Collection[str], seconds: float, stop_at_refusal: bool) -> None:
        return

    Barrier.reach = reach  # type: ignore[method-assign]


def absent_first() -> None:
    """Workers take every key for absent from the source."""
    from proxy.moving.migrating import KeyMover

    def need(
        self: KeyMover,
        session: Any,
        database: int,
        missing: Sequence[tuple[int, bytes]],
        deadline: float | None = None,
        asks: bool = False,
    ) -> None:
        for slot, key in missing:
            _, _, migration = self._router.route(slot)
            self._router.absent.remember(migration, database, key)
        asyncio.get_running_loop().call_soon(session.wake, self._router.generation)

    KeyMover.need = need  # type: ignore[method-assign]


def one_way() -> None:
    """The first proxy goes on sending to the source while slots migrate."""
    from proxy.engine.router import OPEN
    from proxy.worker import routing

    def route_of(table: Any, slot: Any, *others: Any) -> routing.Route:
        if slot.action is not None and slot.action.state is SlotState.MIGRATING:
            return routing.Route(OPEN, table.master_of(slot.group_id))
        return original(table, slot, *others)

    original = routing.route_of
    routing.route_of = route_of


def fencing() -> None:
    """topom takes a lost proxy for fenced without having fenced it, and does not look who uses a server that is about
    to lose or get slots: it would find that proxy there."""
    from slots import connections
    from topom.proxies.strangers import Strangers

    async def reason(self: Strangers, server: str) -> None:
        return

    Strangers.reason = reason  # type: ignore[method-assign]

    async def fence(client: Any, instances: Collection[str], by: str = "") -> str:
        return str((await client.info("server"))["run_id"])

    connections.fence = fence


def complete() -> None:
    """The migrator says that all keys have moved without having looked."""
    from topom.migration.mover import RedisMover

    async def move(self: RedisMover, *arguments: Any) -> None:
        return

    RedisMover.move = move  # type: ignore[method-assign]


def known_servers() -> None:
    """Workers believe every process that has no mark of a fence, even one that was started after the fence."""
    from proxy.servers.knownservers import KnownServers

    def knows(self: KnownServers, server: str, process: str) -> bool:
        return True

    KnownServers.knows = knows  # type: ignore[method-assign]


def final_fence() -> None:
    """Workers that saw a fence connect again, whatever they are granted, and believe every process that has no mark."""
    from proxy.servers.allowances import Allowances

    known_servers()
    Allowances.ended = property(lambda self: False, lambda self, ended: None)  # type: ignore[assignment,method-assign]


def by_action() -> None:
    """What a worker has learned about keys holds for a route, for all identities and actions.

    A worker that stands down would forget it, too. So **final-fence** is switched off as well.
    """
    from proxy.worker import routing

    final_fence()

    def forget(self: routing.Routing, groups: Collection[int] = ()) -> None:
        return

    def route_of(*arguments: Any) -> routing.Route:
        return replace(original(*arguments), epoch=0)

    original = routing.route_of
    routing.route_of = route_of
    routing.Routing.forget = forget  # type: ignore[method-assign]
    routing.Routing.stand_down = forget  # type: ignore[method-assign]


def run_id() -> None:
    """No process knows that a server has restarted since the action began."""
    from slots.beginning import Beginning

    def keeps_target(self: Beginning, source: str, target: str) -> bool:
        return self.back

    Beginning.keeps_target = keeps_target  # type: ignore[method-assign]


def _replace(script: Script, changed: Script) -> None:
    script.text, script.digest = changed.text, changed.digest


def _changed(script: Script, part: str, by: str) -> Script:
    assert part in script.text
    return Script(script.text.replace(part, by))


def permit() -> None:
    """Targets place every key, with an old permit or without one."""
    _replace(PLACE, PLACE_ANYHOW)


def claims() -> None:
    """Movers take what others have claimed."""
    _replace(TAKE, TAKE_CLAIMED)


def drop_unclaimed() -> None:
    """Movers delete keys at the source although they have lost their claim on them."""
    _replace(DROP, DROP_UNCLAIMED)


def renewed_late() -> None:
    """A mover that renews the permit begins with the source, and changes the target a while later."""
    from slots import permits

    async def set_(server: Any, field: str, before: str, after: str, run_id: str, anew: bool) -> bytes:
        if field == "accepts":
            renewal[after] = server, before, run_id
            return b"done"
        said = await original(server, field, before, after, run_id, anew)
        target, accepted, process = renewal.pop(after)
        if said != b"done":
            return said
        await asyncio.sleep(SLOWLY_SECONDS)
        return await original(target, "accepts", accepted, after, process, anew)

    renewal: dict[str, tuple[Any, str, str]] = {}
    original, permits._set = permits._set, set_


def given_back() -> None:
    """Workers give claims back where they do not know whether the keys were placed, and go on by the same permit."""
    from proxy.moving.batches import KeyBatches, _Refused
    from proxy.moving.permits import Permits

    async def place(self: KeyBatches, permit: str, taken: Any) -> tuple[int, bytes]:
        try:
            return await original(self, permit, taken)
        except _Refused:
            await self._drop(permit, taken, 0)
            raise

    def doubt(self: Permits, *arguments: Any) -> None:
        return

    original = KeyBatches._place
    KeyBatches._place = place  # type: ignore[method-assign]
    Permits.doubt = doubt  # type: ignore[method-assign]


def not_withdrawn() -> None:
    """Permits stay where slots turn round, or have moved."""
    from slots import permits

    async def withdraw(source: Any, target: Any) -> None:
        return

    permits.withdraw = withdraw


def withheld() -> None:
    """A flush leaves the permit, and keys move on."""
    from proxy.commands.keyspace import flushing

    _replace(flushing.WITHHOLD, _changed(flushing.WITHHOLD, "redis.call('HDEL', state, field)", "local left = field"))


def undeclared() -> None:
    """Every script counts as one that uses only its declared keys, so all scripts run while their slot moves."""
    from proxy.commands.scripting import unnamed

    def keeps_to_keys(script: bytes) -> bool:
        return True

    unnamed.keeps_to_keys = keeps_to_keys


def owned() -> None:
    """topom takes every server for swept: keys that came back with older data stay, and are alive when their slot
    returns."""
    from migrator.sweep import Swept
    from topom.migration.mover import RedisMover

    async def sweep(self: RedisMover, server: str, data: str, warrant: Any) -> Swept:
        return Swept(0)

    RedisMover.sweep = sweep  # type: ignore[method-assign]


def shown() -> None:
    """Workers show all keys that a server lists."""
    from proxy.commands.keyspace.listedkeys import ShownSlots
    from proxy.engine.keylist import HERE

    def at(self: ShownSlots, address: str) -> bytes:
        return bytes([HERE]) * (len(self._table.slots) if self._table is not None else 0)

    ShownSlots.at = at  # type: ignore[method-assign]


def one_pass() -> None:
    """A scan passes over the groups once, whatever has moved to a group behind it."""
    from proxy.commands.keyspace.moves import Moves

    def backward_since(self: Moves, epoch: int) -> int:
        return 0

    Moves.backward_since = backward_since  # type: ignore[method-assign]


def sweep_mark() -> None:
    """Deletes of a sweep work however late they come. Topom gives up a sweep sooner."""
    from functools import partial

    from migrator import sweep

    mark = "redis.call('HGET', KEYS[1], 'token') ~= ARGV[1]"
    _replace(sweep.DELETE, _changed(sweep.DELETE, mark, "ARGV[1] == ''"))
    sweep.Timeouts = partial(sweep.Timeouts, reply_seconds=1.5)  # type: ignore[misc,assignment]


def told() -> None:
    """Workers do not say to clients that cache that they were not told of everything for a while."""
    from proxy.commands.tracking.servers import TrackedServers

    def flush(self: TrackedServers) -> None:
        return

    TrackedServers._flush = flush  # type: ignore[method-assign]


def heard() -> None:
    """Workers do not notice that a connection has ended by which a server tells them what changes."""
    from proxy.commands.tracking.trackedserver import TrackedServer

    def lost(self: TrackedServer, reason: str) -> None:
        return

    def tick(self: TrackedServer) -> None:
        return

    TrackedServer._lost = lost  # type: ignore[method-assign]
    TrackedServer.tick = tick  # type: ignore[method-assign]


def changed() -> None:
    """Workers keep values of hot keys that have changed."""
    from proxy.commands.tracking.hotreads import HotReads

    told = HotReads._told

    def changed(self: HotReads, name: bytes | None) -> None:
        if name is None:
            told(self, name)

    HotReads._told = changed  # type: ignore[method-assign]


def applied_once() -> None:
    """A batch of a copy whose reply is lost is sent again, whatever position the target has."""
    from migrator.stream.applying import Applier

    async def position(self: Applier, database: int) -> bytes | None:
        connection = await self._connected()
        await connection.call("UNWATCH")
        await connection.select(database)
        return self._positions.get(database)

    Applier._position = position  # type: ignore[method-assign]


def late_batch() -> None:
    """A batch of a copy runs however late it comes: nobody ends its connection, and the target's position may have
    changed."""
    from migrator.pair import ServerPair
    from migrator.stream import applying

    async def end_earlier(self: ServerPair, *arguments: Any, **options: Any) -> None:
        return

    def pack(*arguments: str | bytes | int) -> bytes:
        return original("ECHO", "nothing is watched") if arguments[0] == "WATCH" else original(*arguments)

    original = applying.pack
    applying.pack = pack
    ServerPair.end_earlier = end_earlier  # type: ignore[method-assign]


def level() -> None:
    """Slots switch although the marker has not come by in the stream of the source."""
    from migrator.stream.running import RunningCopy

    async def pass_marker(self: RunningCopy, slots: Collection[int]) -> str:
        return "" if slots else await original(self, slots)

    original = RunningCopy._pass_marker
    RunningCopy._pass_marker = pass_marker  # type: ignore[method-assign]


def deadlines() -> None:
    """A copy has the deadlines of the source, and expires by itself."""
    from migrator.stream import copying, following
    from migrator.stream.deadlines import Deadlines

    long_ago = -(10**12)

    def written(self: Deadlines, database: int, key: bytes, deadline_ms: int, now_ms: int) -> int:
        return deadline_ms

    following.BUILDING_MS = copying.MARGIN_MS = long_ago
    Deadlines.written = written  # type: ignore[method-assign]


def target_mark() -> None:
    """A target counts as swept while a copy is made."""
    from migrator.stream import applying

    applying.SWEPT = b"__slotferry:another"


def source_mark() -> None:
    """A source counts as swept after its slots have left by a copy."""
    from migrator.stream import running

    running.SWEPT = b"__slotferry:another"


PLANTED: dict[str, tuple[str, Plant]] = {
    "drained": ("topom", drained),
    "absent-first": ("worker", absent_first),
    "one-way": ("first-worker", one_way),
    "fencing": ("topom", fencing),
    "complete": ("topom", complete),
    "by-action": ("worker", by_action),
    "run-id": ("all", run_id),
    "known-servers": ("worker", known_servers),
    "final-fence": ("worker", final_fence),
    "permit": ("all", permit),
    "claims": ("all", claims),
    "drop-unclaimed": ("all", drop_unclaimed),
    "renewed-late": ("all", renewed_late),
    "given-back": ("worker", given_back),
    "not-withdrawn": ("topom", not_withdrawn),
    "withheld": ("worker", withheld),
    "undeclared": ("worker", undeclared),
    "owned": ("topom", owned),
    "shown": ("worker", shown),
    "one-pass": ("worker", one_pass),
    "sweep-mark": ("topom", sweep_mark),
    "told": ("worker", told),
    "heard": ("worker", heard),
    "changed": ("worker", changed),
    "applied-once": ("migrator", applied_once),
    "late-batch": ("all", late_batch),
    "level": ("migrator", level),
    "deadlines": ("migrator", deadlines),
    "target-mark": ("topom", target_mark),
    "source-mark": ("migrator", source_mark),
}
"""By name of the fault: the process that it is planted in, and the function that plants it."""
