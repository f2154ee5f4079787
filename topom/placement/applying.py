"""The placement of one topom: what it is, what a plan would change, and having that done, when told to or by itself.

One placement is applied at a time. It is stored, so that the next topom goes on with it. Nothing is done while so many
members are lost that protection mode is on.

By itself (``auto``), topom plans once nothing has changed for ``settle_seconds``: no node came or went, no group or
server of the pool, and while no group is locked. A plan that would begin where one began before is made ever more
rarely (:mod:`topom.placement.beginnings`), so that nothing goes round in circles. Where nothing could be changed, it
looks again every ``settle_seconds``: a server of the pool may have been emptied meanwhile.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

import structlog

from topom.cluster.events import actor
from topom.cluster.ledger import Ledger
from topom.cluster.placement_run import Run
from topom.cluster.state import ClusterState, known_servers
from topom.errors import TopomError
from topom.masters.protection import Protection
from topom.periodic import keep_looking
from topom.placement import changes
from topom.placement.beginnings import Beginning, Beginnings
from topom.placement.changes import AllInPlace, NothingToPlace
from topom.placement.picture import Picture, draw
from topom.placement.plan import Planned, plan
from topom.placement.planner import Rules
from topom.placement.pool import Pool
from topom.placement.stepping import Stepping
from topom.servers.detector import Condition
from topom.servers.health import Health

log = structlog.get_logger(__name__)

IDLE_SECONDS = 0.5
"""Between two looks while nothing is under way."""
KNOWN_SECONDS = 3.0
"""How long it is waited, before a placement is begun, for servers that topom has not looked at yet."""
KNOWN_POLL_SECONDS = 0.05
MOST_STEPS = 512
"""Of one placement, which is one document of the store; what comes after them is for the next one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How the placement stands: the picture, what a plan would change, what is under way."""

    picture: Picture
    planned: Planned
    run: Run | None


class Placements:
    """Placement for one topom.

    Args:
        settle_seconds: for how long nothing has to have changed before something is done by itself.
    """

    def __init__(
        self,
        ledger: Ledger,
        health: Health,
        pool: Pool,
        protection: Protection,
        stepping: Stepping,
        rules: Rules,
        settle_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._health = health
        self._pool = pool
        self._protection = protection
        self._stepping = stepping
        self.rules = rules
        self._settle_seconds = settle_seconds
        self._news = asyncio.Event()
        self._seen: object = None
        self._seen_at = 0.0
        self._looked_at: object = None
        self._looked_last = 0.0
        self._lacks = ""
        self._beginnings = Beginnings(settle_seconds)
        self.waits_for = ""
        """Why nothing is done now: of what is under way, or by itself."""

    @property
    def reasons(self) -> dict[tuple[int, int, str, str], str]:
        """What the steps under way wait for, by :func:`topom.placement.stepping.key_of`."""
        return self._stepping.reasons

    async def show(self) -> Shown:
        """How it stands. Servers of the pool are asked whether they may be taken."""
        problems = await self._pool_problems()
        state = self._ledger.state
        picture = draw(state, self._condition, problems)
        # Over thousands of groups it takes the better part of a second, in which others are to be served.
        planned = await asyncio.to_thread(plan, state, picture, self.rules)
        return Shown(picture, planned, self._ledger.state.placement.run)

    async def apply(self) -> Shown:
        """Begin to do what a plan says; how it then stands.

        Raises:
            PlacementRuns: it is being done already.
            AllInPlace: there is nothing to change.
            NothingToPlace: there is nothing that can be changed; the message says what is missing.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_SECONDS):
                while self._unknown():
                    await asyncio.sleep(KNOWN_POLL_SECONDS)
        shown = await self.show()
        if shown.run is None and not shown.planned.steps:
            if not shown.planned.missing:
                raise AllInPlace("everything is as it should be")
            raise NothingToPlace(f"nothing can be changed: {'; '.join(shown.planned.missing)}")
        steps = shown.planned.steps[:MOST_STEPS]
        who = actor.get() or "topom"
        state = await self._ledger.change(lambda state, epoch: changes.begun(state, steps, who, time.time()))
        log.info("placement_begun", steps=len(steps), who=who)
        return Shown(shown.picture, shown.planned, state.placement.run)

    async def cancel(self) -> None:
        """End what is being applied: what is done stays, what is being copied is let go. Raises NothingToPlace."""
        ended: list[Run] = []

        def end(state: ClusterState, epoch: int) -> ClusterState:
            new = changes.ended(state)
            ended[:] = [state.placement.run] if state.placement.run is not None else []
            return new

        await self._ledger.change(end)
        log.info("placement_cancelled")
        copying = [step.server for run in ended for step in run.steps if step.state == "copying"]
        await self._stepping.detach([server for server in copying if server in self._ledger.state.pool])

    async def set_auto(self, on: bool) -> None:
        """Have topom place by itself, or not any more; what is under way goes on."""
        self._seen = None
        await self._ledger.change(lambda state, epoch: changes.with_auto(state, on))
        log.info("placement_auto", on=on)

    async def run(self) -> None:
        """Do what is to be done, until cancelled."""
        self._ledger.listen(self._changed)

        async def look() -> float | None:
            await self._look()
            kept = self._ledger.state.placement
            if kept.run is not None:
                return 0.0
            return IDLE_SECONDS if kept.auto else None

        await keep_looking(self._news, look, "placement_waits")

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        self._news.set()

    async def _look(self) -> None:
        kept = self._ledger.state.placement
        if kept.run is None:
            self._stepping.forget()
            self.waits_for = await self._by_itself() if kept.auto else ""
            return
        self.waits_for = self._protected()
        if self.waits_for:
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

    async def _by_itself(self) -> str:
        """Begin a placement if one is due; else why not, empty if everything is as it should be."""
        state = self._ledger.state
        now = asyncio.get_running_loop().time()
        picture = draw(state, self._condition)
        seen = (tuple(picture.nodes.values()), picture.table, picture.free, picture.left_out, picture.gone)
        if seen != self._seen:
            self._seen, self._seen_at, self._looked_at = seen, now, None
        if reason := self._protected():
            return reason
        if self._unknown():
            return "topom has not looked at all servers yet"
        if any(group.locked for group in state.table.groups.values()):
            return "a group is getting another master"
        begins: Beginning = (tuple(picture.nodes), tuple(picture.table.items()))
        if now - self._seen_at < self._settle_seconds or not self._beginnings.allow(begins, now):
            return "waits until things have settled"
        if self._looked_at == seen and now - self._looked_last < self._settle_seconds:
            return self._lacks
        shown = await self.show()
        self._looked_at, self._looked_last = seen, now
        if not shown.planned.steps:
            self._lacks = "; ".join(shown.planned.missing)
            return self._lacks
        self._beginnings.note(begins, now)
        self._looked_at = None
        await self.apply()
        return ""

    def _unknown(self) -> bool:
        return any(self._condition(one) is Condition.UNKNOWN for one in known_servers(self._ledger.state))

    def _protected(self) -> str:
        if not self._protection.active:
            return ""
        return (
            f"{self._protection.lost} of {self._protection.members} members are lost at a time, so nothing is done; "
            "bring them back, or say 'slotferry protection off'"
        )

    def _condition(self, server: str) -> Condition:
        return self._health.of(server).condition

    async def _pool_problems(self) -> dict[str, str]:
        """Why servers of the pool may not be taken, by address; of those that answer."""
        entries = [entry for entry in self._ledger.state.pool.values() if not entry.wipe]

        async def problem(address: str) -> str:
            try:
                found = (await self._pool.content(address)).why_not_wipe(address)
            except TopomError as error:
                return str(error)
            return f"{found}, and nobody said that it may be wiped" if found else ""

        found = await asyncio.gather(*(problem(entry.address) for entry in entries))
        return {entry.address: text for entry, text in zip(entries, found, strict=True) if text}
