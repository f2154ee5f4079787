"""The benchmarks' arithmetic, on made-up figures: ratios, intervals and verdicts. Nothing is timed here."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks import goals, tables
from benchmarks.goals import CONTROLS, GOALS, Goal, Held, Ratio, Verdict, judge
from benchmarks.load import Load, Outcome
from benchmarks.plan import EQUAL, SMALL, Part, plan
from benchmarks.report import interval_of_median, plain
from benchmarks.samples import PROXY, Sample, ratios, summarise

GET = Load("get", 1, 1000, 50, 100, 64)
SET = replace(GET, command="set")


def sample(target: str, turn: int, cpu: float, *, part: str = SMALL, load: Load = GET, p99: float = 1.0) -> Sample:
    used = {} if target == "direct" else {PROXY: cpu, "supervisor": 0.01}
    return Sample(part, turn, target, load, Outcome(1e6 / (cpu or 1), p99 / 2, p99, 2 * p99), used)


def part_of(*loads: Load, name: str = SMALL, turns: int = 3) -> Part:
    return Part(name, "made up", ("direct", "twemproxy", "slotferry"), ("twemproxy", "direct"), turns, loads)


def test_a_ratio_is_made_of_two_runs_of_the_same_turn() -> None:
    # The machine was twice as slow in the second turn, for both.
    mine = [sample("slotferry", turn, cpu) for turn, cpu in enumerate((5.0, 10.0, 6.0))]
    others = [sample("twemproxy", turn, cpu) for turn, cpu in enumerate((10.0, 20.0, 10.0))]
    assert ratios([*mine, *reversed(others)], SMALL, GET, "cpu", "slotferry", "twemproxy") == [0.5, 0.5, 0.6]


def test_a_turn_that_lacks_one_of_the_two_gives_no_ratio() -> None:
    samples = [sample("slotferry", 0, 5.0), sample("slotferry", 1, 6.0), sample("twemproxy", 1, 10.0)]
    assert ratios(samples, SMALL, GET, "cpu", "slotferry", "twemproxy") == [0.6]
    assert ratios(samples, SMALL, GET, "cpu", "slotferry", "haproxy") == []


def test_nothing_is_compared_with_what_costs_no_proxy_or_with_another_part_or_load() -> None:
    samples = [sample("slotferry", 0, 5.0), sample("direct", 0, 0.0)]
    samples += [sample("twemproxy", 0, 8.0, load=SET), sample("twemproxy", 0, 9.0, part=EQUAL)]
    assert ratios(samples, SMALL, GET, "cpu", "slotferry", "direct") == []
    assert ratios(samples, SMALL, GET, "cpu", "slotferry", "twemproxy") == []
    assert ratios(samples, SMALL, GET, "p99", "slotferry", "direct") == [1.0]


def test_a_summary_has_a_row_for_what_was_measured_only() -> None:
    samples = [sample("slotferry", 0, 4.0), sample("twemproxy", 0, 8.0), sample("direct", 0, 0.0)]
    rows = summarise(samples, part_of(GET, SET))
    assert [(row["load"], row["target"]) for row in rows] == [
        (GET, "direct"),
        (GET, "twemproxy"),
        (GET, "slotferry"),
    ]
    assert rows[2]["cpu_ratio"]["twemproxy"].median == 0.5
    assert list(rows[2]["cpu_ratio"]) == ["twemproxy"]
    assert rows[0]["cpu_microseconds"] == {}


@pytest.mark.parametrize(
    ("count", "ranks"),
    # From tables of the sign test, 95%.
    [(1, (1, 1)), (2, (1, 2)), (5, (1, 5)), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15))],
)
def test_the_interval_of_a_median_is_between_two_ranks(count: int, ranks: tuple[int, int]) -> None:
    values = [float(rank) for rank in range(1, count + 1)]
    assert interval_of_median(values[::-1]) == ranks


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((), "not measured"),
        ((0.75,), "met"),
        ((0.76,), "not met"),
        ((0.70, 0.72, 0.74), "met"),
        ((0.70, 0.72, 0.80), "met, unsure"),
        ((0.70, 0.78, 0.80), "not met, unsure"),
        ((0.78, 0.79, 0.80), "not met"),
    ],
)
def test_a_goal_is_met_by_the_median(values: tuple[float, ...], word: str) -> None:
    verdict = Verdict("goal", "load", 0.75, values)
    assert verdict.word == word
    assert json.loads(json.dumps(plain(verdict.row())))["met"] is verdict.met


def test_a_goal_is_judged_for_each_of_its_loads() -> None:
    goal = Goal("CPU", 0.75, Ratio(SMALL, "cpu", 1, "slotferry", "twemproxy"))
    deep = replace(GET, pipeline=16)
    samples = [sample("twemproxy", 0, 10.0, load=load) for load in (GET, SET, deep)]
    samples += [sample("slotferry", 0, cpu, load=load) for load, cpu in ((GET, 7.0), (SET, 8.0), (deep, 9.0))]
    verdicts = judge([goal], [part_of(GET, SET, deep), part_of(GET, name=EQUAL)], samples, {})
    assert [(verdict.load, verdict.values, verdict.met) for verdict in verdicts] == [
        (GET.name, (0.7,), True),
        (SET.name, (0.8,), False),
    ]


def test_a_goal_of_what_was_left_out_is_not_measured() -> None:
    goal = Goal("CPU", 0.75, Ratio(SMALL, "cpu", 1, "slotferry", "twemproxy"))
    for parts in ([], [part_of(GET)]):
        assert [verdict.word for verdict in judge([goal, Goal("KB", 4, Held("KB"))], parts, [], {})] == [
            "not measured",
            "not measured",
        ]


def test_a_goal_about_clients_is_judged_by_its_series() -> None:
    goal = Goal("KB", 4, Held("KB"))
    assert judge([goal], [], [], {"KB": [3.0, 4.0, 9.0]})[0].met is True
    assert judge([goal], [], [], {"KB": [5.0], "others": [1.0]})[0].met is False


@pytest.mark.parametrize("goal", [*GOALS, *CONTROLS], ids=lambda goal: f"{goal.name} {goal.of}")
def test_what_is_planned_has_all_that_goals_are_about(goal: Goal) -> None:
    if isinstance(goal.of, Held):
        return
    of = goal.of
    part = next(part for part in plan(60_000, 5, 20) if part.name == of.part)
    assert {of.target, of.yardstick} <= set(part.targets)
    loads = [load for load in part.loads if load.pipeline == of.pipeline]
    assert loads
    assert all((load.clients, load.value_bytes) == (50, 64) for load in loads)


CPU = {"twemproxy": 10.0, "haproxy": 2.0, "slotferry": 1.4, "slotferry-2": 1.5, "slotferry-again": 1.4}
SERIES = {goal.of.name: [goal.bound] for goal in GOALS if isinstance(goal.of, Held)}


def made_up(**cpu: float) -> list[Sample]:
    costs = CPU | {name.replace("_", "-"): cost for name, cost in cpu.items()}
    return [
        sample(target, turn, costs.get(target, 0.0), part=part.name, load=load)
        for part in plan(60_000, 5, 20)
        for turn in range(part.turns)
        for load in part.loads
        for target in part.targets
    ]


@pytest.mark.parametrize(
    ("cpu", "series", "failing"),
    [
        ({}, {}, set()),
        ({"slotferry_2": 1.6}, {}, {"CPU a request of two workers, to one's"}),
        ({"haproxy": 1.0}, {}, {"CPU a request, to HAProxy's"}),
        ({"twemproxy": 5.0}, {}, {"CPU a request, to twemproxy's"}),
        ({}, {goals.IDLE_BYTES: [4097.0]}, {goals.IDLE_BYTES}),
        ({}, {goals.LATENCY_TO_NOISE: [0.9, 1.01, 1.2]}, {goals.LATENCY_TO_NOISE}),
    ],
)
def test_a_whole_run_is_judged(cpu: dict[str, float], series: dict[str, list[float]], failing: set[str]) -> None:
    verdicts = judge(GOALS, plan(60_000, 5, 20), made_up(**cpu), SERIES | series)
    assert all(verdict.values for verdict in verdicts)
    assert {verdict.goal for verdict in verdicts if not verdict.met} == failing


def test_tables_show_every_row_and_verdict() -> None:
    console = Console(width=200, file=io.StringIO())
    parts = plan(60_000, 1, 1)
    samples = made_up()
    for part in parts:
        tables.show(part, summarise(samples, part), console)
    goals.show("the goals", judge(GOALS, parts, samples, {}), console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "0.14 (0.14-0.14)" in shown
    assert shown.count("not measured") == 3
    for part in parts:
        for load in part.loads:
            assert load.name in shown
