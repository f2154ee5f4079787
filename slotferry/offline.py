"""``slotferry plan``: answers that need no topom."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from slotferry.output import fail, note, print_written, say, size, table
from slots.forms import Form

Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="How to plan: codis evens out the number of slots per group, bytes their memory, "
        "load what clients ask of them; placement gives every slot a leader and followers.",
    ),
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="JSON with groups and slots; - reads standard input.",
        allow_dash=True,
        show_default=False,
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option("--tolerance", metavar="PART", help="How far off its share a group may be; by default 0.05, 5%."),
]
MostSlots = Annotated[int | None, typer.Option("--most-slots", metavar="N", min=0, help="Move so many slots at most.")]
MostBytes = Annotated[int | None, typer.Option("--most-bytes", metavar="N", min=0, help="Move so many bytes at most.")]
Drain = Annotated[
    list[int] | None,
    typer.Option("--drain", metavar="GROUP", help="Leave this group nothing; may be given several times."),
]
Watermark = Annotated[
    int | None,
    typer.Option(
        "--watermark",
        metavar="PERCENT",
        help="How far off the even share a node's leaders and followers may be; by default 10. For placement.",
    ),
]
MostLeaderChanges = Annotated[
    int | None,
    typer.Option(
        "--max-leader-changes",
        metavar="N",
        help="Replace so many leaders a round at most; by default 6. For placement.",
    ),
]
MostFollowerChanges = Annotated[
    int | None,
    typer.Option(
        "--max-follower-changes",
        metavar="N",
        help="Move so many followers a round at most; by default 10. For placement.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Round how far off nodes may be towards the even share, as topom does for groups. For placement.",
    ),
]


Simulate = Annotated[
    Path | None,
    typer.Option(
        "--simulate",
        metavar="FILE",
        help="Instead of planning, let the fleet of this JSON file live through some time with slots that move by "
        "themselves, by load, and once more by Codis's policy.",
        show_default=False,
    ),
]


def plan(
    source: Source = None,
    simulate: Simulate = None,
    policy: Policy = "codis",
    tolerance: Tolerance = None,
    most_slots: MostSlots = None,
    most_bytes: MostBytes = None,
    drain: Drain = None,
    watermark: Watermark = None,
    most_leader_changes: MostLeaderChanges = None,
    most_follower_changes: MostFollowerChanges = None,
    strict: Strict = False,
) -> None:
    """Print the moves that a policy would make of groups and slots in a file, as one line of JSON.

    The file holds {"groups":[{"id":1,"servers":["h:p"]}],"slots":[{"id":0,"group_id":1,"action":{}}]},
    and for the policy bytes also "sizes":{"0":BYTES}, with "keys":{"0":N} and "capacity":{"1":WEIGHT} if you like;
    and for the policy load also "loads":{"0":[REQUESTS,BYTES_IN,BYTES_OUT]}, each a second;
    the answer is {"moves":[{"slot":0,"from":1,"to":2}]}, where from 0 means that the slot was offline. Policies but
    codis add "reasons", "cost" and "groups".

    For the policy placement the file holds
    {"replicas":2,"nodes":["n0","n1"],"table":[{"slot":0,"leader":"n0","followers":["n1"]}]}, or an empty table and
    "slots":N to start afresh. The answer has "table", "rounds", "promotions", "leader_copies" and "follower_copies".
    """
    # Imported here, as below: only this command needs the control plane, and every other starts quicker without.
    from topom.errors import TopomError
    from topom.placement.planner.document import POLICY

    if simulate is not None:
        if source is not None:
            raise fail("--input says nothing to a simulation, which is made up by the file of --simulate")
        _simulate(_read(simulate))
        return
    if source is None:
        raise fail("say what to plan for: --input FILE, or --simulate FILE")
    document = _read(source)
    of_groups = _given(
        tolerance=tolerance, most_slots=most_slots, most_bytes=most_bytes, drain=frozenset(drain or ()) or None
    )
    of_nodes = _given(
        watermark=watermark,
        most_leader_changes=most_leader_changes,
        most_follower_changes=most_follower_changes,
        strict=strict or None,
    )
    if policy == POLICY and of_groups:
        wrong = next(iter(of_groups)).replace("_", "-")
        raise fail(f"--{wrong} says nothing to the policy {POLICY}, which places slots on nodes and not in groups")
    if policy != POLICY and of_nodes:
        raise fail(f"--watermark, --strict and limits of changes a round are for the policy {POLICY} only")
    try:
        answered, notes = _place(document, of_nodes) if policy == POLICY else _move(policy, document, of_groups)
    except TopomError as error:
        raise fail(str(error)) from None
    print_written(answered, Form.JSON)
    for text in notes:
        note(text)


def _simulate(document: Any) -> None:
    """Print what comes of a simulated fleet, by decisions and by number."""
    from topom.balance.simulation.running import GOAL, simulate
    from topom.balance.simulation.scenario import read
    from topom.errors import TopomError

    try:
        scenario = read(document)
    except TopomError as error:
        raise fail(str(error)) from None
    outcomes = [("by load, by itself", simulate(scenario)), ("codis", simulate(scenario, by_itself=False))]
    rows = [
        (
            name,
            f"{one.greatest:.3f}",
            f"{one.mostly:.3f}",
            f"{one.above:.1%}",
            size(one.bytes),
            one.moves,
            one.returned,
        )
        for name, one in outcomes
    ]
    columns = ("policy", "greatest/mean", "95% of time", f"above {GOAL:g}", "bytes moved", "moves", "came back")
    table(columns, rows, title=f"{scenario.hours:g} hours, {scenario.groups} groups, {scenario.slots} slots")
    say("")
    say(f"nobody who keeps every group under {GOAL:g} moves fewer than {size(outcomes[0][1].bound)}")


def _read(source: Path) -> Any:
    try:
        return json.loads(sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8"))
    except OSError as error:
        raise fail(f"{source} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise fail(f"{source} is not JSON: {error}") from None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _move(policy: str, document: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
    """The answer of a policy that moves slots between groups, and what is to be said beside it."""
    from topom.balance.planners.document import answer_document
    from topom.balance.planners.request import PlanRequest

    answered, reasons = answer_document(policy, document, PlanRequest(**options))
    return answered, () if "reasons" in answered else reasons


def _place(document: Any, rules: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
    """The answer of the policy that places slots on nodes, and what is to be said beside it."""
    from topom.placement.planner.document import doubles, place_document
    from topom.placement.planner.table import Rules

    return place_document(document, Rules(1, **rules)), list(doubles(document))
