"""Plans cut to so many slots or bytes at most.

What goes first: slots that nobody owns, for no client can use them; then those of groups to drain; then the others.
Of a plan that is within the limits nothing is left out.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush

from slots.table import OFFLINE, Slot
from topom.balance.planners.request import PlanRequest
from topom.balance.planners.shares import band
from topom.cluster.topology import Move


def moved_bytes(move: Move, request: PlanRequest) -> int:
    """What a move carries from server to server; a slot that nobody owns has its keys on none."""
    return 0 if move.source == OFFLINE else request.bytes.get(move.slot, 0)


def keeps_to(moves: Collection[Move], request: PlanRequest) -> bool:
    """Whether moves are within the limits."""
    return (request.most_slots is None or len(moves) <= request.most_slots) and (
        request.most_bytes is None or sum(moved_bytes(move, request) for move in moves) <= request.most_bytes
    )


def in_order(moves: Sequence[Move], request: PlanRequest) -> list[Move]:
    """Moves within the limits, by ascending slot within each kind; one that holds too much is passed over."""
    if keeps_to(moves, request):
        return list(moves)
    budget = _Budget(request)
    taken = [move for move in sorted(moves, key=lambda move: (_kind(move, request), move.slot)) if budget.takes(move)]
    return sorted(taken, key=lambda move: move.slot)


def by_help(
    moves: Sequence[Move], share: Mapping[int, float], slots: Sequence[Slot], request: PlanRequest
) -> list[Move]:
    """The moves within the limits that bring groups nearest to their bands.

    Within each kind, again and again that move is taken which lessens the bytes outside the bands most, as things are
    after those taken before it: most for each byte it moves, if only bytes are limited; most at all otherwise. A move
    between groups that stay is not taken while it lessens nothing.

    Args:
        share: bytes that each group should have, by group; groups to drain are not in it.
        slots: all of them.
    """
    if keeps_to(moves, request):
        return list(moves)
    helped = _Helped(share, slots, request)
    budget = _Budget(request)
    taken: list[Move] = []
    waiting = list(moves)
    while waiting:
        heap = [(helped.rank(move), move.slot, move) for move in waiting]
        heapify(heap)
        waiting, before = [], len(taken)
        while heap:
            rank, slot, move = heappop(heap)
            now = helped.rank(move)
            if now > rank:
                heappush(heap, (now, slot, move))
            elif _kind(move, request) == _BALANCE and helped.gain(move) <= 0:
                # What is taken after it may make it useful: one half of a swap waits for the other.
                waiting.append(move)
            elif budget.takes(move):
                helped.take(move)
                taken.append(move)
        if len(taken) == before:
            break
    return sorted(taken, key=lambda move: move.slot)


_OFFLINE, _DRAIN, _BALANCE = range(3)


def _kind(move: Move, request: PlanRequest) -> int:
    if move.source == OFFLINE:
        return _OFFLINE
    return _DRAIN if move.source in request.drain else _BALANCE


class _Budget:
    """What the limits still allow."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.slots = request.most_slots
        self.bytes = request.most_bytes

    def takes(self, move: Move) -> bool:
        """Whether a move is within the limits; if so they are that much less."""
        size = moved_bytes(move, self.request)
        if self.slots == 0 or (self.bytes is not None and size > self.bytes):
            return False
        if self.slots is not None:
            self.slots -= 1
        if self.bytes is not None:
            self.bytes -= size
        return True


class _Helped:
    """How much each move helps, as things are after those that were taken."""

    def __init__(self, share: Mapping[int, float], slots: Sequence[Slot], request: PlanRequest) -> None:
        self.request = request
        self.bands = {group_id: band(one, request.tolerance) for group_id, one in share.items()}
        self.load = dict.fromkeys(share, 0)
        for slot in slots:
            if slot.destination_id in self.load:
                self.load[slot.destination_id] += request.bytes.get(slot.id, 0)

    def gain(self, move: Move) -> int:
        """By how many bytes less the groups are outside their bands."""
        size = self.request.bytes.get(move.slot, 0)
        return self._nearer(move.source, -size) + self._nearer(move.target, size)

    def rank(self, move: Move) -> tuple[int, float, int]:
        """What goes first is smallest."""
        size, gain = self.request.bytes.get(move.slot, 0), self.gain(move)
        by_byte = self.request.most_slots is None and size > 0
        return _kind(move, self.request), -gain / size if by_byte else 0.0, -gain

    def take(self, move: Move) -> None:
        size = self.request.bytes.get(move.slot, 0)
        if move.source in self.load:
            self.load[move.source] -= size
        self.load[move.target] += size

    def _nearer(self, group_id: int, change: int) -> int:
        if group_id not in self.load:
            return 0
        lower, upper = self.bands[group_id]
        before = self.load[group_id]
        after = before + change
        return max(0, lower - before, before - upper) - max(0, lower - after, after - upper)
