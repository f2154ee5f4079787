"""Cuts plans to at most so many slots or bytes.

Offline slots go first, for no client can use them; then slots of groups to drain; then the others. A plan that is
within the limits loses nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush

from slots.slot import OFFLINE, Slot
from topom.balance.planners.request import PlanRequest
from topom.cluster.topology import Move


def moved_bytes(move: Move, request: PlanRequest) -> int:
    """The bytes that a move carries from server to server; an offline slot has no keys on any server."""
    return 0 if move.source == OFFLINE else request.bytes.get(move.slot, 0)


def keeps_to(moves: Collection[Move], request: PlanRequest) -> bool:
    """Whether moves are within the limits."""
    return (request.most_slots is None or len(moves) <= request.most_slots) and (
        request.most_bytes is None or sum(moved_bytes(move, request) for move in moves) <= request.most_bytes
    )


def in_order(moves: Sequence[Move], request: PlanRequest) -> list[Move]:
    """The moves within the limits, by ascending slot within each kind; a move of too many bytes is passed over."""
    if keeps_to(moves, request):
        return list(moves)
    budget = _Budget(request)
    taken = [move for move in sorted(moves, key=lambda move: (_kind(move, request), move.slot)) if budget.takes(move)]
    return sorted(taken, key=lambda move: move.slot)


def by_help(
    moves: Sequence[Move],
    bands: Mapping[int, tuple[int, int]],
    slots: Sequence[Slot],
    request: PlanRequest,
    load: Mapping[int, int],
) -> list[Move]:
    """The moves within the limits that bring groups nearest to their bands.

    Within each kind, the move is taken next that lessens most what is outside the bands, given the moves taken so
    far. If only bytes are limited, that is the most for each byte that it moves; otherwise the most at all. A move
    between groups that are not drained is not taken while it lessens nothing.

    Args:
        bands: the least and the most that each group should have, by group, without groups to drain.
        slots: all slots.
        load: what each slot has of that, by slot.
    """
    if keeps_to(moves, request):
        return list(moves)
    helped = _Helped(bands, slots, request, load)
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
                # A move that is taken later may make it useful: one half of a swap waits for the other.
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
        """Whether a move is within the limits; if so, they are lowered by it."""
        size = moved_bytes(move, self.request)
        if self.slots == 0 or (self.bytes is not None and size > self.bytes):
            return False
        if self.slots is not None:
            self.slots -= 1
        if self.bytes is not None:
            self.bytes -= size
        return True


class _Helped:
    """How much each move helps, given the moves that were taken."""

    def __init__(
        self,
        bands: Mapping[int, tuple[int, int]],
        slots: Sequence[Slot],
        request: PlanRequest,
        load: Mapping[int, int],
    ) -> None:
        self.request = request
        self.bands = bands
        self.of_slot = load
        self.load = dict.fromkeys(bands, 0)
        for slot in slots:
            if slot.destination_id in self.load:
                self.load[slot.destination_id] += load.get(slot.id, 0)

    def gain(self, move: Move) -> int:
        """How much less is outside the bands after a move."""
        size = self.of_slot.get(move.slot, 0)
        return self._nearer(move.source, -size) + self._nearer(move.target, size)

    def rank(self, move: Move) -> tuple[int, float, int]:
        """The rank of a move; the smallest goes first."""
        size, gain = self.request.bytes.get(move.slot, 0), self.gain(move)
        by_byte = self.request.most_slots is None and size > 0
        return _kind(move, self.request), -gain / size if by_byte else 0.0, -gain

    def take(self, move: Move) -> None:
        size = self.of_slot.get(move.slot, 0)
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
