"""What the benchmarks run, and how the figures of runs at once are put together. Nothing is timed here."""

from dataclasses import replace

import pytest

from benchmarks.crowd import AFTER, BEFORE, BESIDE, FILLING, Crowd, Span, Window
from benchmarks.goals import IDLE_BYTES, LATENCY_TO_NOISE, MEMORY_TO_LIMITS
from benchmarks.load import COMMANDS, Load, Outcome, Stream, streams, together
from benchmarks.plan import PARTS, SMALL, only, plan, turns
from benchmarks.probe import Kind, Request

EVERYTHING = (COMMANDS, (1, 16, 64))
MIX = Load("mix", 1, 1001, 1000, 500, 64)


def test_every_load_goes_through_every_target_in_every_turn() -> None:
    for part in plan(60_000, 5, 20):
        runs = list(turns(part))
        assert len(runs) == len(set(runs)) == part.turns * len(part.loads) * len(part.targets)


def test_turns_go_forth_and_back() -> None:
    part = replace(plan(60_000, 2, 2)[0], loads=(MIX,))
    found = [target for _, _, target in turns(part)]
    assert found == [*part.targets, *reversed(part.targets)]


def test_what_is_asked_for_is_measured_and_nothing_else() -> None:
    parts = plan(60_000, 5, 20)
    assert tuple(part.name for part in parts) == PARTS
    assert only(parts, PARTS, *EVERYTHING, [name for part in parts for name in part.targets]) == parts
    (left,) = only(parts, [SMALL], ["get"], [16], ["slotferry", "direct"])
    assert left.targets == ("direct", "slotferry")
    assert [(load.command, load.pipeline) for load in left.loads] == [("get", 16)]
    assert only(parts, ["mix"], *EVERYTHING, ["slotferry-again"]) == []


def test_loads_of_a_part_have_names_of_their_own() -> None:
    for part in plan(60_000, 5, 20):
        assert len({load.name for load in part.loads}) == len(part.loads)


def test_a_mix_is_two_streams_that_are_the_load_together() -> None:
    gets, sets = streams(MIX)
    assert (gets.words[0], sets.words[0]) == ("GET", "SET")
    assert (gets.requests + sets.requests, gets.clients + sets.clients) == (MIX.requests, MIX.clients)
    assert (gets.requests, gets.clients) == (801, 800)


@pytest.mark.parametrize(("size", "name"), [(64, "key:__rand_int__"), (1024, "key1024:__rand_int__")])
def test_values_of_each_size_have_keys_of_their_own(size: int, name: str) -> None:
    (get,) = streams(replace(MIX, command="get", value_bytes=size))
    (mget,) = streams(replace(MIX, command="mget", value_bytes=size))
    (put,) = streams(replace(MIX, command="set", value_bytes=size))
    assert (get.words, mget.words) == (("GET", name), ("MGET", *[name] * 10))
    assert (put.words[:2], len(put.words[2])) == (("SET", name), size)
    (several,) = streams(replace(MIX, command="mset", value_bytes=size))
    assert several.words == ("MSET", *put.words[1:] * 10)


def test_a_del_takes_nothing_away_that_others_need() -> None:
    (found,) = streams(replace(MIX, command="del"))
    assert found.words == ("DEL", *["absent:__rand_int__"] * 10)


def test_streams_at_once_add_up() -> None:
    outcome = together(
        [
            (Stream(("GET",), 800, 8), Outcome(400.0, 1.0, 9.0, 20.0)),
            (Stream(("SET",), 200, 2), Outcome(200.0, 2.0, 5.0, 30.0)),
        ]
    )
    # 1000 requests in the two seconds that the slower one took.
    assert outcome == Outcome(500.0, 2.0, 9.0, 30.0)


def crowd(**changes: object) -> Crowd:
    windows = [
        Window(spell, 1.0, 100, 0, 0.1, p99, 9.0, 0, 0)
        for spell, p99 in ((BEFORE, 1.0), (BEFORE, 2.0), (FILLING, 50.0), (BESIDE, 1.0), (BESIDE, 3.0), (AFTER, 1.5))
    ]
    mib = 1 << 20
    made = Crowd(1000, 100, 500, 100, 900, 50 * mib, 54 * mib, 254 * mib, 400 * mib, windows)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_follows_of_many_clients() -> None:
    assert crowd().values() == {
        IDLE_BYTES: [4 * (1 << 20) / 1000],
        MEMORY_TO_LIMITS: [0.5],
        # The worst quiet window has 2.0; the time in which the readers get stuck does not count.
        LATENCY_TO_NOISE: [0.5, 1.5],
    }


def test_a_worker_that_never_grew_is_within_its_limits() -> None:
    assert crowd(most_bytes=1).values()[MEMORY_TO_LIMITS] == [0.0]


def test_without_quiet_windows_nothing_is_said_of_latency() -> None:
    assert crowd(windows=[]).values()[LATENCY_TO_NOISE] == []
    assert len(crowd(windows=[]).describe()) == 2
    assert "1.50 (1.00-2.00) in 3 quiet windows" in crowd().describe()[3]
    assert "p99 was 50.00 ms" in crowd().describe()[2]


def test_a_window_has_the_requests_that_began_in_it() -> None:
    requests = [Request(at / 10, 0.001 * at, Kind.ANSWERED) for at in range(30)]
    requests.append(Request(1.55, 9.0, Kind.LOST))
    window = Window.of(requests, Span(BESIDE, 1.0, 2.0, 77, 88))
    assert (window.requests, window.failed, window.worker_bytes, window.kernel_bytes) == (11, 1, 77, 88)
    assert (window.p50, window.p99, window.maximum) == pytest.approx((14.0, 19.0, 19.0))
