"""Where leaders and followers go after nodes came or left: makes several plans, and takes the best.

This holds for every plan, and is tested on random sequences of nodes that come and leave:

- A slot has ``min(replicas, nodes)`` copies on as many nodes, and one of them leads it.
- Leaders and followers of every node are within their watermarks. A table for which this is true is left as it is.
- Slots are in as many datacenters as possible: for more, even if nodes passed copies on, a node would hold more than it
  may (:mod:`~topom.placement.planner.spreading`).
- **What a node's loss costs.** If a node that held ``c`` copies leaves, ``c`` copies are made (none of a slot that all
  remaining nodes hold already). They go where there are fewest. Then copies are moved only while nodes have too many or
  too few for the watermarks: at most the larger of the two numbers. Slots that the node led are promoted without a copy
  if a follower is left. A *leader copy* is made only if no copy of a slot is left, or if ``replicas`` is 1.
- **What a new node costs.** The copies that lift it to the low watermarks, the copies that slots lacked, and at most
  its equal part of all leaders in addition.
- **What datacenters cost**, in addition: a copy for each datacenter that a slot gains. If nodes are full, also one copy
  in each datacenter on the way to a node that is not full, and one in the datacenter from which the first copy comes.
  And at most as many again as are moved, so that slots lose no datacenter by that.

**Which plan is best.** Plans are compared with SOFARegistry's scheme from this table in five counts: leader copies,
copies, rounds, how far leaders are apart, and how far followers are (:mod:`~topom.placement.planner.greedy`). Only the
plans that are worse in the fewest counts remain. Of these the best has the fewest leader copies, and then the smallest
sum of the other four. So one more copy or round is spent only if it brings leaders or followers closer together by as
much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from topom.placement.planner.greedy import Outcome, arrange
from topom.placement.planner.solving import Plan, Task, Way
from topom.placement.planner.table import Copies, InvalidPlacement, Node, Placement, Rules, check_nodes

MOST_SLOTS = 2_048
"""For tables with more slots fewer plans are made, and they are not compared with SOFARegistry's scheme: it would take
longer than all plans."""
MOST_PLACES = 65_536
"""Likewise for tables with more slots times nodes."""
MOST_WIDTHS = 6
"""How many widths are tried, if nodes have come and further copies may make the table more even."""


def place(nodes: Sequence[Node], table: Mapping[int, Copies], rules: Rules) -> Placement:
    """The table at rest for these nodes, and the rounds that lead to it.

    Args:
        nodes: the nodes that are there, in any order.
        table: which nodes hold each slot now, for every slot from 0 on; nodes that are not in ``nodes`` have left.
        rules: how many copies, how even, how many changes in a round.

    Raises:
        InvalidPlacement: there are no nodes or slots, or a node is there twice, or the rules make no sense.
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
    # Nodes that come while others leave have new copies that can lead. For a large table that counts as the shortest
    # way.
    first = task.plan(Way(new_copies_lead=not thorough and task.lost_leaders and task.further_copies > 0))
    if not first.placement.rounds:
        return first.placement
    return _best(task, first, _scheme(nodes, before, rules) if thorough else None, thorough).placement


def _remaining(copies: Copies, present: set[str]) -> Copies:
    followers = tuple(dict.fromkeys(one for one in copies.followers if one in present and one != copies.leader))
    return Copies(copies.leader if copies.leader in present else "", followers)


def _scheme(nodes: Sequence[Node], before: Mapping[int, Copies], rules: Rules) -> Outcome | None:
    """What SOFARegistry's scheme makes of the table; None if it does not apply, or does not fulfil the rules."""
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
    """The best of all plans; ``first`` is already made."""
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
    """Ways that make no needless copy, ``first`` among them; fewer for large tables."""
    if first.new_copies_lead:
        yield first
        return
    leading = (False, True) if thorough and task.lost_leaders else (False,)
    for new_copies_lead, followers_evened in product(leading, (False, True)):
        if task.lost_copies or not followers_evened:
            yield Way(followers_evened, new_copies_lead)


def _widths(task: Task, most_copies: int, number: int) -> list[int]:
    """Up to ``number`` widths that should need at most ``most_copies`` copies, the narrowest among them."""
    narrowest: dict[int, int] = {}
    for width in range(task.widest):
        moves = task.moves(width)
        if task.missing + moves <= most_copies:
            narrowest.setdefault(moves, width)
    widths = list(narrowest.values())
    return widths[:: -(-len(widths) // number)] if widths else []


def _worse(plan: Plan, bar: Sequence[int]) -> int:
    """In how many counts the plan is worse than the bar."""
    return sum(count > other for count, other in zip(plan.counts, bar, strict=True))


def _worth(plan: Plan) -> tuple[int, ...]:
    """The worth of a plan; less is better. Of plans with the same worth the most even one is taken."""
    leader_copies, *others = plan.counts
    copies, _, leaders, followers = others
    return leader_copies, plan.crowded, sum(others), max(leaders, followers), leaders + followers, copies, leaders
