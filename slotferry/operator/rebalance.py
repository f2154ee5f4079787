"""``slotferry rebalance``: have topom plan and make moves."""

import sys
import time
from collections import Counter
from typing import Annotated

import typer

from slotferry import completing
from slotferry.calls import Answer, TopomRefused
from slotferry.client import TopomClient
from slotferry.costs import show_costs
from slotferry.operator import options
from slotferry.operator.waiting import wait_moved
from slotferry.output import answer, moment, note, say, table
from slots.counting import counted
from slots.forms import Form
from slots.ranges import shortened, show

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
        help="A group to empty, so that its servers can be removed. May be given several times. To take it back: "
        "`slotferry migration cancel` while slots move, `slotferry rebalance` afterwards.",
        autocompletion=completing.groups,
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
UNDOES_PLAN = "UndoesPlan"
"""The error by which topom refuses a plan that would undo the last one."""
MOST_SHOWN = 20
"""Moves, and groups with too much load, of a decision."""


app = typer.Typer(
    invoke_without_command=True,
    help="Even out the groups: plan which slots go where, and move them with their keys while clients work.",
)


@app.command("show")
def show_decision(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show what topom decided last about moving slots by itself, and why."""
    decided = options.ask(topom, token, TopomClient.rebalance_decision)
    answer(decided, form, lambda: _say_decision(decided))


@app.callback()
def rebalance(
    context: typer.Context,
    policy: Policy = DEFAULT_POLICY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the moves, do not make them.")] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="By codis: go on if that undoes what the last plan, by bytes or load, has done."),
    ] = False,
    tolerance: Tolerance = None,
    most_slots: MostSlots = None,
    most_bytes: MostBytes = None,
    drain: Drain = None,
    capacity: Capacity = None,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Even out the groups: plan which slots go where, and move them with their keys while clients work."""
    if context.invoked_subcommand is not None:
        return
    weights = _weights(capacity or [])

    async def plan(client: TopomClient, confirmed: bool) -> Answer:
        return await client.rebalance(
            policy,
            dry_run,
            confirm=confirmed,
            tolerance=tolerance,
            most_slots=most_slots,
            most_bytes=most_bytes,
            drain=drain or (),
            capacity=weights,
        )

    async def work(client: TopomClient) -> Answer:
        try:
            planned = await plan(client, yes)
        except TopomRefused as error:
            if error.error != UNDOES_PLAN or not sys.stdin.isatty():
                raise
            note(str(error))
            typer.confirm("Go on?", abort=True)
            planned = await plan(client, True)
        begun = time.monotonic()
        if wait and not dry_run:
            targets = {move["slot"]: move["to"] for move in planned["moves"]}
            # An earlier topom does not say the epoch.
            await wait_moved(client, targets, limit, planned.get("epoch", 0))
            took.append(time.monotonic() - begun)
        return planned

    took: list[float] = []
    found = options.ask(topom, token, work)
    answer(found, form, lambda: _say_plan(found, took[0] if took else None))


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


def _say_decision(decided: Answer) -> None:
    when = "" if decided["at"] is None else f", decided at {moment(decided['at'])}"
    say(f"{decided['cause']}{when}: {decided['text']}")
    for move in decided["moves"][:MOST_SHOWN]:
        say(f"slot {move['slot']}: group {move['from']} to {move['to']}")
    if decided["above"]:
        rows = [(one["group"], moment(one["since"])) for one in decided["above"][:MOST_SHOWN]]
        table(("group", "since"), rows, title=f"above {decided['leave']:g} times their share of load")


def _say_plan(found: Answer, took: float | None) -> None:
    """``took`` are the seconds that it took, None if it was not waited for."""
    _say_moves(found, took is not None)
    if found.get("cost") and found["moves"]:
        say("")
        show_costs(found["cost"], took)
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
            shortened(show(move["slot"] for move in moves if (move["from"], move["to"]) == (source, target))),
        )
        for (source, target), count in sorted(pairs.items())
    ]
    word = "would move" if found["dry_run"] else ("moved" if done else "on the way")
    table(
        ("from", "to", "count", "slots"), rows, title=f"{counted(len(moves), 'slot')} {word}, policy {found['policy']}"
    )
    if not done and not found["dry_run"]:
        say("see how it goes with: slotferry migration show")
