"""Changes of the slot rules of a living product: at one epoch, and only if no key is stranded by it.

A key whose slot changes may have another group by the new rules, and clients would not find it there. So:

1. The keys of all masters are counted that the new rules would strand. If there are any, the change is refused with
   their number.
2. A table with the coming rules is stored. A proxy that gets it lets no client use a key whose slot will change. It
   locks all slots until no command is under way that was sent before, and acknowledges the table (**drained**).
3. The keys are counted again. Nobody can make another one that would be stranded, so if there is none, there will be
   none.
4. The new rules are stored. A proxy that has their table finds each key where it was, and one that has not yet keeps
   clients off the keys whose slot has changed (**one-owner**).

If anything fails before step 4, the coming rules are taken back. So does a topom that begins to lead. If a write fails
that may be in the store all the same, the change goes on until topom knows which rules hold. From step 2 on no slot
changes its group, and nothing is swept. **bounded**: step 2 takes ``barrier_seconds`` at most, step 3
:data:`MOST_SECONDS`. If topom dies, proxies go on to serve all other keys, for each ends its lock by itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from migrator.errors import MigrationError
from slots import ranges
from slots.backoff import Backoff
from slots.counting import counted
from slots.rules import SlotRule
from slots.slot import OFFLINE
from topom.cluster.cancelling import with_table
from topom.cluster.events import Said, What
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.state import ClusterState
from topom.cluster.topology import all_servers
from topom.errors import Conflict, NotLeading, TopomError
from topom.migration.misplaced import Placing, Tally
from topom.periodic import Look, Loop
from topom.proxies.barrier import Barrier
from topom.proxies.members import RULES_CHANGE, Members
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)

MOST_SECONDS = 600.0
"""The longest that clients are kept off the keys whose slot changes."""
DRY_SECONDS = 86_400.0
"""The longest count before that."""
STORE_SECONDS, STORE_SECONDS_MAX = 0.2, 5.0
"""Between tries to take the coming rules back: the first wait, and the longest."""


class RulesChange(Conflict):
    """Slot rules are being changed already."""


class RulesWait(Conflict):
    """Slot rules cannot be changed while slots are on their way, or are nobody's."""


class KeysMisplaced(Conflict):
    """The new slot rules would strand keys."""

    kind = Kind.OPERATOR


Masters = Mapping[int, tuple[str, str]]
"""The masters of groups with slots, by address and by the run id under which each was last seen."""


class Stage(StrEnum):
    """Where a change is."""

    COUNTING = "counting"
    LOCKING = "locking"
    CHECKING = "checking"
    DONE = "done"
    COUNTED = "counted"
    CANCELLED = "cancelled"
    FAILED = "failed"


RUNNING = (Stage.COUNTING, Stage.LOCKING, Stage.CHECKING)


@dataclass(slots=True)
class RuleChange:
    """One change: the rules that are to hold. ``dry``: it only counts. ``tally`` is the latest count."""

    rules: tuple[SlotRule, ...]
    dry: bool
    began_at: float
    stage: Stage = Stage.COUNTING
    reason: Reason | None = None
    tally: Tally = field(default_factory=Tally)


