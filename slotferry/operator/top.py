"""``slotferry top``: what is busy now, again and again."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from slotferry.calls import Answer, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.addressing import Where
from slotferry.operator.load import groups, hot_keys, servers, summary
from slotferry.output import drawn, in_words, out, run
from slotferry.signals import until_signal

HOT_KEYS = 10
SERVERS = 20


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.5, help="Between two looks at topom.")
    ] = 2.0,
    times: Annotated[
        int | None, typer.Option("-n", metavar="N", min=1, help="End after so many looks.", show_default="never")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
) -> None:
    """Show the busiest groups, servers and keys, and slots that move, and look again every two seconds, until Ctrl-C.
    Without a terminal, what each look finds is printed below the one before."""
    run(until_signal(_watch(options.resolve(topom, token), interval, 1 if once else times)))


async def _watch(where: Where, interval: float, times: int | None) -> None:
    live = Live(console=out, auto_refresh=False, screen=True) if out.is_terminal and times is None else None
    async with options.client(where) as client:
        with live or nullcontext():
            left = times
            while True:
                shown = await _look(client, patient=times is None)
                if live is not None:
                    live.update(shown, refresh=True)
                else:
                    out.print(shown)
                left = None if left is None else left - 1
                if left == 0:
                    return
                await asyncio.sleep(interval)


async def _look(client: TopomClient, patient: bool) -> RenderableType:
    """What topom says now; why it cannot be asked, if it is away for a moment and ``patient``."""
    try:
        found, migration = await asyncio.gather(client.load(), client.migration())
    except TopomUnreachable as error:
        if not patient:
            raise
        return Text(f"{error}; trying again")
    return Group(*_tables(found, migration))


def _tables(found: Answer, migration: Answer) -> Iterator[RenderableType]:
    yield Text(summary(found))
    yield groups(found)
    yield servers(found, SERVERS)
    yield Text(
        f"slots: {migration['slots_moving']:,} moving, {migration['slots_pending']:,} pending, "
        f"{migration['keys_per_second']:,.0f} keys/s" + (", paused" if migration["paused"] else "")
    )
    if migration["batches"]:
        rows = (
            (
                str(batch["source"]),
                str(batch["target"]),
                batch["state"],
                batch["slots"],
                batch["keys_moved"],
                in_words(batch.get("reason")),
            )
            for batch in migration["batches"]
        )
        yield drawn(("from", "to", "state", "slots", "keys moved", "waits"), rows, title="moves")
    yield hot_keys(found, HOT_KEYS)
