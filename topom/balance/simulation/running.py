"""Lets a fleet live through its time, once with decisions and once with Codis's policy, and counts.

Load is known as topom knows it: a mean in which what is older by a half-life weighs half. Moves arrive together, once
the busiest group is done with its bytes. By Codis's policy an operator plans at the beginning, and whenever a group was
added.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slots.group import Group
from slots.slot import Action, Slot
from slots.slotrates import HALF_LIFE_SECONDS
from slots.states import SlotState
from slots.table import SlotTable
from topom.balance.deciding import RULES, Picture, Rules, Why, decide
from topom.balance.planners import PlanRequest, plan
from topom.balance.planners.request import SlotLoad
from topom.balance.simulation.bound import Bound
from topom.balance.simulation.scenario import Scenario
from topom.balance.simulation.traffic import Traffic
from topom.cluster import departures
from topom.cluster.topology import Move

SETTLED_HOURS = 1.0
"""From when on the greatest load counts."""
BOUND_SECONDS = 900.0
"""Between two moments that the bound looks at."""
GOAL = 1.15
"""Times the mean: what no group should have more than, where slots allow it."""
SLOW = 0.1
"""The speed of the slow group."""
BEGAN = 1e9
"""When a run begins, in seconds since 1970."""


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        greatest: the greatest load of a group, as a multiple of the mean, at any time after the first hour.
        mostly: the same for nineteen of twenty moments.
        above: the part of the time in which a group has more than :data:`GOAL` times the mean.
        bytes: that moved.
        moves: slots that moved, each as often as it did.
        returned: slots that came back to a group within a day of leaving it.
        bound: fewer bytes than that nobody moves (:mod:`topom.balance.simulation.bound`).
    """

    greatest: float
    mostly: float
    above: float
    bytes: int
    moves: int
    returned: int
    bound: int


def simulate(scenario: Scenario, by_itself: bool = True, rules: Rules = RULES) -> Outcome:
    """One run; ``by_itself``: slots move by decisions, else by number whenever a group was added."""
    return _Run(scenario, by_itself, rules).run()


class _Run:
    def __init__(self, scenario: Scenario, by_itself: bool, rules: Rules) -> None:
        self.scenario = scenario
        self.by_itself = by_itself
        self.rules = rules
        self.traffic = Traffic(scenario)
        chance = random.Random(scenario.seed + 1)
        self.sizes = {
            slot: max(1, round(scenario.slot_bytes * 5 ** chance.uniform(-1, 1))) for slot in range(scenario.slots)
        }
        groups = {number: Group(number, (f"s{number}:1",)) for number in range(1, scenario.groups + 1)}
        slots = tuple(Slot(slot, 1 + slot * scenario.groups // scenario.slots) for slot in range(scenario.slots))
        self.table = SlotTable(1, slots, groups)
        self.added = sorted(scenario.added)
        self.moved: dict[int, float] = {}
        self.departures: departures.Departures = {}
        self.left: dict[tuple[int, int], float] = {}
        self.arriving: tuple[float, Sequence[Move]] | None = None
        self.above: Mapping[int, float] = {}
        self.outcome = Outcome(0.0, 0.0, 0.0, 0, 0, 0, 0)

    def run(self) -> Outcome:
        """Let time pass."""
        scenario, step = self.scenario, self.scenario.step_seconds
        bound = Bound(self.table, self.sizes, GOAL)
        weight = 0.5 ** (step / HALF_LIFE_SECONDS)
        known = self.traffic.rates(0.0)
        seen: list[float] = []
        if not self.by_itself:
            self._by_number(BEGAN)
        for count in range(math.ceil(scenario.hours * 3600 / step)):
            seconds = count * step
            hour, now = seconds / 3600, BEGAN + seconds
            self.traffic.step(step / 3600)
            rates = self.traffic.rates(hour)
            known = [old * weight + new * (1 - weight) for old, new in zip(known, rates, strict=True)]
            self._arrive(now)
            self._add(hour, now)
            if self.by_itself and self.arriving is None:
                self._decide(known, seconds, now)
            if hour >= SETTLED_HOURS:
                seen.append(self._greatest(rates))
                if count % max(1, round(BOUND_SECONDS / step)) == 0:
                    bound.look(rates, len(self.table.groups))
        seen.sort()
        if seen:
            self.outcome.greatest, self.outcome.mostly = seen[-1], seen[int(len(seen) * 0.95)]
            self.outcome.above = sum(one > GOAL for one in seen) / len(seen)
        self.outcome.bound = bound.bytes
        return self.outcome

    def _decide(self, known: Sequence[float], seconds: float, now: float) -> None:
        loads = {slot: SlotLoad(rate) for slot, rate in enumerate(known)}
        picture = Picture(self.table, now, seconds, loads, self.sizes, self.moved, self.departures)
        made = decide(picture, self.above, self.rules)
        self.above = made.above
        if made.why is Why.MOVES:
            self._send(made.moves, now)

    def _by_number(self, now: float) -> None:
        self._send(plan("codis", self.table.groups.values(), self.table.slots, PlanRequest()).moves, now)

    def _add(self, hour: float, now: float) -> None:
        while self.added and self.added[0] <= hour:
            self.added.pop(0)
            number = max(self.table.groups) + 1
            self.table = self.table.changed(self.table.epoch + 1, groups=[Group(number, (f"s{number}:1",))])
            if not self.by_itself:
                self._arrive(math.inf)
                self._by_number(now)

    def _send(self, moves: Sequence[Move], now: float) -> None:
        if not moves:
            return
        busy: dict[int, float] = {}
        for move in moves:
            size = self.sizes[move.slot]
            self.outcome.bytes += size
            self.outcome.moves += 1
            self.outcome.returned += now - self.left.get((move.slot, move.target), -math.inf) < 86_400
            self.left[move.slot, move.source] = now
            for group_id in (move.source, move.target):
                speed = self.scenario.bytes_per_second * (SLOW if group_id == self.scenario.slow else 1)
                busy[group_id] = busy.get(group_id, 0.0) + size / speed
        begun = [Slot(move.slot, move.source, Action(SlotState.PENDING, move.target)) for move in moves]
        self.table = self.table.changed(self.table.epoch + 1, begun)
        self.arriving = now + max(busy.values()), moves

    def _arrive(self, now: float) -> None:
        if self.arriving is None or self.arriving[0] > now:
            return
        at, moves = self.arriving
        self.arriving = None
        self.table = self.table.changed(self.table.epoch + 1, [Slot(move.slot, move.target) for move in moves])
        self.moved.update((move.slot, at) for move in moves)
        for move in moves:
            self.departures = departures.added(self.departures, move.source, (move.slot,), at)

    def _greatest(self, rates: Sequence[float]) -> float:
        """While slots move, their load counts where they come from."""
        load = dict.fromkeys(self.table.groups, 0.0)
        for slot, rate in zip(self.table.slots, rates, strict=True):
            load[slot.group_id] += rate
        return max(load.values()) * len(load) / math.fsum(load.values())
