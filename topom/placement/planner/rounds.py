"""From one table to another in rounds, with at most so many changes in each.

Slots that lack a leader or followers get all of them in the first round. If a slot lacked its leader and a copy made in
that round should lead it, a follower leads it meanwhile. The copy leads from the second round on, no matter how many
such slots there are. Changes of slots that lack nothing keep to the limits. A copy is made before the one that it
replaces goes; a copy made in a round leads only in a later one; and a leader's copy goes only once another node leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from topom.placement.planner.table import Copies, Copy, Promotion, Round, Rules

Steps = deque[Promotion | Copy]
"""The steps that are left for one slot, in this order."""
Queues = tuple[list[int], list[int]]
"""Two heaps of slots, by their place in the order: slots whose next step changes a follower, and slots whose next step
changes a leader."""


def schedule(before: Mapping[int, Copies], after: Mapping[int, Copies], rules: Rules) -> tuple[Round, ...]:
    """The rounds that lead from ``before`` to ``after``; ``before`` names only nodes that are there."""
    promoted: list[Promotion] = []
    filled: list[Copy] = []
    assigned: list[Promotion] = []
    waiting = [_fill(slot, before[slot], wanted, promoted, filled, assigned) for slot, wanted in after.items()]
    # Copies that will lead come first, so that their promotions do not wait for the last round of copies.
    waiting.sort(key=_urgency)
    queues: Queues = ([], [])
    for index, steps in enumerate(waiting):
        _queue(queues, index, steps)
    rounds = []
    while promoted or filled or any(queues):
        promotions, copies = _one_round(waiting, queues, {(copy.slot, copy.node) for copy in filled}, rules)
        rounds.append(Round((*promoted, *promotions), (*filled, *copies)))
        promoted, filled, assigned = assigned, [], []
    return tuple(rounds)


def _queue(queues: Queues, index: int, steps: Steps) -> None:
    """Put a slot into the queue of its next step, if it has one."""
    if steps:
        heappush(queues[_is_leader_change(steps[0])], index)


def _is_leader_change(step: Promotion | Copy) -> bool:
    return isinstance(step, Promotion) or step.leads


def _urgency(steps: Steps) -> tuple[bool, bool]:
    copied_to_lead = len(steps) > 1 and isinstance(steps[-1], Promotion)
    return not copied_to_lead, not (steps and isinstance(steps[0], Promotion))


def _fill(
    slot: int, before: Copies, wanted: Copies, promoted: list[Promotion], filled: list[Copy], assigned: list[Promotion]
) -> Steps:
    """Put what the slot lacks into the first round, and what follows from it into the second; gives the rest."""
    kept = [node for node in wanted.holders if node in before.holders]
    if before.leader == wanted.leader and len(kept) == len(wanted.holders):
        return deque()
    # The copy that will lead comes first: if any is made at once, it is that one.
    new = sorted((node for node in wanted.holders if node not in kept), key=lambda node: (node != wanted.leader, node))
    gone = sorted((node for node in before.holders if node not in kept), key=lambda node: (node == before.leader, node))
    leader = before.leader
    if not before.holders:
        leader = wanted.leader
        filled.append(Copy(slot, leader, leads=True))
        new.remove(leader)
    elif not leader:
        leader = wanted.leader if wanted.leader in kept else (kept or gone)[0]
        gone.sort(key=lambda node: (node == leader, node))
        promoted.append(Promotion(slot, leader))
    replaced = gone[max(len(gone) - len(new), 0) :]
    missing = len(new) - len(replaced)
    filled.extend(Copy(slot, node) for node in new[:missing])
    moves: Sequence[Copy] = [
        Copy(slot, node, instead_of=old) for node, old in zip(new[missing:], replaced, strict=True)
    ]
    promotion = Promotion(slot, wanted.leader)
    if leader == wanted.leader:
        return deque(moves)
    if not before.leader and wanted.leader in new[:missing] and not moves:
        # This replaces the lost leader for good, which is part of the missing changes.
        assigned.append(promotion)
        return deque()
    if wanted.leader not in new[missing:]:
        return deque([promotion, *moves])
    if len(wanted.holders) == 1:
        return deque([Copy(slot, wanted.leader, leads=True, instead_of=leader)])
    if leader not in replaced:
        return deque([*moves, promotion])
    if len(moves) > 1:
        return deque([*moves[:-1], promotion, moves[-1]])
    return deque([Promotion(slot, (*kept, *new[:missing])[0]), *moves, promotion])


def _one_round(
    waiting: Sequence[Steps], queues: Queues, fresh: set[tuple[int, str]], rules: Rules
) -> tuple[list[Promotion], list[Copy]]:
    """Take as many waiting steps as one round may have; ``fresh`` copies cannot lead yet."""
    promotions: list[Promotion] = []
    copies: list[Copy] = []
    left = [rules.most_follower_changes, rules.most_leader_changes]
    seen: list[int] = []
    while ready := [queue for queue, room in zip(queues, left, strict=True) if queue and room]:
        # Each slot is looked at once in a round; slots that come first are served first.
        index = heappop(min(ready))
        seen.append(index)
        steps = waiting[index]
        while steps and left[_is_leader_change(steps[0])]:
            step = steps[0]
            if isinstance(step, Promotion):
                if (step.slot, step.node) not in fresh:
                    left[True] -= 1
                    promotions.append(step)
                    steps.popleft()
                # The copy of a replaced leader goes in a later round.
                break
            left[step.leads] -= 1
            fresh.add((step.slot, step.node))
            copies.append(step)
            steps.popleft()
    for index in seen:
        _queue(queues, index, waiting[index])
    return promotions, copies
