"""Groups above a limit give slots away: the arithmetic of plans by load, which knows neither groups nor slots.

A *place* has a load and a limit in two dimensions, :data:`LOAD` and :data:`MEMORY`. An *item* has a size in both; its
size in memory is also what it costs to move it. No move brings a place above a limit, except of an item that is nowhere
yet, or of a giant that leaves a larger giant.

1. Items that are nowhere go where most room is, the largest first. If every place is closed, they stay nowhere.
2. *Giants* fit nowhere. A place keeps one; others of it go to the place with the least load, if that is better off.
3. Each place above its limit chooses what it gives away: the cheapest items that are enough
   (:func:`_choose`). What all places gave goes where most room is, the largest first. An item that fits nowhere stays,
   and the place chooses again among smaller ones.
4. A place that is still above its limit exchanges an item for a smaller one of a place with room, again and again.
5. What was not needed goes back. Of items that are alike, neighbours go to the same place.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

NOWHERE = -1
LOAD, MEMORY = 0, 1
ROUNDS = 4
"""How often at most places choose anew what they give away."""
CANDIDATES = 12
"""How many places at most are tried for one item."""
PARTNERS = 8
"""With how many places a place tries to exchange items: those with the most room for load, and those with the most
:meth:`Crowd.ease`."""
MOST_EXCHANGES = 16
"""Of one place."""
MEMORY_TIMES = 4
"""So many times room for memory counts as much as room for load."""


@dataclass
class Crowd:
    """Items in places. Places and items are numbered from 0.

    Attributes:
        upper: by dimension, the limit of each place.
        slack: how much load a place may have beside a giant.
        load: by dimension, what is in each place; at first only what cannot move.
        size: by dimension, the size of each item.
        origin: the place of each item at first, or :data:`NOWHERE`.
        closed: places that get no item.
        barred: items, each with a place that does not get it, unless it is nowhere.
        at: the place of each item.
        giant: the largest item of each place that fits into no place; :data:`NOWHERE` for none.
    """

    upper: tuple[list[int], list[int]]
    slack: list[int]
    load: tuple[list[int], list[int]]
    size: tuple[list[int], list[int]]
    origin: list[int]
    closed: frozenset[int] = frozenset()
    barred: frozenset[tuple[int, int]] = frozenset()
    at: list[int] = field(init=False)
    members: list[list[int]] = field(init=False)
    giant: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.at = list(self.origin)
        self.members = [[] for _ in self.slack]
        self.giant = [NOWHERE] * len(self.slack)
        for item, place in enumerate(self.at):
            if place != NOWHERE:
                self.members[place].append(item)
                for dimension in (LOAD, MEMORY):
                    self.load[dimension][place] += self.size[dimension][item]
        for place in self.closed:
            for dimension in (LOAD, MEMORY):
                upper = self.upper[dimension]
                upper[place] = min(upper[place], self.load[dimension][place])

    def move(self, item: int, place: int) -> None:
        """Put an item into a place, out of the one in which it is."""
        old = self.at[item]
        for dimension in (LOAD, MEMORY):
            size = self.size[dimension][item]
            if old != NOWHERE:
                self.load[dimension][old] -= size
            self.load[dimension][place] += size
        if old != NOWHERE:
            self.members[old].remove(item)
        self.members[place].append(item)
        self.at[item] = place

    def room(self, dimension: int, place: int) -> int:
        """How much more a place may have; below 0 if it has too much."""
        return self.upper[dimension][place] - self.load[dimension][place]

    def need(self, dimension: int, place: int) -> int:
        """How much a place has to give away; 0 or less if nothing. A giant stays, with some slack beside it."""
        giant = self.giant[place]
        if dimension == MEMORY or giant == NOWHERE:
            return -self.room(dimension, place)
        return self.load[LOAD][place] - max(self.upper[LOAD][place], self.size[LOAD][giant] + self.slack[place])

    def ease(self, place: int) -> float:
        """The room of a place for load as a part of its limit, or :data:`MEMORY_TIMES` that for memory if it is less.

        So an item goes where load has most room, unless memory is scarce there.
        """
        return min(
            (
                times * self.room(dimension, place) / upper
                for dimension, times in ((LOAD, 1), (MEMORY, MEMORY_TIMES))
                if (upper := self.upper[dimension][place])
            ),
            default=0.0,
        )

    def fits(self, item: int, place: int) -> bool:
        """Whether an item may go to a place, and has room there."""
        return self.takes(item, place) and all(
            self.size[dimension][item] <= self.room(dimension, place) or not self.size[dimension][item]
            for dimension in (LOAD, MEMORY)
        )

    def takes(self, item: int, place: int) -> bool:
        """Whether an item may go to a place. A closed one only takes back what it gave."""
        return self.origin[item] == place or (place not in self.closed and (item, place) not in self.barred)


def shed(crowd: Crowd, memory: bool = True) -> None:
    """Bring places under their limits of load, and of ``memory`` if that is wanted, as far as a way is found."""
    nowhere = [item for item, place in enumerate(crowd.at) if place == NOWHERE]
    _place(crowd, LOAD, nowhere, must=True)
    _spread_giants(crowd)
    for dimension in (LOAD, MEMORY) if memory else (LOAD,):
        for _ in range(ROUNDS):
            given = _given(crowd, dimension)
            if not given or not _place(crowd, dimension, given):
                break
    _exchange(crowd)
    _take_back(crowd)
    _gather(crowd)


def _spread_giants(crowd: Crowd) -> None:
    size, load = crowd.size[LOAD], crowd.load[LOAD]
    largest = max(crowd.upper[LOAD])
    others = []
    for place, members in enumerate(crowd.members):
        giants = sorted((item for item in members if size[item] > largest), key=lambda item: (-size[item], item))
        if giants:
            crowd.giant[place] = giants[0]
            others += giants[1:]
    free = [
        (load[place], place)
        for place, giant in enumerate(crowd.giant)
        if giant == NOWHERE and place not in crowd.closed
    ]
    heapify(free)
    for item in sorted(others, key=lambda item: (-size[item], item)):
        if not free or free[0][0] + size[item] >= load[crowd.at[item]]:
            continue
        if not crowd.takes(item, free[0][1]):
            continue
        _, place = heappop(free)
        crowd.move(item, place)
        crowd.giant[place] = item


def _given(crowd: Crowd, dimension: int) -> list[int]:
    """What the places above their limits give away."""
    room = max(crowd.room(dimension, place) for place in range(len(crowd.slack)))
    found: list[int] = []
    for place in range(len(crowd.slack)):
        need = crowd.need(dimension, place)
        if need > 0:
            found += _choose(crowd, dimension, place, need, room)
    return found


def _choose(crowd: Crowd, dimension: int, place: int, need: int, room: int) -> list[int]:
    """The cheapest items of a place, none larger than ``room``, that are together ``need`` or more.

    They are those of the least cost for their size, and for what is then missing one that is enough; whichever
    beginning makes that cheapest. If all are not enough, it is all.
    """
    size, cost = crowd.size[dimension], crowd.size[MEMORY]
    items = [
        item
        for item in crowd.members[place]
        if crowd.origin[item] == place and 0 < size[item] <= room and item != crowd.giant[place]
    ]
    items.sort(key=lambda item: (cost[item] / size[item], item))
    # For each size the cheapest item of that size or more, the smallest such.
    rising = sorted(items, key=lambda item: (size[item], item))
    sizes = [size[item] for item in rising]
    closing = list(rising)
    for position in range(len(rising) - 2, -1, -1):
        if cost[closing[position + 1]] < cost[closing[position]]:
            closing[position] = closing[position + 1]
    best: tuple[int, int] | None = None
    chosen: list[int] = []
    spent = missing = 0
    missing = need
    for count, item in enumerate(items):
        position = bisect_left(sizes, missing)
        if position < len(closing):
            last = closing[position]
            if best is None or (spent + cost[last], count) < best:
                best, chosen = (spent + cost[last], count), [*items[:count], last]
        spent += cost[item]
        missing -= size[item]
        if missing <= 0:
            if best is None or (spent, count) < best:
                chosen = items[: count + 1]
            break
    else:
        if best is None:
            return items
    chosen = list(dict.fromkeys(chosen))
    over = sum(size[item] for item in chosen) - need
    if over < 0:  # the last one was among the others already
        return items[: _enough(items, size, need)]
    for item in sorted(chosen, key=lambda item: (-cost[item], item)):
        if size[item] <= over:
            chosen.remove(item)
            over -= size[item]
    return chosen


def _enough(items: Sequence[int], size: Sequence[int], need: int) -> int:
    for count, item in enumerate(items, 1):
        need -= size[item]
        if need <= 0:
            return count
    return len(items)


def _place(crowd: Crowd, dimension: int, items: Iterable[int], must: bool = False) -> int:
    """Put items where most room is, the largest first; gives how many found a place.

    Args:
        must: whether an item for which no room is found goes where most room is.
    """
    order = [(-crowd.ease(place), place) for place in range(len(crowd.slack)) if place not in crowd.closed]
    heapify(order)
    placed = 0
    for item in sorted(items, key=lambda item: (-crowd.size[dimension][item], item)):
        home, target = crowd.at[item], NOWHERE
        passed: list[tuple[float, int]] = []
        while order and len(passed) < CANDIDATES:
            entry = heappop(order)
            passed.append(entry)
            if entry[1] != home and crowd.fits(item, entry[1]):
                target = entry[1]
                break
        if target == NOWHERE and must and passed:
            target = passed[0][1]
        if target != NOWHERE:
            crowd.move(item, target)
            placed += 1
        for _, place in passed:
            heappush(order, (-crowd.ease(place), place))
    return placed


def _exchange(crowd: Crowd) -> None:
    """Have places above their limits give an item for a smaller one, or for none."""
    places = range(len(crowd.slack))
    orders: tuple[Callable[[int], float], ...] = (
        lambda place: -crowd.room(LOAD, place),
        lambda place: -crowd.ease(place),
    )
    roomy = [sorted((key(place), place) for place in places) for key in orders]
    for place in sorted(places, key=lambda place: (-crowd.need(LOAD, place), place)):
        for _ in range(MOST_EXCHANGES):
            need = crowd.need(LOAD, place)
            if need <= 0:
                break
            near = {other for listed in roomy for _, other in listed[:PARTNERS]} - {place}
            found = [
                one
                for other in near - crowd.closed
                if crowd.room(LOAD, other) > 0
                for one in _exchanges(crowd, place, other, need)
            ]
            if not found:
                break
            _, _, item, back, other = min(found)
            for key, listed in zip(orders, roomy, strict=True):
                for changed in (place, other):
                    del listed[bisect_left(listed, (key(changed), changed))]
            crowd.move(item, other)
            if back != NOWHERE:
                crowd.move(back, place)
            for key, listed in zip(orders, roomy, strict=True):
                for changed in (place, other):
                    insort(listed, (key(changed), changed))


def _exchanges(crowd: Crowd, place: int, other: int, need: int) -> Iterator[tuple[int, int, int, int, int]]:
    """``(what is left of the need, cost, item, item that comes back, other place)`` of what lessens the need."""
    size, memory = crowd.size
    room = crowd.room(LOAD, other)
    back = () if place in crowd.closed else crowd.members[other]
    coming = sorted((size[item], item) for item in back if item != crowd.giant[other])
    coming.insert(0, (0, NOWHERE))
    for item in crowd.members[place]:
        if item == crowd.giant[place]:
            continue
        # The largest that still leaves enough, or else the smallest for which there is room.
        position = bisect_right(coming, (size[item] - need, len(size))) - 1
        if position < 0 or size[item] - coming[position][0] > room:
            position = bisect_left(coming, (size[item] - room, -1))
        if position >= len(coming) or coming[position][0] >= size[item]:
            continue
        less, smaller = coming[position]
        if not crowd.takes(item, other) or (smaller != NOWHERE and not crowd.takes(smaller, place)):
            continue
        net = memory[item] - (memory[smaller] if smaller != NOWHERE else 0)
        if net > max(0, crowd.room(MEMORY, other)) or -net > max(0, crowd.room(MEMORY, place)):
            continue
        cost = _dearer(crowd, item, other) + (_dearer(crowd, smaller, place) if smaller != NOWHERE else 0)
        yield max(0, need - size[item] + less), cost, item, smaller, other


def _dearer(crowd: Crowd, item: int, place: int) -> int:
    """By how much the cost changes if an item moves to a place."""
    origin = crowd.origin[item]
    if origin == NOWHERE:
        return 0
    return crowd.size[MEMORY][item] * ((place != origin) - (crowd.at[item] != origin))


def _take_back(crowd: Crowd) -> None:
    """Put items back that did not have to leave."""
    moved = [item for item, origin in enumerate(crowd.origin) if origin not in (NOWHERE, crowd.at[item])]
    for item in sorted(moved, key=lambda item: (-crowd.size[MEMORY][item], item)):
        if crowd.fits(item, crowd.origin[item]):
            crowd.move(item, crowd.origin[item])


def _gather(crowd: Crowd) -> None:
    """Exchange the targets of items that are alike and leave the same place, so that neighbours go together."""
    barred = {item for item, _ in crowd.barred}
    alike: dict[tuple[int, int, int], list[int]] = {}
    for item, origin in enumerate(crowd.origin):
        if origin != crowd.at[item] and item not in barred:
            alike.setdefault((origin, crowd.size[LOAD][item], crowd.size[MEMORY][item]), []).append(item)
    for items in alike.values():
        for item, place in zip(items, sorted(crowd.at[item] for item in items), strict=True):
            if crowd.at[item] != place:
                crowd.move(item, place)
