"""Random sequences of nodes that come and go, and what has to be true for every placement; for tests only.

Run as a program, it tries as many sequences as its argument says, and compares our plans with SOFARegistry's:

    python -m tests.unit.topom.placement.planner.sequences 10000

and with ``single`` after it, sequences in which one node at a time comes or goes. With ``invariants`` after it, it only
looks whether every invariant holds, in sequences of nodes in datacenters and by rules of all kinds.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from topom.placement.planner import Copies, Node, Placement, Promotion, Rules, place
from topom.placement.planner.greedy import Outcome, arrange
from topom.placement.planner.watermarks import Band, watermarks

Table = dict[int, tuple[str, tuple[str, ...]]]
"""Leader and followers by slot."""


@dataclass(frozen=True)
class Membership:
    """A table's rules, and the nodes that are there, step by step; and where they are, if that is given."""

    slots: int
    rules: Rules
    steps: tuple[tuple[str, ...], ...]
    datacenters: Mapping[str, str] = field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """Copies of each slot."""
        return self.rules.replicas


def sequence(
    seed: int,
    sizes: Sequence[int] = (8, 16, 32),
    most_nodes: int = 8,
    most_steps: int = 6,
    at_once: Sequence[int] = (1, 1, 1, 2, 3),
    replicas: Sequence[int] = (1, 2, 2, 2, 3, 3, 4),
) -> Membership:
    """Nodes join and leave, ``at_once`` of them a step."""
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randint(1, most_nodes))]
    steps, number = [tuple(nodes)], len(nodes)
    for _ in range(chance.randint(1, most_steps)):
        for _ in range(chance.choice(at_once)):
            if len(nodes) < 2 or (chance.random() < 0.5 and len(nodes) < 2 * most_nodes):
                nodes.append(f"n{number}")
                number += 1
            else:
                nodes.remove(chance.choice(nodes))
        steps.append(tuple(chance.sample(nodes, len(nodes))))
    return Membership(chance.choice(sizes), Rules(chance.choice(replicas)), tuple(steps))


def over_datacenters(seed: int, sizes: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16), most_nodes: int = 6) -> Membership:
    """Nodes in one to four datacenters, which join and leave; and whole datacenters are lost, and come back."""
    chance = random.Random(seed)
    places = [f"d{number}" for number in range(chance.randint(1, 4))]
    rules = Rules(
        chance.choice((1, 2, 2, 2, 3, 3, 4)),
        watermark=chance.choice((10, 10, 10, 0, 30)),
        most_leader_changes=chance.choice((1, 2, 6)),
        most_follower_changes=chance.choice((1, 3, 10)),
        strict=chance.random() < 0.5,
    )
    where: dict[str, str] = {}

    def join() -> str:
        name = f"n{len(where)}"
        where[name] = chance.choice(places)
        return name

    nodes = [join() for _ in range(chance.randint(1, most_nodes))]
    lost: list[str] = []
    steps = [tuple(nodes)]
    for _ in range(chance.randint(1, 5)):
        kind = chance.choice(("join", "leave", "lose", "return"))
        away = chance.choice(places)
        left = [name for name in nodes if where[name] != away]
        if kind == "lose" and left and len(left) < len(nodes):
            lost += [name for name in nodes if where[name] == away]
            nodes = left
        elif kind == "return" and lost:
            nodes, lost = [*nodes, *lost], []
        elif kind == "leave" and len(nodes) > 1:
            nodes.remove(chance.choice(nodes))
        elif len(nodes) < 2 * most_nodes:
            nodes.append(join())
        steps.append(tuple(chance.sample(nodes, len(nodes))))
    return Membership(chance.choice(sizes), rules, tuple(steps), where)


def named(number: int, first: int = 0) -> list[Node]:
    """Nodes with consecutive numbers."""
    return [Node(f"n{index}") for index in range(first, first + number)]


def empty(slots: int) -> dict[int, Copies]:
    """A table without any copies."""
    return dict.fromkeys(range(slots), Copies())


def placements(one: Membership) -> Iterator[tuple[Mapping[int, Copies], tuple[str, ...], Placement]]:
    """For each step: the table before, the nodes, and the placement."""
    table: Mapping[int, Copies] = empty(one.slots)
    for nodes in one.steps:
        placed = place([Node(name, one.datacenters.get(name, "")) for name in nodes], table, one.rules)
        yield table, nodes, placed
        table = placed.table


