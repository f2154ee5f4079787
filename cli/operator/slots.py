"""``slotferry slots``: who owns which slots, and the operator's changes to that."""

from itertools import groupby
from typing import Annotated

import typer

from cli.client import Answer
from cli.operator import options
from cli.operator.waiting import COURSES, wait_moved
from cli.output import answer, run, say, table
from slots.ranges import parse, show

app = typer.Typer(no_args_is_help=True, help="Show, assign and move slots. RANGES are written like 0-511,700.")

Ranges = Annotated[str, typer.Argument(metavar="RANGES", help="Slots and ranges of slots, such as 0-511,700.")]
To = Annotated[int, typer.Option("--to", metavar="GROUP", min=1, help="The group to own them.")]


@app.command("show")
def show_slots(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show which group owns which slots, and which slots are moving."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.slots()

    found = run(work())
    answer(found, as_json, lambda: _say_slots(found))


def _say_slots(found: Answer) -> None:
    def kind(slot: Answer) -> tuple[int, str, int, str]:
        action = slot["action"]
        state = (action.get("state") or "") + COURSES.get(action.get("course") or "", "")
        reason = ("skipped" if slot.get("skipped") else "", slot.get("reason") or "")
        return slot["group_id"], state, action.get("target_id") or 0, ": ".join(filter(None, reason))

    rows = []
    for (group_id, state, target_id, reason), run_of in groupby(found["slots"], key=kind):
        ids = [slot["id"] for slot in run_of]
        owner = f"group {group_id}" if group_id else "offline"
        rows.append((show(ids), len(ids), owner, state, f"group {target_id}" if state else None, reason))
    columns = ("slots", "count", "owner", "state", "on the way to", "does not go on because")
    table(columns, rows, title=f"epoch {found['epoch']}")


@app.command("assign")
def assign_slots(
    ranges: Ranges,
    group_id: To,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Give offline slots to a group at once. Use `move` for slots that have an owner."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.assign_slots(ranges, group_id)

    found = run(work())
    answer(found, as_json, lambda: say(f"assigned to group {group_id}: {_listed(found)}"))


@app.command("move")
def move_slots(
    ranges: Ranges,
    group_id: To,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Move slots with their keys to a group while clients work."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            moved = await client.move_slots(ranges, group_id)
            if wait:
                # All that were named, not only those that changed: some may have been on their way already.
                number = len((await client.slots())["slots"])
                await wait_moved(client, dict.fromkeys(parse(ranges, number), group_id), limit)
            return moved

    found = run(work())
    word = "moved" if wait else "on the way"
    answer(found, as_json, lambda: say(f"{word} to group {group_id}: {_listed(found)}"))


@app.command("offline")
def take_offline(
    ranges: Ranges,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Take slots from their group. Proxies refuse their commands; the keys stay where they are."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.take_slots_offline(ranges)

    found = run(work())
    answer(found, as_json, lambda: say(f"offline: {_listed(found)}"))


def _listed(found: Answer) -> str:
    changed = found["slots"]
    return f"slots {show(changed)}" if changed else "nothing to change"
