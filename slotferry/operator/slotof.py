"""``slotferry slot of``: the slots of keys, by the product's slot function and its slot rules.

topom knows both. Without it the answer has a row for each slot function, and says that no rule was looked at.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from slotferry.calls import TopomError
from slotferry.client import key_slots_of
from slotferry.operator import options
from slotferry.output import answer, note, table
from slots import functions
from slots.forms import Form
from slots.keyslots import KeySlots
from slots.slot import MAXIMUM_SLOTS
from slots.table import DEFAULT_SLOTS

Row = dict[str, Any]


def slot_of(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys, as a client would write them.")],
    database: Annotated[
        int, typer.Option("--database", metavar="N", min=0, help="The keys' database, which a slot rule may name.")
    ] = 0,
    number_of_slots: Annotated[
        int | None,
        typer.Option(
            "--slots",
            metavar="N",
            min=1,
            max=MAXIMUM_SLOTS,
            help="Do not ask topom: say the slots by each slot function for so many slots, a power of two.",
        ),
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show the slot of each key, what of it is hashed, and the slot rule that says so if there is one."""
    if number_of_slots is not None and number_of_slots & (number_of_slots - 1):
        raise typer.BadParameter("has to be a power of two", param_hint="--slots")
    # Bytes that are not text come from the shell as surrogates.
    raw = [key.encode(errors="surrogateescape") for key in keys]
    status = _status(topom, token) if number_of_slots is None else None
    if status is None:
        count = number_of_slots or DEFAULT_SLOTS
        found = [
            row for key in raw for name in functions.names() for row in rows(KeySlots(name, count), database, [key])
        ]
        note("topom was not asked, so no slot rules were looked at: this is the slot of keys that no rule matches")
    else:
        found = rows(key_slots_of(status), database, raw)
    answer(found, form, lambda: table(("key", "function", "tag", "rule", "slot"), shown(found)))


def _status(topom: str, token: str) -> Mapping[str, Any] | None:
    """topom's status; None if it does not give it."""
    where = options.resolve(topom, token)

    async def ask() -> Mapping[str, Any]:
        async with options.client(where) as client:
            return await client.status()

    try:
        return asyncio.run(ask())
    except TopomError as error:
        note(str(error))
        return None


def rows(key_slots: KeySlots, database: int, keys: Sequence[bytes]) -> list[Row]:
    """For each key of a database, its slot and what decides it."""
    return [_row(key_slots, database, key) for key in keys]


def _row(key_slots: KeySlots, database: int, key: bytes) -> Row:
    rule = key_slots.rule_of(database, key)
    return {
        "key": _text(key),
        "function": key_slots.function,
        "tag": _text(functions.hash_tag(key_slots.function, key_slots.hashed(database, key))),
        "rule": rule.to_wire() if rule is not None else None,
        "slot": key_slots.slot_of(database, key),
    }


def _text(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def shown(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows of the table."""
    return [(_shown(row["key"]), row["function"], _shown(row["tag"]), _pattern(row), str(row["slot"])) for row in found]


def _pattern(row: Row) -> str:
    return row["rule"]["pattern"] if row["rule"] is not None else ""


def _shown(text: str) -> str:
    return text if text.isprintable() and text else repr(text.encode(errors="surrogateescape"))[1:]
