"""Faults that are planted on purpose: one invariant each, switched off in the processes that uphold it.

They show that the harness finds what it looks for. Nothing in Slotferry knows of them: a launcher replaces a function
before the process runs.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slots.states import SlotState

Plant = Callable[[], None]


def drained() -> None:
    """topom does not wait for the proxies before it hands slots on."""
    from topom.barrier import Barrier

    async def reach(self: Barrier, epoch: int, servers: Collection[str], seconds: float, stop_at_refusal: bool) -> None:
        return

    Barrier.reach = reach  # type: ignore[method-assign]


def absent_first() -> None:
    """Workers take every key for absent from the source."""
    from proxy.migrating import KeyMover

    def need(self: KeyMover, session: Any, database: int, missing: Sequence[tuple[int, bytes]]) -> None:
        for slot, key in missing:
            _, _, migration = self._router.route(slot)
            self._router.absent.remember(migration, database, key)
        asyncio.get_running_loop().call_soon(session.wake, self._router.generation)

    KeyMover.need = need  # type: ignore[method-assign]


def one_way() -> None:
    """The first proxy goes on sending to the source while slots migrate."""
    from proxy import routing
    from proxy.engine.router import OPEN

    def route_of(table: Any, slot: Any) -> routing.Route:
        if slot.action is not None and slot.action.state is SlotState.MIGRATING:
            return routing.Route(OPEN, table.master_of(slot.group_id))
        return original(table, slot)

    original = routing.route_of
    routing.route_of = route_of


def fencing() -> None:
    """topom takes a lost proxy for fenced without having fenced it."""
    from topom.redis_servers import RedisServers

    async def fence(self: RedisServers, instance: str, addresses: Iterable[str]) -> Mapping[str, str | None]:
        return dict.fromkeys(addresses)

    RedisServers.fence = fence  # type: ignore[method-assign]


def complete() -> None:
    """The migrator says that all keys have moved without having looked."""
    from topom.moving import RedisMover

    async def move(self: RedisMover, source: str, target: str, slots: Sequence[int], progress: Any) -> None:
        return

    RedisMover.move = move  # type: ignore[method-assign]


def by_action() -> None:
    """What a worker has learned of keys holds for a route and all identities, whichever action it is of."""
    from proxy import routing

    def forget(self: routing.Routing, address: str = "") -> None:
        return

    def route_of(*arguments: Any) -> routing.Route:
        return replace(original(*arguments), epoch=0)

    original = routing.route_of
    routing.route_of = route_of
    routing.Routing.forget = forget  # type: ignore[method-assign]
    routing.Routing.source_lost = forget  # type: ignore[method-assign]


def run_id() -> None:
    """Nobody knows that a server has restarted since the action began."""
    from slots.beginning import Beginning

    def keeps_target(self: Beginning, source: str, target: str) -> bool:
        return self.back

    Beginning.keeps_target = keeps_target  # type: ignore[method-assign]


def final_fence() -> None:
    """Workers that saw a fence dial again, and believe every process that has no mark."""
    from proxy.allowances import Allowances
    from proxy.knownservers import KnownServers

    def end(self: Allowances) -> None:
        return

    def knows(self: KnownServers, server: str, process: str) -> bool:
        return True

    Allowances.end = end  # type: ignore[method-assign]
    KnownServers.knows = knows  # type: ignore[method-assign]


def owned() -> None:
    """No server is swept, neither by itself nor before slots come to it."""
    from migrator import sweep as sweeping
    from topom import moving

    async def sweep(*arguments: Any, **settings: Any) -> sweeping.Swept:
        return sweeping.Swept(0)

    moving.sweep = sweep  # type: ignore[assignment]


def flushed() -> None:
    """A flush does not wait for what is on its way between servers."""
    from proxy.slowpath.flushing import FlushCommands

    async def settle(self: FlushCommands, *arguments: Any) -> None:
        return

    FlushCommands._settle = settle  # type: ignore[attr-defined]


def undeclared() -> None:
    """Scripts run while their slot moves, whatever they touch."""
    from proxy.slowpath.unnamed import KeepingToKeys

    def refusal(self: KeepingToKeys, name: bytes, script: bytes) -> bytes | None:
        return None

    KeepingToKeys.refusal = refusal  # type: ignore[method-assign]


PLANTED: dict[str, tuple[str, Plant]] = {
    "drained": ("topom", drained),
    "absent-first": ("worker", absent_first),
    "one-way": ("first-worker", one_way),
    "fencing": ("topom", fencing),
    "complete": ("topom", complete),
    "by-action": ("worker", by_action),
    "run-id": ("all", run_id),
    "final-fence": ("worker", final_fence),
    "owned": ("topom", owned),
    "flushed": ("worker", flushed),
    "undeclared": ("worker", undeclared),
}
"""By name: the process it is planted in, and what plants it."""
