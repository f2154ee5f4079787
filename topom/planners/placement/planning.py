"""Where leaders and followers go when nodes have come or gone: the fewest copies, the fewest rounds, the most even.

What holds of every plan, and is tested on random sequences of nodes coming and going:

- A slot has ``min(replicas, nodes)`` copies on as many nodes, and one of them leads it.
- Leaders and followers of every node are within their watermarks, and a table that is so is left as it is.
- **What a node's loss costs.** When a node leaves that held ``c`` copies, ``c`` copies are made (none of a slot that
  all nodes left hold already). They go where there are fewest; as many more are moved, at most, as nodes then have too
  many, or, where that is more, too few for the watermarks. Slots that it led are promoted without a copy wherever a
  follower is left. A *leader copy* is made only of a slot of which no copy is left, or where ``replicas`` is 1.
- **What a node's coming costs.** The copies that lift it to the low watermarks, and those that slots were without.
  A node that comes alone is lifted up to the even share, by at most as many further copies as it has slots to take
  over, and at most one further round for each round's worth of these: SOFARegistry's scheme pays a copy for each,
  because a leader that it replaces does not stay as a follower.

Leaders and followers are evened out further only where that takes no copy, no further round and no more changes of
leaders than the rounds have room for.

Leaders need no copies to be evened out: if all nodes hold about equally many copies, then leaders can be chosen among
the holders such that all lead about equally many (:mod:`~topom.planners.placement.watermarks`). So copies are placed
first, by their number alone, and leaders are chosen afterwards, as a flow (:mod:`~topom.planners.placement.leading`).
Where that flow finds no way because copies are only just within their band, the band is narrowed and it is tried again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topom.planners.placement.filling import even_out, fill, trim
from topom.planners.placement.layout import Layout
from topom.planners.placement.leading import EVERY_PATH, NOT_YET_COPIED, Leading
from topom.planners.placement.moving import move, moves_into
from topom.planners.placement.rounds import schedule
from topom.planners.placement.spreading import spread
from topom.planners.placement.table import Copies, InvalidPlacement, Node, Placement, Round, Rules, check_nodes
from topom.planners.placement.watermarks import Band, Watermarks, watermarks


def place(nodes: Sequence[Node], table: Mapping[int, Copies], rules: Rules) -> Placement:
    """The table at rest for these nodes, and the rounds that lead to it.

    Args:
        nodes: those that are there, in any order.
        table: who holds what now, for every slot from 0 on; nodes that are not among ``nodes`` have left.
        rules: how many copies, how even, how many changes a round.

    Raises:
        InvalidPlacement: without nodes or slots, with a node twice, or rules that cannot be meant.
    """
    rules.check()
    check_nodes(nodes)
    if not table:
        raise InvalidPlacement("there is no slot to be placed")
    nodes = sorted(nodes, key=lambda node: node.name)
    present = {node.name for node in nodes}
    before = {slot: _remaining(table[slot], present) for slot in sorted(table)}
    task = _Task(nodes, before, rules)
    # Where copies were lost, nodes may be given equally many copies or equally many followers; either may be better.
    lacking = any(0 < len(one.holders) < task.copies for one in before.values())
    ways = (False, True) if lacking else (False,)
    fewest = min((task.plan(evened) for evened in ways), key=lambda plan: plan.worth)
    if not fewest.spare_copies:
        return fewest.placement
    evener = [task.plan(evened, fewest) for evened in ways]
    return min([fewest, *(plan for plan in evener if plan.is_within(fewest))], key=lambda plan: plan.evenness).placement


@dataclass(frozen=True, slots=True)
class _Plan:
    """A placement, and what it is worth.

    Attributes:
        apart: how far apart nodes are, as :meth:`Leading.apart` says it.
        moved: copies moved though none was missing.
        spare_copies: copies that may be spent beyond these on evening nodes out.
        spare_rounds: rounds likewise.
    """

    placement: Placement
    apart: tuple[int, int, int]
    moved: int
    spare_copies: int
    spare_rounds: int

    @property
    def cost(self) -> tuple[int, int, int]:
        """Leader copies, copies and rounds."""
        made = self.placement
        return made.leader_copies, made.leader_copies + made.follower_copies, len(made.rounds)

    @property
    def worth(self) -> tuple[int, ...]:
        """Less is better, where copies count more than how far apart nodes are."""
        return (*self.cost, *self.apart)

    @property
    def evenness(self) -> tuple[int, ...]:
        """Less is better, where copies count less."""
        return (*self.apart, *self.cost)

    def is_within(self, fewest: _Plan) -> bool:
        """Whether it spends no more beyond the cheapest plan than that can spare."""
        spare = (0, fewest.spare_copies, fewest.spare_rounds)
        return all(cost <= least + more for cost, least, more in zip(self.cost, fewest.cost, spare, strict=True))


class _Task:
    """Nodes, and the table of which something has to be made."""

    def __init__(self, nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules) -> None:
        self._nodes = nodes
        self._names = [node.name for node in nodes]
        self._before = before
        self._rules = rules
        self.copies = min(rules.replicas, len(nodes))
        self._marks = watermarks(len(before), self.copies, len(nodes), rules.watermark, rules.strict)
        self._missing = sum(max(self.copies - len(one.holders), 0) for one in before.values())

    def plan(self, followers_evened: bool, fewest: _Plan | None = None) -> _Plan:
        """The cheapest plan, or one that is evener by what ``fewest`` can spare."""
        layout, leading = self._solve(followers_evened, fewest.moved + fewest.spare_copies if fewest else 0)
        needed = len(self._rounds(layout, leading))
        if needed:
            affordable = len(fewest.placement.rounds) + fewest.spare_rounds if fewest else needed
            self._even(layout, leading, max(needed, affordable))
        placement = Placement(self._table(layout, leading), self._rounds(layout, leading))
        moved = placement.leader_copies + placement.follower_copies - self._missing
        spare = self._spare(layout)
        return _Plan(placement, leading.apart(), moved, spare, -(-spare // self._rules.most_leader_changes))

    def _even(self, layout: Layout, leading: Leading, most_rounds: int) -> None:
        """Even leaders and followers out as far as so many rounds leave room for; no copy is made for it."""
        settled = list(leading.leaders)
        most_promotions = max(leading.promotions(), self._rules.most_leader_changes * most_rounds)
        for dearest in (EVERY_PATH, NOT_YET_COPIED):
            leading.even(most_promotions, dearest)
            if len(self._rounds(layout, leading)) <= most_rounds:
                break
            leading.restore(settled)
        even_out(layout, leading.counts, leading.leaders, self._marks.copies)

    def _solve(self, followers_evened: bool, moves: int) -> tuple[Layout, Leading]:
        """Copies and leaders within the watermarks."""
        marks, number = self._marks, len(self._nodes)
        narrower = 0
        while True:
            layout = _layout(self._nodes, self._before)
            trim(layout, self.copies)
            fill(layout, self.copies, self._led(layout) if followers_evened else [0] * number, marks.copies.high)
            held = self._held(layout, moves)
            held = Band(
                max(held.low, min(held.low + narrower, marks.copies.low)),
                min(held.high, max(held.high - narrower, marks.copies.high)),
            )
            move(layout, held, marks.leaders.low)
            spread(layout, marks.copies)
            leading = Leading(layout, [_may_lead(marks, layout.count(node)) for node in range(number)])
            if leading.settle() or (held.low >= marks.copies.low and held.high <= marks.copies.high):
                return layout, leading
            narrower += 1

    def _held(self, layout: Layout, moves: int) -> Band:
        """The narrowest band into which so many moves bring the copies of all nodes."""
        counts = [layout.count(node) for node in range(layout.number_of_nodes)]
        lowest, highest = sum(counts) // len(counts), -(-sum(counts) // len(counts))
        widest = self._marks.widest

        def at(width: int) -> Band:
            return Band(max(widest.low, lowest - width), min(widest.high, highest + width))

        def affordable(width: int) -> bool:
            return moves_into(counts, at(width)) <= moves

        most = max(lowest - widest.low, widest.high - highest)
        return at(bisect_left(range(most), True, key=affordable))

    def _led(self, layout: Layout) -> list[int]:
        """How many slots each node leads when those without a leader get a follower of theirs, as evenly as can be."""
        leading = Leading(layout, [Band(0, self._marks.leaders.high)] * layout.number_of_nodes)
        leading.even(leading.promotions())
        return leading.counts

    def _spare(self, layout: Layout) -> int:
        """How many slots a node that comes alone has to take over, once what was missing is there again.

        Each is a copy that a scheme pays for whose replaced leaders do not stay as followers.
        """
        seen = {name for copies in self._before.values() for name in copies.holders}
        newcomers = [node for node, name in enumerate(self._names) if name not in seen]
        if len(newcomers) != 1 or self.copies < 2:
            return 0
        leading = Leading(layout, [self._marks.leaders] * layout.number_of_nodes)
        return max(self._marks.leaders.low - leading.counts[newcomers[0]], 0)

    def _rounds(self, layout: Layout, leading: Leading) -> tuple[Round, ...]:
        return schedule(self._before, self._table(layout, leading), self._rules)

    def _table(self, layout: Layout, leading: Leading) -> dict[int, Copies]:
        after = {}
        for index, (slot, copies) in enumerate(self._before.items()):
            leader = self._names[leading.leaders[index]]
            holders = {self._names[node] for node in layout.holders[index]}
            kept = [name for name in (*copies.followers, copies.leader) if name in holders and name != leader]
            new = sorted(holders - set(kept) - {leader})
            after[slot] = Copies(leader, (*kept, *new))
        return after


def _remaining(copies: Copies, present: set[str]) -> Copies:
    followers = tuple(dict.fromkeys(one for one in copies.followers if one in present and one != copies.leader))
    return Copies(copies.leader if copies.leader in present else "", followers)


def _layout(nodes: Sequence[Node], before: Mapping[int, Copies]) -> Layout:
    number = {node.name: index for index, node in enumerate(nodes)}
    places = {name: index for index, name in enumerate(sorted({node.datacenter for node in nodes}))}
    return Layout(
        [[number[name] for name in copies.holders] for copies in before.values()],
        [number.get(copies.leader, -1) for copies in before.values()],
        [places[node.datacenter] for node in nodes],
    )


def _may_lead(marks: Watermarks, held: int) -> Band:
    """How many slots a node with so many copies may lead, so that those it follows are within their marks too."""
    return Band(
        max(marks.leaders.low, held - marks.followers.high), min(marks.leaders.high, held - marks.followers.low)
    )
