"""Moves slots by itself, by load: looks every so often, decides (:mod:`topom.balance.deciding`), and begins moves.

What it begins goes the way of an operator's plan (:class:`topom.balance.rebalancing.Rebalancing`). It is one event. A
decision to do nothing is an event only if its reason is another one than before, and for one reason at most once an
hour. Everything else about it is what the loop says, and :attr:`AutoRebalance.decision`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

import structlog

from topom.balance import deciding, measured
from topom.balance.deciding import Decision, Picture, Rules, Why
from topom.balance.measured import MeasuredLoads
from topom.balance.rebalancing import Rebalancing, sizes_of
from topom.balance.sizebook import SizeBook
from topom.cluster.events import What
from topom.cluster.hours import Halt
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.periodic import Look, Loop, never_held
from topom.reasons import Reason

log = structlog.get_logger(__name__)

LOOKS = 5
"""So often it looks in the time for which a group has to have too much."""
NOTE_SECONDS = 3600.0
"""For this long at least, one reason to do nothing is no event again."""
UNSAID = frozenset({Why.EVEN, Why.NOT_SUSTAINED, Why.NOT_MEASURED, Why.MOVING, Why.MANUAL, Why.MOVES})
"""Reasons that are no event: they come and go by themselves."""
MANUAL = Decision(0.0, Why.MANUAL, 'rebalance = "manual": slots move only when an operator asks for it')


class AutoRebalance(Loop):
    """Rebalances one topom's slots by itself.

    Args:
        halt: why no keys move; None if they may.
        failed: gives the servers, of all in the table, that do not answer.
        held: as for :class:`topom.periodic.Loop`.
        on: whether slots may move by themselves; if not, the loop ends at once.
        clock: seconds since 1970.
    """

    name = "rebalance"
    first_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        ledger: Ledger,
        rebalancing: Rebalancing,
        loads: MeasuredLoads,
        sizes: SizeBook,
        halt: Callable[[], Halt | None],
        failed: Callable[[], Collection[str]],
        held: Callable[[], Reason | None] = never_held,
        on: bool = True,
        rules: Rules = deciding.RULES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._rebalancing = rebalancing
        self._loads = loads
        self._sizes = sizes
        self._halt = halt
        self._failed = failed
        self._hands_off = held
        self._on = on
        self.rules = rules
        self._clock = clock
        self._above: Mapping[int, float] = {}
        self._noted: dict[Why, float] = {}
        self._last_noted: Why | None = None
        self.decision = MANUAL
        """The last decision."""

    async def look(self) -> Look:
        """Decide, and begin what was decided."""
        if not self._on:
            return Look(over=True)
        picture = self._picture()
        # The largest fleets take a tenth of a second, and topom has to serve others meanwhile.
        decision = await asyncio.to_thread(deciding.decide, picture, self._above, self.rules)
        self._above = decision.above
        if decision.moves and not await self._rebalancing.begin(
            decision.moves, picture.table, decision.text, self._allowed
        ):
            decision = Decision(
                decision.at,
                Why.CHANGED,
                "something changed while the decision was made",
                greatest=decision.greatest,
                above=decision.above,
            )
        self.decision = decision
        self._note(decision)
        return Look(decision.text, self.rules.sustained_seconds / LOOKS)

    def _picture(self) -> Picture:
        state = self._ledger.state
        known = self._sizes.known
        return Picture(
            table=state.table,
            now=self._clock(),
            measured_seconds=self._loads.measured_seconds,
            loads=measured.slot_loads(self._loads),
            hot_keys=measured.hottest(self._loads),
            bytes=sizes_of(known, state.table)[0] if known.slots else {},
            moved=state.moved,
            waits=self._why_not(state),
        )

    def _why_not(self, state: ClusterState) -> tuple[Why, str] | None:
        held = self._hands_off()
        if held is not None:
            return Why.HELD, str(held)
        return deciding.waits(state, self._halt(), self._failed(), self.rules, self._clock())

    def _allowed(self, state: ClusterState) -> bool:
        return self._why_not(state) is None

    def _note(self, decision: Decision) -> None:
        """Have an event stored about a new reason to do nothing."""
        why = decision.why
        if why is Why.MOVES:
            self._last_noted = None
        if why in UNSAID or why is self._last_noted:
            return
        now = self._clock()
        if abs(now - self._noted.get(why, -NOTE_SECONDS)) < NOTE_SECONDS:
            return
        self._noted[why] = now
        self._last_noted = why
        self._ledger.note(What.REBALANCE_WAITS, f"no slot moves by itself: {decision.text}", wait=1.0)
