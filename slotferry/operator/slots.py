"""``slotferry slots``: shows and changes which group owns which slots."""

from itertools import groupby
from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options, sizes
from slotferry.operator.waiting import COURSES, wait_moved
from slotferry.output import answer, in_words, say, table
from slots.ranges import parse, show

app = typer.Typer(no_args_is_help=True, help="Show, assign and move slots. RANGES are written like 0-511,700.")

Ranges = Annotated[str, typer.Argument(metavar="RANGES", help="Slots and ranges of slots, such as 0-511,700.")]
To = Annotated[int, typer.Option("--to", metavar="GROUP", min=1, help="The group that gets them.")]


app.command("sizes")(sizes.show_sizes)
app.command("biggest")(sizes.show_biggest)


@app.command("show")
def show_slots(
    ranges: sizes.Ranges = None,
    each: Annotated[
        bool, typer.Option("--each", help="Show a row for each slot, instead of one for equal slots.")
    ] = False,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", min=1, help="Show only the N largest slots, each in a row.")
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Show which group owns which slots, which slots are moving, and their bytes, keys and biggest key where known."""
    found = options.ask(topom, token, lambda client: client.slots(biggest=options.MOST_BIGGEST if as_json else 1))
    found["slots"] = sizes.chosen(found["slots"], ranges)
    if top is not None:
        found["slots"] = sizes.largest_first(found["slots"])[:top]
    answer(found, as_json, lambda: _say_slots(found, each or top is not None))


def _say_slots(found: Answer, each: bool) -> None:
    def kind(slot: Answer) -> tuple[int, str, int, bool, Answer]:
        action = slot["action"]
        state = (action.get("state") or "") + COURSES.get(action.get("course") or "", "")
        skipped = bool(slot.get("skipped"))
        return slot["group_id"], state, action.get("target_id") or 0, skipped, slot.get("reason") or {}

    with_sizes = sizes.known(found["slots"])
    runs = (
        ((kind(slot), [slot]) for slot in found["slots"])
        if each
        else ((alike, list(run_of)) for alike, run_of in groupby(found["slots"], key=kind))
    )
    rows: list[tuple[object, ...]] = []
    for (group_id, state, target_id, skipped, reason), run_of in runs:
        owner = f"group {group_id}" if group_id else "offline"
        ids = show(slot["id"] for slot in run_of)
        because = ": ".join(filter(None, ("skipped" if skipped else "", in_words(reason))))
        sized = sizes.cells(run_of) if with_sizes else ()
        rows.append((ids, len(run_of), owner, *sized, state, f"group {target_id}" if state else None, because))
    sized_columns = sizes.COLUMNS if with_sizes else ()
    columns = ("slots", "count", "owner", *sized_columns, "state", "on the way to", "does not go on because")
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
    found = options.ask(topom, token, lambda client: client.assign_slots(ranges, group_id))
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

    async def work(client: TopomClient) -> Answer:
        moved = await client.move_slots(ranges, group_id)
        if wait:
            # All that were named, not only those that changed: some may have been on their way already.
            number = len((await client.slots())["slots"])
            await wait_moved(client, dict.fromkeys(parse(ranges, number), group_id), limit)
        return moved

    found = options.ask(topom, token, work)
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
    found = options.ask(topom, token, lambda client: client.take_slots_offline(ranges))
    answer(found, as_json, lambda: say(f"offline: {_listed(found)}"))


def _listed(found: Answer) -> str:
    changed = found["slots"]
    return f"slots {show(changed)}" if changed else "nothing to change"
