"""``slotferry rebalance``: have topom plan and make moves."""

from collections import Counter
from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.costs import show_costs
from slotferry.operator import options
from slotferry.operator.waiting import wait_moved
from slotferry.output import answer, note, say, table
from slots.ranges import show

Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="How to plan: codis evens out the number of slots per group, bytes the memory of their keys, as it was "
        "measured by `slotferry sizing run`, load what clients ask of them, as the proxies count it.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="PART",
        min=0,
        max=1,
        help="By bytes and load: how far a group may be from its share, as a fraction of the share. topom's default "
        "is 0.05, which is 5%.",
        show_default=False,
    ),
]
MostSlots = Annotated[
    int | None, typer.Option("--most-slots", metavar="N", min=0, help="The most slots to move.", show_default=False)
]
MostBytes = Annotated[
    int | None, typer.Option("--most-bytes", metavar="N", min=0, help="The most bytes to move.", show_default=False)
]
Drain = Annotated[
    list[int] | None,
    typer.Option(
        "--drain",
        metavar="GROUP",
        min=1,
        help="A group to empty, so that its servers can be removed. May be given several times.",
        show_default=False,
    ),
]
Capacity = Annotated[
    list[str] | None,
    typer.Option(
        "--capacity",
        metavar="GROUP=WEIGHT",
        help="By bytes and load: the capacity of a group relative to the others, such as its memory in GB. A group "
        "that is not named has the mean of the others. May be given several times.",
        show_default=False,
    ),
]
DEFAULT_POLICY = "codis"


def rebalance(
    policy: Policy = DEFAULT_POLICY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the moves, do not make them.")] = False,
    tolerance: Tolerance = None,
    most_slots: MostSlots = None,
    most_bytes: MostBytes = None,
    drain: Drain = None,
    capacity: Capacity = None,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Even out the groups: plan which slots go where, and move them with their keys while clients work."""
    weights = _weights(capacity or [])

    async def work(client: TopomClient) -> Answer:
        planned = await client.rebalance(
            policy,
            dry_run,
            tolerance=tolerance,
            most_slots=most_slots,
            most_bytes=most_bytes,
            drain=drain or (),
            capacity=weights,
        )
        if wait and not dry_run:
            await wait_moved(client, {move["slot"]: move["to"] for move in planned["moves"]}, limit)
        return planned

    found = options.ask(topom, token, work)
    answer(found, as_json, lambda: _say_plan(found, done=wait and not dry_run))


def _weights(given: list[str]) -> dict[int, float]:
    weights = {}
    for text in given:
        group_id, _, weight = text.partition("=")
        try:
            weights[int(group_id)] = float(weight)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a group and its weight; write for example 3=1.5", param_hint="--capacity"
            ) from None
    return weights


def _say_plan(found: Answer, done: bool) -> None:
    _say_moves(found, done)
    if found.get("cost") and found["moves"]:
        say("")
        show_costs(found["cost"])
    for reason in found.get("reasons", []):
        say(reason)
    for warning in found.get("warnings", []):
        note(f"note: {warning}")


def _say_moves(found: Answer, done: bool) -> None:
    moves = found["moves"]
    if not moves:
        say("nothing to move" if found.get("reasons") else "nothing to move: the groups are even")
        return
    pairs = Counter((move["from"], move["to"]) for move in moves)
    rows = [
        (
            f"group {source}" if source else "offline",
            f"group {target}",
            count,
            show(move["slot"] for move in moves if (move["from"], move["to"]) == (source, target)),
        )
        for (source, target), count in sorted(pairs.items())
    ]
    word = "would move" if found["dry_run"] else ("moved" if done else "on the way")
    table(("from", "to", "count", "slots"), rows, title=f"{len(moves)} slots {word}, policy {found['policy']}")
    if not done and not found["dry_run"]:
        say("see how it goes with: slotferry migration status")
