"""``slotferry slot``: shows and changes which group owns which slots."""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated

import typer

from slotferry import completing
from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options, sizes, slotof
from slotferry.operator.looking import fields
from slotferry.operator.waiting import COURSES, wait_moved
from slotferry.output import answer, fail, in_words, say, table
from slots.forms import Form
from slots.ranges import named, parse, show

app = typer.Typer(no_args_is_help=True, help="See, assign and move slots. RANGES are written like 0-511,700.")

Ranges = Annotated[str, typer.Argument(metavar="RANGES", help="Slots and ranges of slots, such as 0-511,700.")]
To = Annotated[
    int,
    typer.Option("--to", metavar="GROUP", min=1, help="The group that gets them.", autocompletion=completing.groups),
]


app.command("of")(slotof.slot_of)


@app.command("list")
def list_slots(
    ranges: sizes.Ranges = None,
    each: Annotated[bool, typer.Option("--each", help="A row for each slot, instead of one for equal slots.")] = False,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", min=1, help="Only the N largest slots, each in a row.")
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """List which group owns which slots, which slots are moving, and their bytes, keys and biggest key where known."""
    found = options.ask(
        topom, token, lambda client: client.slots(biggest=options.MOST_BIGGEST if form is not Form.TABLE else 1)
    )
    found["slots"] = sizes.chosen(found["slots"], ranges)
    if top is not None:
        found["slots"] = sizes.largest_first(found["slots"])[:top]
    answer(found, form, lambda: _say_slots(found, each or top is not None))


@app.command("show")
def show_slot(
    slot: Annotated[int, typer.Argument(metavar="SLOT", min=0, help="A slot's number.")],
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one slot: its owner, where it moves, and its size and biggest keys where known."""
    slots = options.ask(topom, token, lambda client: client.slots(biggest=options.MOST_BIGGEST))["slots"]
    if slot >= len(slots):
        raise fail(f"there is no slot {slot}; the last one is {len(slots) - 1}")
    found = slots[slot]

    def tell() -> None:
        columns, (cells,) = _rows([found], each=True)
        fields(dict(zip(columns, cells, strict=True)))
        if found.get("biggest"):
            sizes.say_keys([found])

    answer(found, form, tell)


def _say_slots(found: Answer, each: bool) -> None:
    columns, rows = _rows(found["slots"], each)
    table(columns, rows, title=f"epoch {found['epoch']}")


def _rows(slots: Sequence[Answer], each: bool) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    """Names of columns, and a row for each slot, or for each run of slots that are alike."""

    def kind(slot: Answer) -> tuple[int, str, int, bool, Answer]:
        action = slot["action"]
        state = (action.get("state") or "") + COURSES.get(action.get("course") or "", "")
        skipped = bool(slot.get("skipped"))
        return slot["group_id"], state, action.get("target_id") or 0, skipped, slot.get("reason") or {}

    with_sizes = sizes.known(slots)
    runs = (
        ((kind(slot), [slot]) for slot in slots)
        if each
        else ((alike, list(run_of)) for alike, run_of in groupby(slots, key=kind))
    )
    rows: list[tuple[object, ...]] = []
    for (group_id, state, target_id, skipped, reason), run_of in runs:
        owner = f"group {group_id}" if group_id else "offline"
        ids = show(slot["id"] for slot in run_of)
        because = ": ".join(filter(None, ("skipped" if skipped else "", in_words(reason))))
        sized = sizes.cells(run_of) if with_sizes else ()
        rows.append((ids, len(run_of), owner, *sized, state, f"group {target_id}" if state else None, because))
    sized_columns = sizes.COLUMNS if with_sizes else ()
    return ("slots", "count", "owner", *sized_columns, "state", "on the way to", "does not go on because"), rows


@app.command("assign")
def assign_slots(
    ranges: Ranges,
    group_id: To,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Give offline slots to a group at once. Use `move` for slots that have an owner."""
    found = options.ask(topom, token, lambda client: client.assign_slots(ranges, group_id))
    answer(found, form, lambda: say(f"assigned to group {group_id}: {_listed(found)}"))


@app.command("move")
def move_slots(
    ranges: Ranges,
    group_id: To,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Move slots with their keys to a group while clients work."""

    async def work(client: TopomClient) -> Answer:
        moved = await client.move_slots(ranges, group_id)
        if wait:
            # All that were named, not only those that changed: some may have been on their way already.
            def targets(slots: Sequence[Answer]) -> dict[int, int]:
                return dict.fromkeys(parse(ranges, len(slots)), group_id)

            await wait_moved(client, targets, limit, moved["epoch"])
        return moved

    found = options.ask(topom, token, work)
    word = "moved" if wait else "on the way"

    def tell() -> None:
        if found["slots"]:
            say(f"{word} to group {group_id}: {named(found['slots'])}")
        else:
            say(f"nothing to change: these slots are in group {group_id} or on the way to it")

    answer(found, form, tell)


@app.command("offline")
def take_offline(
    ranges: Ranges,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Take slots from their group. Proxies refuse their commands; the keys stay where they are."""
    found = options.ask(topom, token, lambda client: client.take_slots_offline(ranges))
    answer(found, form, lambda: say(f"offline: {_listed(found)}"))


def _listed(found: Answer) -> str:
    changed = found["slots"]
    return named(changed) if changed else "nothing to change"