def loads(table: Mapping[int, Copies], nodes: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """Slots led and slots followed, by node."""
    leads, follows = (Counter(dict.fromkeys(nodes, 0)) for _ in range(2))
    for copies in table.values():
        leads[copies.leader] += 1
        follows.update(copies.followers)
    return leads, follows


def apart(counts: Counter[str]) -> int:
    """The difference between the node with the least and the one with the most."""
    return max(counts.values()) - min(counts.values())


def check(
    before: Mapping[int, Copies],
    nodes: Sequence[str],
    placed: Placement,
    rules: Rules,
    datacenters: Mapping[str, str] | None = None,
) -> None:
    """Raise AssertionError unless the placement keeps all promises."""
    where = {name: (datacenters or {}).get(name, "") for name in nodes}
    wanted = min(rules.replicas, len(nodes))
    for slot, copies in placed.table.items():
        assert copies.leader in nodes, f"slot {slot} has no leader that is there"
        assert len(set(copies.holders)) == len(copies.holders) == wanted
        assert set(copies.holders) <= set(nodes)
    marks = watermarks(len(placed.table), wanted, len(nodes), rules.watermark, rules.strict)
    leads, follows = loads(placed.table, nodes)
    assert all(marks.leaders.holds(count) for count in leads.values()), (leads, marks)
    assert all(marks.followers.holds(count) for count in follows.values()), (follows, marks)
    replay(before, nodes, placed, rules)
    assert not can_be_spread(placed.table, where, marks.copies), (before, nodes, placed.table)
    again = place([Node(name, where[name]) for name in nodes], placed.table, rules)
    assert not again.rounds
    assert again.table == placed.table
    survivors = {slot: set(copies.holders) & set(nodes) for slot, copies in before.items()}
    made = sum(len(set(copies.holders) - survivors[slot]) for slot, copies in placed.table.items())
    assert placed.leader_copies + placed.follower_copies == made, "a copy was made for nothing"
    lost = sum(not holders for holders in survivors.values())
    if wanted > 1:
        assert placed.leader_copies == lost
    most = bound(survivors, nodes, wanted, marks.copies)
    newcomers = set(nodes).difference(*survivors.values())
    if newcomers != set(nodes) and wanted > 1:
        # Nodes that come are filled beyond the low watermarks by at most as many copies as they should have leaders.
        most += len(newcomers) * -(-len(placed.table) // len(nodes))
    number = len(set(where.values()))
    if number > 1:
        # A move may take one copy more, so that its slot loses no datacenter. A copy that goes to another one may
        # take one more at the node that it leaves, and in each on the way.
        most += most - sum(max(wanted - len(holders), 0) for holders in survivors.values())
        most += apart_in_vain(survivors, where, wanted) * (number + 1)
    assert made <= most, (made, most, marks, before, nodes, placed.table)


def apart_in_vain(held: Mapping[int, Collection[str]], where: Mapping[str, str], wanted: int) -> int:
    """In how many datacenters more slots could be with so many copies if there were no limits."""
    number = min(wanted, len(set(where.values())))
    return sum(number - min(number, len({where[node] for node in nodes})) for nodes in held.values())


def can_be_spread(table: Mapping[int, Copies], where: Mapping[str, str], held: Band) -> bool:
    """Whether copies may go from node to node so that slots are in more datacenters in sum.

    No node that is within the band leaves it, and none that is not gets further out. A copy that goes from one node to
    another is an edge that costs the datacenters lost, and nodes that may hold more or less are joined by the vertex
    "". So it can be done if there is a circle of negative cost, which is looked for as Floyd and Warshall do.
    """
    wanted = max(len(copies.holders) for copies in table.values())
    if not apart_in_vain({slot: copies.holders for slot, copies in table.items()}, where, wanted):
        return False
    far = 1 << 30
    cost = {one: dict.fromkeys(("", *where), far) for one in ("", *where)}
    counts = Counter(name for copies in table.values() for name in copies.holders)
    for node in where:
        cost[""][node] = 0 if counts[node] > held.low else far
        cost[node][""] = 0 if counts[node] < held.high else far
    for copies in table.values():
        places = [where[name] for name in copies.holders]
        for giver in copies.holders:
            left = [where[name] for name in copies.holders if name != giver]
            for taker in where.keys() - set(copies.holders):
                lost = len(set(places)) - len({*left, where[taker]})
                cost[giver][taker] = min(cost[giver][taker], lost)
    for over in cost:
        for one, costs in cost.items():
            for other in cost:
                costs[other] = min(costs[other], cost[one][over] + cost[over][other])
    return any(costs[one] < 0 for one, costs in cost.items())


def bound(survivors: Mapping[int, set[str]], nodes: Sequence[str], wanted: int, held: Band) -> int:
    """The most copies that may be made: those that are missing, and as many as nodes are too far off afterwards."""
    counts = Counter(dict.fromkeys(nodes, 0))
    for holders in survivors.values():
        counts.update(holders)
    missing = sum(max(wanted - len(holders), 0) for holders in survivors.values())
    lacking = [holders for holders in survivors.values() if len(holders) < wanted]
    room = {node: sum(node not in holders for holders in lacking) for node in nodes}
    for _ in range(missing):
        node = min((node for node in nodes if room[node]), key=lambda node: counts[node])
        counts[node] += 1
        room[node] -= 1
    too_many = sum(max(count - held.high, 0) for count in counts.values())
    too_few = sum(max(held.low - count, 0) for count in counts.values())
    return missing + max(too_many, too_few)


def replay(before: Mapping[int, Copies], nodes: Sequence[str], placed: Placement, rules: Rules) -> None:
    """Do the rounds one by one. Each has to be possible and within its limits, and they have to lead to the table."""
    leaders = {slot: copies.leader if copies.leader in nodes else "" for slot, copies in before.items()}
    whole = {slot: {name for name in copies.holders if name in nodes} for slot, copies in before.items()}
    lost_leader = {slot for slot, leader in leaders.items() if not leader}

    def before_nodes(promotion: Promotion) -> tuple[str, ...]:
        return before[promotion.slot].holders

    for number, one in enumerate(placed.rounds):
        leader_changes = follower_changes = 0
        held_before = {slot: set(holders) for slot, holders in whole.items()}
        for promotion in one.promotions:
            assert promotion.node in held_before[promotion.slot]
            assert promotion.node != leaders[promotion.slot]
            # If a slot lost its leader, its second promotion, to a copy made for it at once, ends the assignment.
            assigned = number == 1 and promotion.slot in lost_leader and promotion.node not in before_nodes(promotion)
            leader_changes += bool(leaders[promotion.slot]) and not assigned
            leaders[promotion.slot] = promotion.node
        for copy in one.copies:
            assert copy.node not in whole[copy.slot]
            whole[copy.slot].add(copy.node)
            if copy.leads:
                leader_changes += bool(leaders[copy.slot])
                leaders[copy.slot] = copy.node
            elif copy.instead_of:
                follower_changes += 1
            if copy.instead_of:
                assert copy.instead_of != leaders[copy.slot]
                whole[copy.slot].remove(copy.instead_of)
            else:
                assert number == 0
        assert leader_changes <= rules.most_leader_changes
        assert follower_changes <= rules.most_follower_changes
        assert number or all(leaders.values()), "a slot waits for its leader"
    assert leaders == {slot: copies.leader for slot, copies in placed.table.items()}
    surplus = {slot for slot, copies in before.items() if len(copies.holders) > rules.replicas}
    for slot, copies in placed.table.items():
        assert whole[slot] >= set(copies.holders)
        assert whole[slot] == set(copies.holders) or slot in surplus or len(whole[slot]) > len(nodes)
    assert lost_leader <= set(before)


STEP_MEASURES = ("leader copies", "copies", "rounds", "leaders apart", "followers apart")
MEASURES = (*STEP_MEASURES, "leaders apart in the end", "followers apart in the end")


def compare(one: Membership) -> tuple[Counter[str], Counter[str]]:
    """SOFARegistry's and our measures, summed over the steps; each scheme goes on from its own tables."""
    theirs, ours = Counter(dict.fromkeys(MEASURES, 0)), Counter(dict.fromkeys(MEASURES, 0))
    table: Table = {}
    for before, nodes, placed in placements(one):
        check(before, nodes, placed, one.rules, one.datacenters)
        their = their_step(one, nodes, table)
        if their is None:
            break
        step, table = their
        _add(theirs, step)
        _add(ours, our_step(placed, nodes))
    return theirs, ours


def steps_from_the_same_table(one: Membership) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """SOFARegistry's and our measures of each step, both from our table, if the scheme comes to rest as ours does."""
    for before, nodes, placed in placements(one):
        their = their_step(one, nodes, {slot: (held.leader, held.followers) for slot, held in before.items()})
        if their is None:
            continue
        theirs, table = their
        marks = watermarks(one.slots, min(one.replicas, len(nodes)), len(nodes), Rules(one.replicas).watermark)
        leads, follows = loads(_copies(table), nodes)
        if all(marks.leaders.holds(leads[node]) and marks.followers.holds(follows[node]) for node in nodes):
            yield theirs, our_step(placed, nodes)


def their_step(one: Membership, nodes: Sequence[str], before: Table) -> tuple[dict[str, int], Table] | None:
    """What SOFARegistry's scheme makes of a table, measured; None if it does not come to rest."""
    made = by_scheme(one.replicas, one.slots, nodes, before)
    if made is None:
        return None
    outcome, table = made
    followers = outcome.copies - outcome.leader_copies
    return _measured(outcome.leader_copies, followers, outcome.rounds, _copies(table), nodes), table


def by_scheme(
    replicas: int, slots: int, nodes: Sequence[str], before: Mapping[int, tuple[str, tuple[str, ...]]]
) -> tuple[Outcome, Table] | None:
    """What SOFARegistry's scheme makes of a table, and the table then; None if it does not come to rest."""
    names = sorted(nodes)
    number = {name: index for index, name in enumerate(names)}
    held = [before.get(slot, ("", ())) for slot in range(slots)]
    leaders = [number.get(leader, -1) for leader, _ in held]
    followers = [[number[name] for name in others if name in number] for _, others in held]
    outcome = arrange(len(names), leaders, followers, Rules(replicas))
    if outcome is None:
        return None
    table = {
        slot: (names[leader], tuple(sorted(names[node] for node in outcome.followers[slot])))
        for slot, leader in enumerate(outcome.leaders)
    }
    return outcome, table


def our_step(placed: Placement, nodes: Sequence[str]) -> dict[str, int]:
    """Our placement, measured."""
    return _measured(placed.leader_copies, placed.follower_copies, len(placed.rounds), placed.table, nodes)


def _copies(table: Table) -> dict[int, Copies]:
    return {slot: Copies(leader, followers) for slot, (leader, followers) in table.items()}


def _measured(
    leader_copies: int, follower_copies: int, rounds: int, table: Mapping[int, Copies], nodes: Sequence[str]
) -> dict[str, int]:
    leads, follows = loads(table, nodes)
    figures = (leader_copies, leader_copies + follower_copies, rounds, apart(leads), apart(follows))
    return dict(zip(STEP_MEASURES, figures, strict=True))


def _add(sums: Counter[str], step: Mapping[str, int]) -> None:
    sums.update(step)
    for name in ("leaders apart", "followers apart"):
        sums[f"{name} in the end"] = step[name]


def check_sequence(seed: int) -> Counter[str]:
    """Raise AssertionError unless every invariant holds in a sequence over datacenters; gives counts of what it was."""
    one = over_datacenters(seed)
    found = Counter({"sequences": 1, "of several datacenters": len(set(one.datacenters.values())) > 1})
    found["by strict watermarks"] = one.rules.strict
    for before, nodes, placed in placements(one):
        try:
            check(before, nodes, placed, one.rules, one.datacenters)
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}") from error
        where = {name: one.datacenters[name] for name in nodes}
        together = apart_in_vain({slot: copies.holders for slot, copies in placed.table.items()}, where, one.replicas)
        found.update({"steps": 1, "rounds": len(placed.rounds), "promotions": placed.promotions})
        found.update({"leader copies": placed.leader_copies, "follower copies": placed.follower_copies})
        found["steps after which copies had to share a datacenter"] += together > 0
    return found


def main() -> None:
    """Try sequences, and print the sums of both and how often our plans were worse."""
    number = int(sys.argv[1])
    if sys.argv[2:] == ["invariants"]:
        found = sum((check_sequence(seed) for seed in range(number)), Counter[str]())
        print("every invariant held:", ", ".join(f"{count} {name}" for name, count in found.items()))
        return
    at_once = (1,) if sys.argv[2:] == ["single"] else (1, 1, 1, 2, 3)
    theirs, ours, worse, worse_steps = (Counter[str]() for _ in range(4))
    for seed in range(number):
        one = sequence(seed, sizes=(8, 16, 32, 64, 128), most_steps=10, at_once=at_once)
        their_sums, our_sums = compare(one)
        theirs.update(their_sums)
        ours.update(our_sums)
        if one.replicas > 1:
            worse.update({name: our_sums[name] > their_sums[name] for name in MEASURES})
            for their, our in steps_from_the_same_table(one):
                worse_steps.update({name: our[name] > their[name] for name in STEP_MEASURES})
                worse_steps.update({"steps": 1, "fewer leader copies": our["leader copies"] < their["leader copies"]})
                if our["leader copies"] == their["leader copies"]:
                    worse_steps["worse at as many leader copies"] += any(our[one] > their[one] for one in STEP_MEASURES)
    print(f"{number} sequences, every invariant held")
    for name in MEASURES:
        print(f"{name:26} SOFARegistry {theirs[name]:9} ours {ours[name]:9}  ours worse in {worse[name]} sequences")
    print("steps from the same table, at rest with both:", dict(worse_steps))


if __name__ == "__main__":
    main()
