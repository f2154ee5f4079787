"""``slotferry slot`` and ``slotferry plan``: answers that need no topom."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from slotferry.output import answer, fail, note, print_json, table
from slots import functions
from slots.table import DEFAULT_SLOTS, MAXIMUM_SLOTS


def slot(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys, as a client would write them.")],
    number_of_slots: Annotated[
        int, typer.Option("--slots", min=1, max=MAXIMUM_SLOTS, help="The product's number of slots, a power of two.")
    ] = DEFAULT_SLOTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of text.")] = False,
) -> None:
    """Show the slot of each key, and the tag that is hashed, by each slot function."""
    if number_of_slots & (number_of_slots - 1):
        raise typer.BadParameter("has to be a power of two", param_hint="--slots")
    found = []
    for key in keys:
        # Bytes that are no text come from the shell in this disguise.
        raw = key.encode(errors="surrogateescape")
        for name in functions.names():
            tag = functions.hash_tag(name, raw).decode(errors="surrogateescape")
            found.append({"key": key, "function": name, "tag": tag, "slot": functions.slot(name, raw, number_of_slots)})
    columns = ("key", "function", "tag", "slot")
    rows = [
        (_shown(key), function, _shown(tag), str(value))
        for key, function, tag, value in (entry.values() for entry in found)
    ]
    answer(found, as_json, lambda: table(columns, rows))


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text else repr(text.encode(errors="surrogateescape"))[1:]


def plan(
    source: Annotated[
        Path,
        typer.Option(
            "--input", metavar="FILE", help="JSON with groups and slots; - reads standard input.", allow_dash=True
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="How to plan: codis evens out the number of slots per group, bytes their memory; "
            "placement gives every slot a leader and followers.",
        ),
    ] = "codis",
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="PART", help="How far off its share a group may be; by default 0.05, 5%."),
    ] = None,
    most_slots: Annotated[
        int | None, typer.Option("--most-slots", metavar="N", min=0, help="Move so many slots at most.")
    ] = None,
    most_bytes: Annotated[
        int | None, typer.Option("--most-bytes", metavar="N", min=0, help="Move so many bytes at most.")
    ] = None,
    drain: Annotated[
        list[int] | None,
        typer.Option("--drain", metavar="GROUP", help="Leave this group nothing; may be given several times."),
    ] = None,
    watermark: Annotated[
        int | None,
        typer.Option(
            "--watermark",
            metavar="PERCENT",
            help="How far off the even share a node's leaders and followers may be; by default 10. For placement.",
        ),
    ] = None,
    most_leader_changes: Annotated[
        int | None,
        typer.Option(
            "--max-leader-changes",
            metavar="N",
            help="Replace so many leaders a round at most; by default 6. For placement.",
        ),
    ] = None,
    most_follower_changes: Annotated[
        int | None,
        typer.Option(
            "--max-follower-changes",
            metavar="N",
            help="Move so many followers a round at most; by default 10. For placement.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Round how far off nodes may be towards the even share, as topom does for groups. For placement.",
        ),
    ] = False,
) -> None:
    """Print the moves that a policy would make of groups and slots in a file, as one line of JSON.

    The file holds {"groups":[{"id":1,"servers":["h:p"]}],"slots":[{"id":0,"group_id":1,"action":{}}]},
    and for the policy bytes also "sizes":{"0":BYTES}, with "keys":{"0":N} and "capacity":{"1":WEIGHT} if you like;
    the answer is {"moves":[{"slot":0,"from":1,"to":2}]}, where from 0 means that the slot was offline. The policy bytes
    adds "reasons", "cost" and "groups".

    For the policy placement the file holds
    {"replicas":2,"nodes":["n0","n1"],"table":[{"slot":0,"leader":"n0","followers":["n1"]}]}, or an empty table and
    "slots":N to start afresh. The answer has "table", "rounds", "promotions", "leader_copies" and "follower_copies".
    """
    # Imported here: only this command needs the control plane, and every other starts quicker without.
    from topom.balance.planners.document import answer_document
    from topom.balance.planners.request import DEFAULT_TOLERANCE, PlanRequest
    from topom.errors import TopomError
    from topom.placement.planner.document import POLICY, doubles, place_document
    from topom.placement.planner.table import Rules

    try:
        text = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
        document: Any = json.loads(text)
    except OSError as error:
        raise fail(f"{source} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise fail(f"{source} is not JSON: {error}") from None
    of_groups = {
        "--tolerance": tolerance,
        "--most-slots": most_slots,
        "--most-bytes": most_bytes,
        "--drain": drain or None,
    }
    limits = {
        "watermark": watermark,
        "most_leader_changes": most_leader_changes,
        "most_follower_changes": most_follower_changes,
    }
    of_nodes = {name: value for name, value in limits.items() if value is not None}
    if policy == POLICY:
        wrong = [name for name, value in of_groups.items() if value is not None]
        if wrong:
            raise fail(f"{wrong[0]} says nothing to the policy {POLICY}, which places slots on nodes and not in groups")
        try:
            placed = place_document(document, Rules(1, strict=strict, **of_nodes))
            for double in doubles(document):
                note(double)
            print_json(placed)
        except TopomError as error:
            raise fail(str(error)) from None
        return
    if of_nodes or strict:
        raise fail(f"--watermark, --strict and limits of changes a round are for the policy {POLICY} only")
    wishes = PlanRequest(
        tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
        most_slots=most_slots,
        most_bytes=most_bytes,
        drain=frozenset(drain or ()),
    )
    try:
        answered, reasons = answer_document(policy, document, wishes)
    except TopomError as error:
        raise fail(str(error)) from None
    print_json(answered)
    if "reasons" not in answered:
        for reason in reasons:
            note(reason)
