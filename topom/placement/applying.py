"""The placement of one topom: what it is, what a plan would change, and applying that, on order or by itself.

One placement is applied at a time. It is stored, so that the next topom goes on with it. Nothing is done while
protection mode is on, because many members are lost.

By itself (``auto``), topom plans once no group is locked and nothing has changed for ``settle_seconds``: no node, no
group and no server of the pool came or went. A plan that would begin where one began before is made ever more rarely
(:mod:`topom.placement.beginnings`), so that nothing goes round in circles. If nothing could be changed, topom looks
again every ``settle_seconds``: a server of the pool may have been emptied meanwhile.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from topom.cluster.events import actor
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger
from topom.cluster.placement_run import Run
from topom.cluster.state import ClusterState, known_servers
from topom.errors import TopomError
from topom.periodic import Look, Loop
from topom.placement import changes
from topom.placement.beginnings import Beginning, Beginnings
from topom.placement.changes import AllInPlace, NothingToPlace
from topom.placement.picture import Picture, draw
from topom.placement.plan import Planned, plan
from topom.placement.planner import Rules
from topom.placement.pool import Pool
from topom.placement.stepping import Stepping
from topom.reasons import Kind, Reason, Reasons
from topom.servers.detector import Condition
from topom.servers.health import Health

log = structlog.get_logger(__name__)

IDLE_SECONDS = 0.5
"""Between two looks while nothing is under way."""
KNOWN_SECONDS = 3.0
"""How long topom waits, before it begins a placement, for servers that it has not looked at yet."""
KNOWN_POLL_SECONDS = 0.05
MOST_STEPS = 512
"""The most steps of one placement, which is one document of the store; the steps after them are for the next one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The state of the placement: the picture, what a plan would change, what is under way."""

    picture: Picture
    planned: Planned
    run: Run | None


class Placements(Loop):
    """Placement for one topom.

    Args:
        settle_seconds: how long nothing may have changed before topom does something by itself.
    """

    name = "placement"

    def __init__(
        self,
        ledger: Ledger,
        health: Health,
        pool: Pool,
        hands_off: HandsOff,
        stepping: Stepping,
        rules: Rules,
        settle_seconds: float,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._health = health
        self._pool = pool
        self._hands_off = hands_off
        self._stepping = stepping
        self.rules = rules
        self._settle_seconds = settle_seconds
        ledger.listen(self._changed)
        self._seen: object = None
        self._seen_at = 0.0
        self._looked_at: object = None
        self._looked_last = 0.0
        self._missing: Reason | None = None
        self._beginnings = Beginnings(settle_seconds)
        self._waiting = Reasons[None]()
        self._seen_missing = Reasons[tuple[str, str | int]]()

    @property
    def reason(self) -> Reason | None:
        """Why nothing is done now for the placement under way, or by itself; None if something is done."""
        return self._waiting.get(None)

    @property
    def reasons(self) -> Mapping[tuple[int, int, str, str], Reason]:
        """What the steps under way wait for, by :func:`topom.placement.stepping.key_of`."""
        return self._stepping.reasons

    async def show(self) -> Shown:
        """The state of the placement. Servers of the pool are asked whether they may be taken."""
        refusals = await self._pool_refusals()
        state = self._ledger.state
        picture = self._dated(draw(state, self._condition, refusals))
        # For thousands of groups this takes most of a second, and topom has to serve others meanwhile.
        planned = await asyncio.to_thread(plan, state, picture, self.rules)
        return Shown(picture, planned, self._ledger.state.placement.run)

    async def apply(self) -> Shown:
        """Begin to do what a plan says; gives the state of the placement after that.

        Raises:
            PlacementRuns: a placement is being applied already.
            AllInPlace: there is nothing to change.
            NothingToPlace: nothing can be changed; the message says what is missing.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_SECONDS):
                while self._unknown():
                    await asyncio.sleep(KNOWN_POLL_SECONDS)
        shown = await self.show()
        if shown.run is None and not shown.planned.steps:
            if not shown.planned.missing:
                raise AllInPlace("everything is as it should be")
            missing = _together(shown.planned.missing)
            raise NothingToPlace(f"nothing can be changed: {missing.what}", missing.to_do, kind=missing.kind)
        steps = shown.planned.steps[:MOST_STEPS]
        who = actor.get() or "topom"
        state = await self._ledger.change(lambda state, epoch: changes.begun(state, steps, who, time.time()))
        log.info("placement_begun", steps=len(steps), who=who)
        return Shown(shown.picture, shown.planned, state.placement.run)

    async def cancel(self) -> None:
        """End what is being applied: what is done stays, unfinished copies are let go. Raises NothingToPlace."""
        ended: list[Run] = []

        def end(state: ClusterState, epoch: int) -> ClusterState:
            new = changes.ended(state)
            ended[:] = [state.placement.run] if state.placement.run is not None else []
            return new

        await self._ledger.change(end)
        log.info("placement_cancelled")
        for run in ended:
            await self._stepping.let_go(run)

    async def set_auto(self, on: bool) -> None:
        """Have topom place by itself, or stop that; what is under way goes on."""
        self._seen = None
        await self._ledger.change(lambda state, epoch: changes.with_auto(state, on))
        log.info("placement_auto", on=on)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        self.wake()

    async def look(self) -> Look:
        """Do what can be done now for the placement under way, or begin one by itself."""
        await self._look()
        kept = self._ledger.state.placement
        if kept.run is not None:
            done = sum(step.over for step in kept.run.steps)
            return Look(str(self.reason or f"{done} of {len(kept.run.steps)} steps are done"), 0.0)
        return Look(str(self.reason or ""), IDLE_SECONDS if kept.auto else None)

    async def _look(self) -> None:
        kept = self._ledger.state.placement
        if kept.run is None:
            self._stepping.forget()
            self._wait(await self._by_itself() if kept.auto else None)
            return
        held = self._hands_off.reason()
        self._wait(held)
        if held is not None:
            return
        if kept.run.current:
            await self._stepping.look(kept.run)
            return
        await self._ledger.change(
            lambda state, epoch: (
                changes.ended(state) if state.placement.run is not None and not state.placement.run.current else state
            )
        )
        log.info("placement_ended")

    def _wait(self, reason: Reason | None) -> None:
        self._waiting.are({} if reason is None else {None: reason})

    def _dated(self, picture: Picture) -> Picture:
        """The picture, with the time since when each reason in it holds; reasons that were seen before keep theirs."""
        seen = self._seen_missing
        books: dict[str, Mapping[str, Reason] | Mapping[int, Reason]] = {
            "absent": picture.absent,
            "left_out": picture.left_out,
            "unusable": picture.unusable,
        }
        seen.are({(book, key): reason for book, found in books.items() for key, reason in found.items()})
        return replace(
            picture,
            absent={name: seen["absent", name] for name in picture.absent},
            left_out={group_id: seen["left_out", group_id] for group_id in picture.left_out},
            unusable={address: seen["unusable", address] for address in picture.unusable},
        )

    async def _by_itself(self) -> Reason | None:
        """Begin a placement if one is due. Else gives why not; None if everything is as it should be."""
        state = self._ledger.state
        now = asyncio.get_running_loop().time()
        picture = draw(state, self._condition)
        seen = (tuple(picture.nodes.values()), picture.table, picture.free, picture.left_out, picture.gone)
        if seen != self._seen:
            self._seen, self._seen_at, self._looked_at = seen, now, None
        if (held := self._hands_off.reason()) is not None:
            return held
        if self._unknown():
            return Reason(Kind.BUSY, "topom has not looked at all servers yet")
        if any(group.locked for group in state.table.groups.values()):
            return Reason(Kind.BUSY, "a group is getting another master")
        begins: Beginning = (tuple(picture.nodes), tuple(picture.table.items()))
        if now - self._seen_at < self._settle_seconds or not self._beginnings.allow(begins, now):
            return Reason(Kind.BUSY, "waits until things have settled")
        if self._looked_at == seen and now - self._looked_last < self._settle_seconds:
            return self._missing
        shown = await self.show()
        self._looked_at, self._looked_last = seen, now
        if not shown.planned.steps:
            self._missing = _together(shown.planned.missing) if shown.planned.missing else None
            return self._missing
        self._beginnings.note(begins, now)
        self._looked_at = None
        await self.apply()
        return None

    def _unknown(self) -> bool:
        return any(self._condition(one) is Condition.UNKNOWN for one in known_servers(self._ledger.state))

    def _condition(self, server: str) -> Condition:
        return self._health.of(server).condition

    async def _pool_refusals(self) -> dict[str, Reason]:
        """For the servers of the pool that answer: why they may not be taken, by address."""
        entries = [entry for entry in self._ledger.state.pool.values() if not entry.wipe]

        async def refusal(address: str) -> Reason | None:
            try:
                found = (await self._pool.content(address)).why_not_wipe(address)
            except TopomError as error:
                return Reason.of(error)
            if not found:
                return None
            to_do = "empty it, or remove it and add it again with --wipe"
            return Reason(Kind.DATA, f"{found}, and nobody said that it may be wiped", to_do=to_do)

        found = await asyncio.gather(*(refusal(entry.address) for entry in entries))
        return {entry.address: one for entry, one in zip(entries, found, strict=True) if one is not None}


def _together(missing: Sequence[Reason]) -> Reason:
    """Several reasons as one, of the kind of the first."""
    to_do = "; ".join(dict.fromkeys(one.to_do for one in missing if one.to_do))
    return Reason(missing[0].kind, "; ".join(one.what for one in missing), to_do=to_do)
