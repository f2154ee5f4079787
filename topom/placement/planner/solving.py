"""Makes one plan of those that are compared: first the copies, by their number, then the leaders, then the rounds.

No copies are needed to even out leaders: if all nodes hold about equally many copies, leaders can be chosen among the
holders so that all lead about equally many (:mod:`~topom.placement.planner.watermarks`). So copies are placed first, by
their number alone. Then leaders are chosen, as a flow (:mod:`~topom.placement.planner.leading`). If that flow finds no
way because copies are only just within their band, the band is narrowed and it is tried again. Before leaders are
chosen, copies go to other datacenters (:mod:`~topom.placement.planner.spreading`) while such leaders remain possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from topom.placement.planner.filling import even_out, fill, pass_on, trim
from topom.placement.planner.greedy import Outcome
from topom.placement.planner.layout import Layout
from topom.placement.planner.leading import EVERY_PATH, NOT_YET_COPIED, Leading
from topom.placement.planner.moving import move, moves_into
from topom.placement.planner.rounds import schedule
from topom.placement.planner.spreading import spread
from topom.placement.planner.table import Copies, Node, Placement, Round, Rules
from topom.placement.planner.watermarks import Band, Watermarks, watermarks


@dataclass(frozen=True, slots=True)
class Way:
    """How a plan is made.

    Attributes:
        followers_evened: whether missing copies even out followers only, and not all copies.
        new_copies_lead: whether, in slots that lost their leader, copies that are still to be made lead as readily as
            others.
        width: how many copies nodes may be off the even share; the watermarks always are a limit, too.
        further_rounds: how many rounds more than needed may be used to even out leaders.
    """

    followers_evened: bool = False
    new_copies_lead: bool = False
    width: int = 1 << 60
    further_rounds: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement, and its worth.

    Attributes:
        leaders_apart: the difference in slots led between the node with the most and the one with the fewest.
        followers_apart: likewise for slots followed.
        crowded: how many copies share a datacenter with another one of their slot, if there are several datacenters.
        way: how it was made; None if it is SOFARegistry's.
    """

    placement: Placement
    leaders_apart: int
    followers_apart: int
    crowded: int
    way: Way | None

    @property
    def copies(self) -> int:
        """All copies made."""
        return self.placement.leader_copies + self.placement.follower_copies

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.placement.rounds)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Leader copies, copies, rounds, and how far leaders and followers are apart."""
        return self.placement.leader_copies, self.copies, self.rounds, self.leaders_apart, self.followers_apart


class Task:
    """Nodes, and the table from which plans are made.

    Attributes:
        copies: how many copies each slot gets.
        missing: how many copies must be made in any case.
        lost_copies: whether there are slots that have copies left, but too few.
        lost_leaders: whether there are slots that have copies left, but no leader.
        further_copies: how many copies may be made to even out nodes: as many as the leaders that new nodes should
            have.
        widest: how many copies at most the watermarks let a node be off the even share.
    """

    def __init__(self, nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules) -> None:
        self._nodes = nodes
        self._names = [node.name for node in nodes]
        self._before = before
        self._rules = rules
        self.number_of_nodes = len(nodes)
        self.copies = min(rules.replicas, len(nodes))
        self._marks: Watermarks = watermarks(len(before), self.copies, len(nodes), rules.watermark, rules.strict)
        self.missing = sum(max(self.copies - len(one.holders), 0) for one in before.values())
        self.lost_copies = any(0 < len(one.holders) < self.copies for one in before.values())
        self.lost_leaders = any(one.followers and not one.leader for one in before.values())
        holding = {name for one in before.values() for name in one.holders}
        newcomers = len(nodes) - len(holding) if holding and self.copies > 1 else 0
        self.further_copies = newcomers * -(-len(before) // len(nodes))
        total = len(before) * self.copies
        self._fewest_held, self._most_held = total // len(nodes), -(-total // len(nodes))
        widest = self._marks.widest
        self.widest = max(self._fewest_held - widest.low, widest.high - self._most_held)
        self._counts: list[int] = []

    def plan(self, way: Way) -> Plan:
        """The plan that is made this way."""
        layout, leading = self._solve(way)
        return self._finished(layout, leading, way)

    def moves(self, width: int) -> int:
        """How many copies, besides missing ones, must move so that no node is further off than ``width``."""
        if not self._counts:
            layout = self._filled(False)
            self._counts = [layout.count(node) for node in range(self.number_of_nodes)]
        return moves_into(self._counts, self._held(width))

    def like(self, scheme: Outcome) -> Iterator[Plan]:
        """Plans with the scheme's holders: with our leaders, and with the scheme's. No plan if its table is not at
        rest.
        """
        layout = _layout(self._nodes, self._before)
        for slot, held in enumerate(scheme.followers):
            wanted = {scheme.leaders[slot], *held}
            for node in layout.holders[slot] - wanted:
                layout.remove(slot, node)
            for node in sorted(wanted - layout.holders[slot]):
                layout.add(slot, node)
        leading = self._leading(layout, Way())
        if leading.balance():
            yield self._as_plan(layout, leading, None)
            leading.restore(scheme.leaders)
            if leading.is_balanced():
                yield self._as_plan(layout, leading, None)

    def _finished(self, layout: Layout, leading: Leading, way: Way) -> Plan:
        needed = len(self._rounds(layout, leading))
        if needed:
            self._even(layout, leading, needed + way.further_rounds)
        return self._as_plan(layout, leading, way)

    def _as_plan(self, layout: Layout, leading: Leading, way: Way | None) -> Plan:
        table = self._table(layout, leading)
        leaders, followers = leading.leaders_and_followers_apart()
        placement = Placement(table, schedule(self._before, table, self._rules))
        return Plan(placement, leaders, followers, layout.crowded(), way)

    def _even(self, layout: Layout, leading: Leading, most_rounds: int) -> None:
        """Even out leaders and followers as much as so many rounds have room for; no copy is made for that."""
        balanced = list(leading.leaders)
        most_promotions = max(leading.promotions(), self._rules.most_leader_changes * most_rounds)
        for dearest in (EVERY_PATH, NOT_YET_COPIED):
            leading.even(most_promotions, dearest)
            if len(self._rounds(layout, leading)) <= most_rounds:
                break
            leading.restore(balanced)
        even_out(layout, leading.counts, leading.leaders, self._marks.copies)

    def _filled(self, followers_evened: bool) -> Layout:
        """The copies once none is missing and none is too many."""
        layout = _layout(self._nodes, self._before)
        trim(layout, self.copies)
        leads = self._led(layout) if followers_evened else [0] * self.number_of_nodes
        fill(layout, self.copies, leads, self._marks.copies.high)
        if self._rules.strict:
            pass_on(layout, self._marks.copies)
        return layout

    def _solve(self, way: Way) -> tuple[Layout, Leading]:
        """Gives copies and leaders within the watermarks."""
        marks = self._marks
        narrower = 0
        while True:
            layout = self._filled(way.followers_evened)
            held = self._held(way.width)
            held = Band(
                max(held.low, min(held.low + narrower, marks.copies.low)),
                min(held.high, max(held.high - narrower, marks.copies.high)),
            )
            move(layout, held, marks.leaders.low)
            spread(layout, marks.copies)
            leading = self._leading(layout, way)
            if leading.balance() or (held.low >= marks.copies.low and held.high <= marks.copies.high):
                return layout, leading
            narrower += 1

    def _leading(self, layout: Layout, way: Way) -> Leading:
        bands = [_may_lead(self._marks, layout.count(node)) for node in range(self.number_of_nodes)]
        return Leading(layout, bands, new_copies_lead=way.new_copies_lead)

    def _held(self, width: int) -> Band:
        """How many copies a node may hold that is at most ``width`` off the even share, and within the watermarks."""
        widest = self._marks.widest
        return Band(max(widest.low, self._fewest_held - width), min(widest.high, self._most_held + width))

    def _led(self, layout: Layout) -> list[int]:
        """How many slots each node leads if slots without a leader get one of their followers, as even as possible."""
        leading = Leading(layout, [Band(0, self._marks.leaders.high)] * layout.number_of_nodes)
        leading.even(leading.promotions())
        return leading.counts

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


def _layout(nodes: Sequence[Node], before: Mapping[int, Copies]) -> Layout:
    number = {node.name: index for index, node in enumerate(nodes)}
    places = {name: index for index, name in enumerate(sorted({node.datacenter for node in nodes}))}
    return Layout(
        [[number[name] for name in copies.holders] for copies in before.values()],
        [number.get(copies.leader, -1) for copies in before.values()],
        [places[node.datacenter] for node in nodes],
    )


def _may_lead(marks: Watermarks, held: int) -> Band:
    """How many slots a node with so many copies may lead, so that the slots that it follows are within their marks,
    too.
    """
    return Band(
        max(marks.leaders.low, held - marks.followers.high), min(marks.leaders.high, held - marks.followers.low)
    )
