"""What is measured of the things of one kind."""

from collections.abc import Sequence

import pytest

from topom.load.measured import Counts, Measured


def counts(requests: float) -> Counts:
    return Counts(requests, 0, 2 * requests, 3 * requests, 0, 0)


def test_names_beyond_the_limit_are_left_out_until_one_ends() -> None:
    users: Measured[str] = Measured(2)
    for name in ("a", "b", "c", "c"):
        users.add(name, counts(1))
    users.table.decay(1.0)
    assert {row.name for row in users} == {"a", "b"}
    assert users.left_out == 2
    users.end("a")
    users.add("c", counts(7))
    users.table.decay(1.0)
    found = users.get("c")
    assert found is not None
    assert found.rates.requests == pytest.approx(7), "nothing is left of the one that had the row before"
    assert users.get("a") is None


def test_the_busiest_come_first_and_idle_ones_are_left_out() -> None:
    users: Measured[str] = Measured(100)
    for number in range(50):
        users.add(f"u{number}", counts(number))
    users.table.decay(1.0)
    assert [row.name for row in users.busiest(3)] == ["u49", "u48", "u47"]
    assert len(users.busiest(100)) == 49
    assert users.total().requests == pytest.approx(sum(range(50)))


def test_users_that_are_not_seen_any_more_are_forgotten() -> None:
    users: Measured[str] = Measured(10)
    users.add("a", counts(1))
    users.table.decay(5.0)
    users.turn(60.0)
    users.keep_busy(0.001)
    assert len(users) == 1
    for _ in range(200):
        users.table.decay(5.0)
    users.keep_busy(0.001)
    assert len(users) == 1, "it has had requests in the minute that ended last"
    users.turn(60.0)
    users.keep_busy(0.001)
    assert len(users) == 0


def test_of_a_minute_all_are_kept_or_the_busiest() -> None:
    groups: Measured[int] = Measured(10, names=range(4))
    slots: Measured[int] = Measured(10, 2, range(4))
    names: Sequence[int] = ()
    for minute in range(2):
        for kind in (groups, slots):
            for row in range(4):
                kind.add(row, counts(60 * ((row + minute) % 4)))
            kind.table.decay(60.0)
        kept = groups.turn(60.0), slots.turn(60.0)
        assert minute == 0 or kept[0].names is names, "names are kept once"
        names = kept[0].names
    assert (names, list(kept[0].values)) == ((0, 1, 2, 3), [1, 2, 3, 2, 4, 6, 3, 6, 9, 0, 0, 0])
    assert (list(kept[1].names), list(kept[1].values)) == ([2, 1], [3, 6, 9, 2, 4, 6])


def test_names_that_are_there_no_more_are_forgotten() -> None:
    servers: Measured[str] = Measured(10)
    for name in "abc":
        servers.add(name, counts(1))
    servers.keep({"b"})
    assert [row.name for row in servers] == ["b"]
