"""Random sequences of nodes coming and going, and what has to hold of every placement; for tests only.

Run as a program, it tries as many sequences as its argument says, and tells how ours compares with SOFARegistry's:

    python -m tests.unit.topom.placement_sequences 10000

and with ``single`` after it, sequences in which one node at a time comes or goes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.unit.topom.sofaregistry_scheme import Scheme, Table
from topom.planners.placement import Copies, Node, Placement, Promotion, Rules, place
from topom.planners.placement.watermarks import Band, watermarks


@dataclass(frozen=True)
class Membership:
    """A table's rules, and the nodes that are there, step by step."""

    slots: int
    replicas: int
    steps: tuple[tuple[str, ...], ...]


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
    return Membership(chance.choice(sizes), chance.choice(replicas), tuple(steps))


def empty(slots: int) -> dict[int, Copies]:
    """A table that starts afresh."""
    return dict.fromkeys(range(slots), Copies())


def placements(one: Membership) -> Iterator[tuple[Mapping[int, Copies], tuple[str, ...], Placement]]:
    """For each step: the table before, the nodes, and what becomes of it."""
    table: Mapping[int, Copies] = empty(one.slots)
    for nodes in one.steps:
        placed = place([Node(name) for name in nodes], table, Rules(one.replicas))
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
    """From the node with the least to the one with the most."""
    return max(counts.values()) - min(counts.values())


def check(before: Mapping[int, Copies], nodes: Sequence[str], placed: Placement, rules: Rules) -> None:
    """Raise AssertionError unless the placement keeps to all that is promised."""
    wanted = min(rules.replicas, len(nodes))
    for slot, copies in placed.table.items():
        assert copies.leader in nodes, f"slot {slot} has no leader that is there"
        assert len(set(copies.holders)) == len(copies.holders) == wanted
        assert set(copies.holders) <= set(nodes)
    marks = watermarks(len(placed.table), wanted, len(nodes), rules.watermark)
    leads, follows = loads(placed.table, nodes)
    assert all(marks.leaders.holds(count) for count in leads.values()), (leads, marks)
    assert all(marks.followers.holds(count) for count in follows.values()), (follows, marks)
    replay(before, nodes, placed, rules)
    again = place([Node(name) for name in nodes], placed.table, rules)
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
        # Nodes that come are filled beyond the low watermarks, by no more than they are to have leaders.
        most += len(newcomers) * -(-len(placed.table) // len(nodes))
    assert made <= most, (made, most, marks, before, nodes, placed.table)


def bound(survivors: Mapping[int, set[str]], nodes: Sequence[str], wanted: int, held: Band) -> int:
    """The most copies that may be made: those that are missing, and those by which nodes are too far off afterwards."""
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
    """Do the rounds one by one: each has to be possible, within its limits, and the table comes out in the end."""
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
            # The second promotion of a slot whose leader was lost, to a copy made for it at once, ends the assignment.
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
        check(before, nodes, placed, Rules(one.replicas))
        step, table = their_step(one, nodes, table)
        _add(theirs, step)
        _add(ours, our_step(placed, nodes))
    return theirs, ours


def steps_from_the_same_table(one: Membership) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """SOFARegistry's and our measures of each step, both from our table; where SOFARegistry's comes to rest as ours."""
    for before, nodes, placed in placements(one):
        theirs, table = their_step(one, nodes, {slot: (held.leader, held.followers) for slot, held in before.items()})
        marks = watermarks(one.slots, min(one.replicas, len(nodes)), len(nodes), Rules(one.replicas).watermark)
        leads, follows = loads(_copies(table), nodes)
        if all(marks.leaders.holds(leads[node]) and marks.followers.holds(follows[node]) for node in nodes):
            yield theirs, our_step(placed, nodes)


def their_step(one: Membership, nodes: Sequence[str], before: Table) -> tuple[dict[str, int], Table]:
    """What SOFARegistry's scheme makes of a table, measured."""
    table, tally = Scheme(one.replicas, one.slots).arrange(nodes, before)
    return _measured(tally.leader_copies, tally.follower_copies, tally.rounds, _copies(table), nodes), table


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


def main() -> None:
    """Try sequences, and print the sums of both and how often ours did worse."""
    number = int(sys.argv[1])
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