class RuleChanges(Loop):
    """The changes of one topom's slot rules, one at a time; the last one is kept.

    Args:
        count: counts the keys that a change strands (:func:`topom.migration.misplaced.count`).
        barrier_seconds: how long all slots may be locked.
    """

    name = "slot rules"

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        barrier: Barrier,
        count: Callable[[Placing, Tally], Awaitable[None]],
        barrier_seconds: float,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._members = members
        self._barrier = barrier
        self._count_keys = count
        self._barrier_seconds = barrier_seconds
        self._task: asyncio.Task[None] | None = None
        self._takes_back = False
        self._leaves = False  # this topom leads no more
        self.last: RuleChange | None = None
        """The change that is under way, or the last one since this topom leads."""

    async def run(self) -> None:
        """As :meth:`topom.periodic.Loop.run`; the change that is under way ends with it."""
        try:
            await super().run()
        finally:
            if self._task is not None:
                # Also while it is being taken back: the next topom to lead does that.
                self._leaves = True
                self._task.cancel()
                await asyncio.wait([self._task])

    async def look(self) -> Look:
        """Say how the change goes; it is a task of its own."""
        change = self.last
        return Look(f"the slot rules are being changed: {change.stage}" if change and self._task else "")

    @property
    def under_way(self) -> bool:
        """Whether a change is under way."""
        return self._task is not None

    def begin(self, rules: tuple[SlotRule, ...], dry: bool) -> RuleChange:
        """Begin to change the rules, or only to count what a change would strand.

        Raises:
            RulesChange: another change is under way.
            RulesWait: the state does not allow it now.
        """
        if self._task is not None:
            raise RulesChange("the slot rules are being changed already; slotferry rules list shows how that goes")
        self._require(self._ledger.state)
        self._takes_back = False
        self.last = change = RuleChange(rules, dry, time.time())
        self._task = asyncio.create_task(self._follow(change), name="slot rules")
        self._task.add_done_callback(self._forget)
        self.wake()
        return change

    async def cancel(self) -> None:
        """End the change that is under way, if one is. The old rules hold then, or the new ones if it was too late."""
        if self._task is not None:
            # What ends already goes on until the coming rules are taken back, for nobody else would do that.
            if not self._takes_back:
                self._task.cancel()
            await asyncio.wait([self._task])

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("rules_change_failed", reason=str(error) or type(error).__name__)

    async def _follow(self, change: RuleChange) -> None:
        reason: Reason | None = None
        fault: Exception | None = None
        try:
            await self._carry_out(change)
        except TimeoutError:
            reason = Reason.now(Kind.SERVER, "the keys could not be counted in time", "try again at a quiet hour")
        except (TopomError, MigrationError) as error:
            reason = Reason.of(error)
        except Exception as error:
            reason, fault = Reason.now(Kind.FAULT, f"it broke off: {error!r}"), error
        finally:
            await self._end(change, reason)
        log.info("rules_change_ended", stage=change.stage, reason=str(change.reason or ""))
        if fault is not None:
            raise fault

    async def _end(self, change: RuleChange, reason: Reason | None) -> None:
        """Say how a change ended. One that may be in the store goes on until the ledger knows which rules hold."""
        locked = change.stage in (Stage.LOCKING, Stage.CHECKING)
        try:
            if locked:
                await self._take_back()
        finally:
            if locked and self._ledger.table.rules == change.rules:
                # The store has the last write, although that failed, or nobody waited for it.
                change.stage = Stage.DONE
            elif change.stage in RUNNING:
                change.stage, change.reason = Stage.CANCELLED if reason is None else Stage.FAILED, reason

    async def _carry_out(self, change: RuleChange) -> None:
        if change.rules == self._ledger.table.rules:
            change.stage = Stage.COUNTED if change.dry else Stage.DONE
            return
        async with asyncio.timeout(DRY_SECONDS):
            await self._count(change)
        if change.dry:
            change.stage = Stage.COUNTED
            return
        _require_none(change.tally)
        change.stage = Stage.LOCKING
        await self._keep_clients_off(change)
        change.stage, change.tally = Stage.CHECKING, Tally()
        async with asyncio.timeout(MOST_SECONDS):
            masters = await self._count(change)
        _require_none(change.tally)
        named = ", ".join(rule.named for rule in change.rules) or "none"

        def decide(state: ClusterState, epoch: int) -> ClusterState:
            self._require(state)
            if masters_of(state) != masters:
                # run-id
                raise RulesWait("a group has another master by now, whose keys were not looked at; try again")
            return with_rules(state, epoch, change.rules, None)

        await self._ledger.change(decide, [Said(What.RULES_CHANGED, f"the slot rules are now: {named}")])
        change.stage = Stage.DONE

    async def _keep_clients_off(self, change: RuleChange) -> None:
        """Return once no proxy lets a client use a key whose slot will change, and no earlier command is under way."""

        def lock(state: ClusterState, epoch: int) -> ClusterState:
            self._require(state)
            return with_rules(state, epoch, state.table.rules, change.rules)

        async with self._barrier.locking():
            try:
                table = (await self._ledger.change(lock)).table
                log.info("all_slots_locked", epoch=table.epoch)
                # drained: whoever registers later has no earlier command under way, for it was fenced, or was here.
                await self._barrier.reach(table.epoch, all_servers(table), self._barrier_seconds, stop_at_refusal=True)
            except BaseException:
                await self._take_back()
                raise

    async def _count(self, change: RuleChange) -> Masters:
        """Count the keys that the change would strand; gives the masters that were looked at."""
        state = self._ledger.state
        table = state.table
        new = table.ruled(table.epoch + 1, change.rules).key_slots(state.product.slot_function)
        placing = Placing.of(table, state.key_slots, new)
        await self._count_keys(placing, change.tally)
        return masters_of(state)

    def _require(self, state: ClusterState) -> None:
        """Raises RulesWait while keys are on their way, or may be where nobody looks for them."""
        table = state.table
        if table.acting:
            named = ranges.shortened(ranges.show(slot.id for slot in table.acting))
            raise RulesWait(f"slots are on their way ({named}); wait until they have come, or cancel that")
        if state.assigned and any(slot.group_id == OFFLINE for slot in table.slots):
            raise RulesWait("slots are offline, and their keys may be anywhere; assign all slots first")
        for group_id, owned in table.by_group.items():
            if owned and table.master_of(group_id) is None:
                raise RulesWait(f"group {group_id} owns slots and has no server; add one first")
        if state.sweeping or state.leftovers:
            raise RulesWait("keys of slots that left a server are still being removed there; try again in a moment")
        for member in self._members.all():
            if not member.changes_rules:
                why = RULES_CHANGE if member.met else "it has not been heard of since this topom leads"
                raise RulesWait(f"{member.describe()}: {why}; upgrade it, or remove it")

    async def _take_back(self) -> None:
        """Let the old rules go on, if a change was not over, however long the store is away. The ledger knows then
        which rules hold, unless another topom leads."""

        def back(state: ClusterState, epoch: int) -> ClusterState:
            return state if state.table.coming is None else with_rules(state, epoch, state.table.rules, None)

        self._takes_back = True
        backoff = Backoff(STORE_SECONDS, STORE_SECONDS_MAX)
        while True:
            try:
                # The store may have the coming rules though that write is not over, or has failed: the ledger knows.
                await self._ledger.change(back)
                return
            except (NotLeading, LostPlace):
                return  # the next leader does it
            except TopomError as error:
                log.warning("rules_not_taken_back", reason=str(error))
                if self._leaves:
                    return
                await asyncio.sleep(backoff.next())


def masters_of(state: ClusterState) -> Masters:
    """Whose keys are counted."""
    masters = state.table.used_masters.items()
    return {group_id: (master, state.run_ids.get(master, "")) for group_id, master in masters}


def with_rules(
    state: ClusterState, epoch: int, rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None
) -> ClusterState:
    """The state with these rules in its table."""
    return with_table(state, state.table.ruled(epoch, rules, coming))


def _require_none(tally: Tally) -> None:
    if tally.misplaced:
        named = ", ".join(f"'{name}'" for name in tally.named)
        raise KeysMisplaced(
            f"{counted(tally.misplaced, 'key')} of {tally.keys} would be in another group than now ({named}); nothing "
            "was changed",
            "delete them, or set rules before such keys are written",
        )
