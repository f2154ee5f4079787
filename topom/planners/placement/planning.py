"""Where leaders and followers go when nodes have come or gone: the fewest copies first, then the fewest rounds.

What holds of every plan, and is tested on random sequences of nodes coming and going:

- A slot has ``min(replicas, nodes)`` copies on as many nodes, and one of them leads it.
- Leaders and followers of every node are within their watermarks, and a table that is so is left as it is.
- **What a node's loss costs.** When a node leaves that held ``c`` copies, ``c`` copies are made (none of a slot that
  all nodes left hold already). They go where there are fewest; as many more are moved, at most, as nodes then have too
  many, or, where that is more, too few for the watermarks. Slots that it led are promoted without a copy wherever a
  follower is left. A *leader copy* is made only of a slot of which no copy is left, or where ``replicas`` is 1.
- **What a node's coming costs.** The copies that lift it to the low watermarks, and those that slots were without.

Leaders need no copies to be evened out: if all nodes hold about equally many copies, then leaders can be chosen among
the holders such that all lead about equally many (:mod:`~topom.planners.placement.watermarks`). So copies are placed
first, by their number alone, and leaders are chosen afterwards, as a flow (:mod:`~topom.planners.placement.leading`).
Where that flow finds no way because copies are only just within their band, the band is narrowed and it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topom.planners.placement.filling import fill, trim
from topom.planners.placement.layout import Layout
from topom.planners.placement.leading import Leading
from topom.planners.placement.moving import move
from topom.planners.placement.rounds import schedule
from topom.planners.placement.table import Copies, InvalidPlacement, Node, Placement, Rules, check_nodes
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
    first = _placement(nodes, before, rules, followers_evened=False)
    copies = min(rules.replicas, len(nodes))
    if not any(0 < len(one.holders) < copies for one in before.values()):
        return first
    # Where copies were lost, nodes may be given equally many copies or equally many followers; either may be better.
    return min(first, _placement(nodes, before, rules, followers_evened=True), key=lambda one: _worth(one, nodes))


def _placement(nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules, followers_evened: bool) -> Placement:
    names = [node.name for node in nodes]
    layout, leading = _solve(nodes, before, rules, followers_evened)
    after = _table(layout, leading, names, before)
    rounds = schedule(before, after, rules)
    if rounds:
        # Rounds that have to be may as well be used up.
        leading.even(max(leading.promotions(), rules.most_leader_changes * len(rounds)))
        evener = _table(layout, leading, names, before)
        evener_rounds = schedule(before, evener, rules)
        if len(evener_rounds) <= len(rounds):
            after, rounds = evener, evener_rounds
    return Placement(after, rounds)


def _worth(placement: Placement, nodes: Sequence[Node]) -> tuple[int, int, int, int]:
    """Less is better: leader copies, copies, rounds, and how far apart nodes are in leaders and in followers."""
    leads, follows = ({node.name: 0 for node in nodes} for _ in range(2))
    for copies in placement.table.values():
        leads[copies.leader] += 1
        for follower in copies.followers:
            follows[follower] += 1
    apart = sum(max(counts.values()) - min(counts.values()) for counts in (leads, follows))
    copies_made = placement.leader_copies + placement.follower_copies
    return placement.leader_copies, copies_made, len(placement.rounds), apart


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


def _solve(
    nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules, followers_evened: bool
) -> tuple[Layout, Leading]:
    """Copies and leaders within the watermarks."""
    copies = min(rules.replicas, len(nodes))
    marks = watermarks(len(before), copies, len(nodes), rules.watermark)
    held = marks.widest
    while True:
        layout = _layout(nodes, before)
        trim(layout, copies)
        fill(layout, copies, _led(layout, marks) if followers_evened else [0] * len(nodes), marks.copies.high)
        move(layout, held, marks.leaders.low)
        leading = Leading(layout, [_may_lead(marks, layout.count(node)) for node in range(len(nodes))])
        if leading.settle() or held == marks.copies:
            return layout, leading
        held = Band(min(held.low + 1, marks.copies.low), max(held.high - 1, marks.copies.high))


def _may_lead(marks: Watermarks, held: int) -> Band:
    """How many slots a node with so many copies may lead, so that those it follows are within their marks too."""
    return Band(
        max(marks.leaders.low, held - marks.followers.high), min(marks.leaders.high, held - marks.followers.low)
    )


def _led(layout: Layout, marks: Watermarks) -> list[int]:
    """How many slots each node leads when those without a leader get one of their followers, as evenly as that goes."""
    leading = Leading(layout, [Band(0, marks.leaders.high)] * layout.number_of_nodes)
    leading.even(leading.promotions())
    return leading.counts


def _table(layout: Layout, leading: Leading, names: Sequence[str], before: Mapping[int, Copies]) -> dict[int, Copies]:
    after = {}
    for index, (slot, copies) in enumerate(before.items()):
        leader = names[leading.leaders[index]]
        holders = {names[node] for node in layout.holders[index]}
        kept = [name for name in (*copies.followers, copies.leader) if name in holders and name != leader]
        new = sorted(holders - set(kept) - {leader})
        after[slot] = Copies(leader, (*kept, *new))
    return after
