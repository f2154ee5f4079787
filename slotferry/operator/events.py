"""``slotferry events``: what was done to the cluster, by whom and when."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import typer

from slotferry.calls import Answer, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.output import answer, moment, note, print_written, say, table
from slots.backoff import Backoff
from slots.forms import Form

POLL_SECONDS = 1.0
"""Pause between two requests of ``--follow`` while nothing happens."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 10.0
"""Pause between tries while topom does not answer."""


def events(
    since: Annotated[
        int | None, typer.Option("--since", metavar="ID", min=0, help="Only events after this one, oldest first.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with each event that happens, until Ctrl-C.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show what operators and topom did, the newest last. With --follow, --output json prints a line for each event."""
    if follow:
        options.ask(topom, token, lambda client: _follow(client, since, limit, form))
        return
    found = options.ask(topom, token, lambda client: client.events(since, limit))
    answer(found, form, lambda: _say_events(found["events"]))


async def _follow(client: TopomClient, since: int | None, limit: int, form: Form) -> None:
    async for event in _stream(client, since, limit):
        if form is Form.TABLE:
            say("  ".join(_cells(event)))
        else:
            print_written(event, form, many=True)


async def _stream(client: TopomClient, since: int | None, limit: int) -> AsyncIterator[Answer]:
    """Events as they come, without end; after topom was away it goes on from the last one."""
    backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
    while True:
        try:
            found = await client.events(since, limit)
        except TopomUnreachable as error:
            note(f"{error}; trying again")
            await asyncio.sleep(backoff.next())
            continue
        backoff.reset()
        if since is not None and found["newest"] < since:
            note("topom has another store, so its events start again")
            since = 0
            continue
        if since is not None and found["events"] and found["events"][0]["id"] > since + 1:
            note(f"events {since + 1} to {found['events'][0]['id'] - 1} are not kept any more")
        for event in found["events"]:
            yield event
        since = found["events"][-1]["id"] if found["events"] else (since or found["newest"])
        if not found["events"]:
            await asyncio.sleep(POLL_SECONDS)


def _say_events(found: Sequence[Answer]) -> None:
    table(
        ("id", "when", "who", "what", "epoch", "text"),
        [_cells(event) for event in found],
        spare=("epoch", "what", "who"),
    )


def _cells(event: Answer) -> tuple[str, ...]:
    before, after = event["epoch_before"], event["epoch_after"]
    when = moment(event["at"])
    epochs = f"{before}" if before == after else f"{before} to {after}"
    return str(event["id"]), when, event["who"], event["what"], epochs, event["text"]
