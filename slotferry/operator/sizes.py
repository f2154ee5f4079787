"""Shows the sizes of slots: ``slotferry sizing show`` and ``sizing list``, and columns of ``slotferry slot list``."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.costs import duration
from slotferry.operator import options
from slotferry.output import answer, note, say, size, table
from slots.forms import Form
from slots.ranges import RangeError, parse

COLUMNS = ("bytes", "keys", "biggest key")
LONGEST_NAME = 60
"""The most characters of a key's name in a table; JSON has the whole known name."""
MOST_PREFIXES = 12
"""How many of the biggest prefixes a table has; JSON has all that are known."""

Ranges = Annotated[
    str | None,
    typer.Argument(metavar="[RANGES]", help="Slots and ranges of slots, such as 0-511,700. All, if left out."),
]


def chosen(slots: Sequence[Answer], wanted: str | None) -> list[Answer]:
    """The slots that the ranges name. Ends the command if the ranges cannot be read."""
    if wanted is None:
        return list(slots)
    try:
        return [slots[slot] for slot in parse(wanted, len(slots))]
    except RangeError as error:
        raise typer.BadParameter(str(error), param_hint="RANGES") from None


def known(slots: Iterable[Answer]) -> bool:
    """Whether the size of any slot is known."""
    return any("bytes" in slot for slot in slots)


def largest_first(slots: Iterable[Answer]) -> list[Answer]:
    """Slots by descending bytes, those of unknown size last."""
    return sorted(slots, key=lambda slot: (-slot.get("bytes", -1), slot["id"]))


def cells(slots: Sequence[Answer]) -> tuple[object, ...]:
    """Bytes, keys and the biggest key of several slots together; unknown values are None."""
    sized = [slot for slot in slots if "bytes" in slot]
    if not sized:
        return None, None, None
    biggest = max(
        (key for slot in sized for key in slot.get("biggest", ())), key=lambda key: key["bytes"], default=None
    )
    return (
        size(sum(slot["bytes"] for slot in sized)),
        sum(slot["keys"] for slot in sized),
        f"{name(biggest)}, {size(biggest['bytes'])}" if biggest else None,
    )


def name(key: Answer) -> str:
    """A key's name in a form for a terminal: without control characters, and not too long."""
    return printable(str(key["key"]))


def printable(text: str) -> str:
    """A name in a form for a terminal."""
    safe = text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return safe if len(safe) <= LONGEST_NAME else safe[: LONGEST_NAME - 1] + "…"


def show_sizes(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show the memory of the slots of each group and of the biggest prefixes, and which sizes are stale."""
    found = options.ask(topom, token, lambda client: client.sizes())
    answer(found, form, lambda: _say_sizes(found))


def list_biggest(
    ranges: Ranges = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Keys to show, at most.")] = 20,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """List the biggest keys, of all slots or of some, as they were when sizes were measured."""
    slots = options.ask(topom, token, lambda client: client.slots(biggest=options.MOST_BIGGEST))["slots"]
    keys = _biggest(chosen(slots, ranges))[:top]

    def tell() -> None:
        if not known(slots):
            say_unknown()
        elif not keys and any(slot.get("keys") for slot in chosen(slots, ranges)):
            say("who measured the sizes of these slots named none of their keys")
        elif not keys:
            say("these slots had no keys when sizes were measured")
        else:
            _say_biggest(keys)

    answer({"keys": keys}, form, tell)


def say_keys(slots: Sequence[Answer]) -> None:
    """Print the biggest keys of slots."""
    _say_biggest(_biggest(slots))


def _biggest(slots: Iterable[Answer]) -> list[Answer]:
    keys = [
        {"slot": slot["id"], "group_id": slot["group_id"], **key} for slot in slots for key in slot.get("biggest", ())
    ]
    return sorted(keys, key=lambda key: (-key["bytes"], key["slot"], key["database"], key["key"]))


def _say_biggest(keys: Sequence[Answer]) -> None:
    rows = [
        (name(key), size(key["bytes"]), key["type"], str(key["database"]), str(key["slot"]), f"group {key['group_id']}")
        for key in keys
    ]
    table(("key", "bytes", "type", "database", "slot", "owner"), rows)


def say_unknown() -> None:
    """Print that no sizes are known, and how to measure them."""
    say("the sizes of slots are not known; `slotferry sizing run --into DIR` measures them")


def _say_sizes(found: Answer) -> None:
    last = found["last"]
    if last is None:
        say_unknown()
        return
    share = max(1, sum(group["bytes"] for group in found["groups"]))
    rows = [
        (
            f"group {group['group_id']}",
            group["slots"],
            size(group["bytes"]),
            f"{group['bytes'] / share:.1%}",
            group["keys"],
        )
        for group in found["groups"]
    ]
    title = f"{size(found['bytes'])} in {found['keys']:,} keys, measured {duration(last['age_seconds'])} ago"
    table(("group", "slots", "bytes", "share", "keys"), rows, title=title)
    if found["prefixes"]:
        _say_prefixes(found["prefixes"][:MOST_PREFIXES], max(1, last["bytes"]))
    for warning in found["warnings"]:
        note(f"note: {warning}")


def _say_prefixes(prefixes: Sequence[Answer], measured: int) -> None:
    rows = [
        (
            printable(one["prefix"]) if one["depth"] else "(no separator)",
            size(one["bytes"]),
            f"{one['bytes'] / measured:.1%}",
            one["keys"],
        )
        for one in prefixes
    ]
    table(("prefix", "bytes", "share", "keys"), rows, title="the biggest prefixes of names")
