"""The arithmetic of plans by load: what places give away, and to which others."""

from hypothesis import given
from hypothesis import strategies as st

from topom.balance.planners.shedding import LOAD, MEMORY, NOWHERE, Crowd, shed

ROOMY = 10**9


def crowd(
    upper: list[int],
    size: list[int],
    origin: list[int],
    memory: list[int] | None = None,
    closed: frozenset[int] = frozenset(),
    barred: frozenset[tuple[int, int]] = frozenset(),
) -> Crowd:
    """Places of unlimited memory; each item costs 1, or as ``memory`` says."""
    none = [0] * len(upper)
    sizes = size, memory or [1] * len(size)
    return Crowd((upper, [ROOMY] * len(upper)), none, (list(none), list(none)), sizes, origin, closed, barred)


def loads(one: Crowd) -> list[int]:
    return one.load[LOAD]


def test_items_that_are_nowhere_go_where_most_room_is() -> None:
    one = crowd([10, 10], [4, 3, 6], [NOWHERE, NOWHERE, 0])
    shed(one)
    assert loads(one) == [6, 7]


def test_an_item_for_which_there_is_no_room_goes_somewhere_all_the_same() -> None:
    one = crowd([5, 5], [4, 4, 4], [0, 1, NOWHERE])
    shed(one)
    assert NOWHERE not in one.at


def test_the_smallest_item_that_is_enough_goes() -> None:
    one = crowd([10, 10], [3, 3, 6, 4], [0, 0, 0, 1])
    shed(one)
    assert loads(one) == [9, 7]


def test_an_item_that_no_place_can_take_is_exchanged() -> None:
    # Given: place 0 has 3 too many, and place 1 has room for neither of its items, unless it gives one back.
    one = crowd([10, 10], [7, 6, 4, 3], [0, 0, 1, 1])
    shed(one)
    assert loads(one) == [10, 10]


def test_what_leaves_goes_where_load_has_most_room_unless_memory_is_scarce_there() -> None:
    # Given: place 0 gives a 4 away; place 1 has 5 of 10, place 2 has 3.
    def placed(memory_of_2: int) -> int:
        one = crowd([10, 10, 10], [4, 8, 5, 3], [0, 0, 1, 2], [1, 50, 20, memory_of_2])
        for place in range(3):
            one.upper[MEMORY][place] = 100
        shed(one)
        return one.at[0]

    # Then: place 2 gets it with a quarter of its memory free, and place 1 if hardly any is.
    assert placed(75) == 2
    assert placed(95) == 1


def test_giants_come_apart_and_lose_their_neighbours() -> None:
    one = crowd([10, 10, 10], [50, 40, 3, 2, 4], [0, 0, 0, 1, 2])
    shed(one)
    assert sorted(loads(one)) == [9, 40, 50]
    assert len({one.at[0], one.at[1]}) == 2


def test_a_closed_place_gets_nothing_and_may_give() -> None:
    one = crowd([10, 10, 10], [5, 5, 5, 4, 4, 4], [0, 0, 0, 1, 2, 2], closed=frozenset({0, 1}))
    shed(one)
    assert loads(one) == [15, 4, 8], "place 2 has no room, though place 1 would have"
    one = crowd([10, 10, 10], [5, 5, 5, 4, 2, 4], [0, 0, 0, 1, 2, 1], closed=frozenset({0, 1}))
    shed(one)
    assert loads(one) == [10, 8, 7]
    one = crowd([0, 1, 2], [1, 2], [0, 1], closed=frozenset({1}))
    shed(one)
    assert one.at[0] != 1, "there is room once it has given what it had, and it stays closed"
    giants = crowd([10, 10, 10], [50, 40, 60], [0, 0, 2], closed=frozenset({1}))
    shed(giants)
    assert giants.at[1] == 0, "the only place that could keep it apart is closed"


def test_an_item_goes_to_no_place_from_which_it_is_barred() -> None:
    one = crowd([10, 10, 10], [3, 3, 6, 4, 8], [0, 0, 0, 1, 2], barred=frozenset({(0, 1), (1, 1)}))
    shed(one)
    assert loads(one) == [6, 10, 8], "the larger one leaves, though a smaller one would be enough"
    # Of an exchange, neither goes where it may not, there or back.
    for barred in ((0, 1), (1, 1), (2, 0), (3, 0)):
        one = crowd([10, 10], [7, 6, 4, 3], [0, 0, 1, 1], barred=frozenset({barred}))
        shed(one)
        assert one.at[barred[0]] != barred[1]
    giants = crowd([10, 10, 10], [50, 40, 60], [0, 0, 2], barred=frozenset({(1, 1)}))
    shed(giants)
    assert giants.at[1] == 0
    # Two that are alike leave for two places, and one of them may go to the second only.
    one = crowd([0, 5, 4], [3, 3], [0, 0], barred=frozenset({(0, 1)}))
    shed(one)
    assert one.at == [2, 1]


def test_an_item_that_is_nowhere_never_goes_to_a_closed_place() -> None:
    one = crowd([5, 5], [9, 4, 4], [0, 1, NOWHERE], closed=frozenset({1}))
    shed(one)
    assert one.at[2] == 0, "there is no room, and still it goes to the place that is open"
    shed(one := crowd([5], [4], [NOWHERE], closed=frozenset({0})))
    assert one.at == [NOWHERE]


def test_memory_is_a_limit_of_its_own() -> None:
    one = Crowd(([10, 10], [100, 100]), [0, 0], ([0, 0], [0, 0]), ([0, 0, 0], [60, 60, 10]), [0, 0, 1])
    shed(one)
    assert sorted(one.load[MEMORY]) == [60, 70]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    places = draw(st.integers(1, 6))
    count = draw(st.integers(1, 30))
    numbers = st.integers(0, 20)
    return Crowd(
        (
            draw(st.lists(st.integers(0, 60), min_size=places, max_size=places)),
            draw(st.lists(st.integers(0, 90), min_size=places, max_size=places)),
        ),
        [draw(st.integers(0, 3))] * places,
        ([0] * places, [0] * places),
        (
            draw(st.lists(numbers, min_size=count, max_size=count)),
            draw(st.lists(numbers, min_size=count, max_size=count)),
        ),
        draw(st.lists(st.integers(0, places - 1), min_size=count, max_size=count)),
        draw(st.frozensets(st.integers(0, places - 1))),
        draw(st.frozensets(st.tuples(st.integers(0, count - 1), st.integers(0, places - 1)))),
    )


@given(crowds())
def test_sums_stay_right_and_nobody_is_pushed_above_a_limit(one: Crowd) -> None:
    before = [list(one.load[dimension]) for dimension in (LOAD, MEMORY)]
    shed(one)
    for dimension in (LOAD, MEMORY):
        for place, had in enumerate(before[dimension]):
            has = sum(one.size[dimension][item] for item, at in enumerate(one.at) if at == place)
            assert one.load[dimension][place] == has
            giants = max(one.size[LOAD]) > max(one.upper[LOAD])
            assert has <= max(had, one.upper[dimension][place]) or giants
    assert all(at == origin or at not in one.closed for at, origin in zip(one.at, one.origin, strict=True))
    assert all(at == one.origin[item] or (item, at) not in one.barred for item, at in enumerate(one.at))


@given(crowds())
def test_places_within_their_limits_give_nothing_away(one: Crowd) -> None:
    for dimension in (LOAD, MEMORY):
        one.upper[dimension][:] = [max(pair) for pair in zip(one.upper[dimension], one.load[dimension], strict=True)]
    shed(one)
    assert one.at == one.origin
