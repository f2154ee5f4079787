"""Where leaders and followers go when nodes have come or gone: several plans are made, and the best is taken.

What holds of every plan, and is tested on random sequences of nodes coming and going:

- A slot has ``min(replicas, nodes)`` copies on as many nodes, and one of them leads it.
- Leaders and followers of every node are within their watermarks, and a table that is so is left as it is.
- Slots cannot be in more datacenters than they are, even if nodes pass copies on, without a node that holds more than
  it may (:mod:`~topom.placement.planner.spreading`).
- **What a node's loss costs.** When a node leaves that held ``c`` copies, ``c`` copies are made (none of a slot that
  all nodes left hold already). They go where there are fewest; as many more are moved, at most, as nodes then have too
  many, or, where that is more, too few for the watermarks. Slots that it led are promoted without a copy wherever a
  follower is left. A *leader copy* is made only of a slot of which no copy is left, or where ``replicas`` is 1.
- **What a node's coming costs.** The copies that lift it to the low watermarks, those that slots were without, and at
  most as many more as it is to have leaders if all have equally many.
- **What datacenters cost**, on top: a copy for each that a slot gains, and where nodes are full one in each datacenter
  on the way to one that is not, and one in the datacenter that the first copy comes from. And at most as many again as
  are moved, for slots to lose no datacenter by that.

**Which plan is best.** First those that are worse than SOFARegistry's scheme from this table in the fewest counts:
leader copies, copies, rounds, how far leaders are apart, and followers (:mod:`~topom.placement.planner.greedy`). Of
these the one with the fewest leader copies, and then with the smallest sum of the other four: a copy or a round more is
spent only on what brings leaders or followers closer together by as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from topom.placement.planner.greedy import Outcome, arrange
from topom.placement.planner.solving import Plan, Task, Way
from topom.placement.planner.table import Copies, InvalidPlacement, Node, Placement, Rules, check_nodes

MOST_SLOTS = 2_048
"""Of tables with more slots fewer plans are made, and they are not held against SOFARegistry's scheme: it would take
longer than all plans."""
MOST_PLACES = 65_536
"""Likewise of tables with more slots times nodes."""
MOST_WIDTHS = 6
"""Widths that are tried, where nodes have come and further copies may make all evener."""


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
    task = Task(nodes, before, rules)
    thorough = len(before) <= MOST_SLOTS and len(before) * len(nodes) <= MOST_PLACES
    # Nodes that come while others leave have new copies to lead: of a large table that is taken for the shortest.
    first = task.plan(Way(new_copies_lead=not thorough and task.lost_leaders and task.further_copies > 0))
    if not first.placement.rounds:
        return first.placement
    return _best(task, first, _scheme(nodes, before, rules) if thorough else None, thorough).placement


def _remaining(copies: Copies, present: set[str]) -> Copies:
    followers = tuple(dict.fromkeys(one for one in copies.followers if one in present and one != copies.leader))
    return Copies(copies.leader if copies.leader in present else "", followers)


def _scheme(nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules) -> Outcome | None:
    """What SOFARegistry's scheme makes of the table; None where it cannot be had, or does not do what is asked."""
    copies = min(rules.replicas, len(nodes))
    if copies < 2 or rules.strict or len({node.datacenter for node in nodes}) > 1:
        return None
    number = {node.name: index for index, node in enumerate(nodes)}
    leaders = [number.get(one.leader, -1) for one in before.values()]
    followers = [[number[name] for name in one.followers] for one in before.values()]
    outcome = arrange(len(nodes), leaders, followers, rules)
    if outcome is None or any(len(held) != copies - 1 for held in outcome.followers):
        return None
    return outcome


def _best(task: Task, first: Plan, scheme: Outcome | None, thorough: bool) -> Plan:
    """The best of all plans; ``first`` is made already."""
    plain = list(_plain_ways(task, first.way or Way(), thorough))
    plans = [first, *(task.plan(way) for way in plain if way != first.way)]
    most_copies = min(plan.copies for plan in plans) + task.further_copies
    if task.further_copies:
        for width in _widths(task, most_copies, MOST_WIDTHS if thorough else 1):
            plans.extend(task.plan(replace(way, width=width)) for way in (plain if thorough else plain[:1]))
    plans = [plan for plan in plans if plan.copies <= most_copies]
    if scheme is None:
        return min(plans, key=_worth)
    bar = scheme.counts(task.number_of_nodes)
    fewest_worse = min(_worse(plan, bar) for plan in plans)
    if fewest_worse:
        plans.extend(plan for plan in task.like(scheme) if plan.copies <= most_copies)
        fewest_worse = min(_worse(plan, bar) for plan in plans)
    best = min((plan for plan in plans if _worse(plan, bar) == fewest_worse), key=_worth)
    if best.way is not None and best.rounds < scheme.rounds:
        longer = task.plan(replace(best.way, further_rounds=1))
        if _worse(longer, bar) <= fewest_worse:
            return min(best, longer, key=_worth)
    return best


def _plain_ways(task: Task, first: Way, thorough: bool) -> Iterator[Way]:
    """Ways to make no copy that can be spared, ``first`` among them. Of large tables fewer."""
    if first.new_copies_lead:
        yield first
        return
    leading = (False, True) if thorough and task.lost_leaders else (False,)
    for new_copies_lead, followers_evened in product(leading, (False, True)):
        if task.lost_copies or not followers_evened:
            yield Way(followers_evened, new_copies_lead)


def _widths(task: Task, most_copies: int, number: int) -> list[int]:
    """Up to so many widths at which no more copies should be made than that, the narrowest among them."""
    narrowest: dict[int, int] = {}
    for width in range(task.widest):
        moves = task.moves(width)
        if task.missing + moves <= most_copies:
            narrowest.setdefault(moves, width)
    widths = list(narrowest.values())
    return widths[:: -(-len(widths) // number)] if widths else []


def _worse(plan: Plan, bar: Sequence[int]) -> int:
    """In how many counts the plan is worse."""
    return sum(count > other for count, other in zip(plan.counts, bar, strict=True))


def _worth(plan: Plan) -> tuple[int, ...]:
    """Less is better. Of plans that are worth the same the evenest is taken."""
    leader_copies, *others = plan.counts
    copies, _, leaders, followers = others
    return leader_copies, plan.crowded, sum(others), max(leaders, followers), leaders + followers, copies, leaders
