"""``slotferry rebalance``: have topom plan and make moves."""

from collections import Counter
from typing import Annotated

import typer

from cli.client import Answer
from cli.operator import options
from cli.operator.waiting import wait_moved
from cli.output import answer, run, say, table
from slots.ranges import show

Policy = Annotated[
    str, typer.Option("--policy", metavar="NAME", help="How to plan: codis evens out the number of slots per group.")
]
DEFAULT_POLICY = "codis"


def rebalance(
    policy: Policy = DEFAULT_POLICY,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the moves, do not make them.")] = False,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Even out the groups: plan which slots go where, and move them with their keys while clients work."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            planned = await client.rebalance(policy, dry_run)
            if wait and not dry_run:
                await wait_moved(client, {move["slot"]: move["to"] for move in planned["moves"]}, limit)
            return planned

    found = run(work())
    answer(found, as_json, lambda: _say_plan(found, done=wait and not dry_run))


def _say_plan(found: Answer, done: bool) -> None:
    moves = found["moves"]
    if not moves:
        say("nothing to move: the groups are even")
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
