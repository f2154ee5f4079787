"""``slotferry digest``: compares a group's replicas with its master."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import typer

from slotferry import completing
from slotferry.calls import Answer, TopomError, TopomRefused, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.options import GroupId
from slotferry.operator.waiting import Patience
from slotferry.output import answer, in_words, note, say, table
from slots.counting import counted
from slots.forms import Form

POLL_SECONDS = 0.3


app = typer.Typer(no_args_is_help=True, help="Compare replicas of a group with its master, slot by slot.")

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="One of its replicas; all if left out.",
        autocompletion=completing.servers,
    ),
]
Slots = Annotated[bool, typer.Option("--slots", help="With the digests of every slot.")]


@app.command("run")
def run(
    group_id: GroupId,
    server: Server = None,
    keys_per_second: Annotated[
        int,
        typer.Option(
            "--keys-per-second", metavar="N", min=0, help="Limit of keys a second; 0: as fast as small steps allow."
        ),
    ] = 20_000,
    slots: Slots = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    limit: options.Limit = options.DEFAULT_LIMIT,
    form: options.Output = Form.TABLE,
) -> None:
    """Compare replicas of a group with its master, slot by slot. Ends with status 1 where one differs."""

    async def work(client: TopomClient) -> Answer:
        begun = await client.start_digest(group_id, server, keys_per_second)
        found = await _waited(client, group_id, limit, _checked, slots)
        known = {one["server"] for one in found.get("replicas", ())}
        if lost := [one["server"] for one in begun["replicas"] if one["server"] not in known]:
            raise TopomError(
                f"the check of {', '.join(lost)} is over without an outcome, for another topom leads by now, which "
                f"knows nothing of it; begin it anew: slotferry digest run {group_id}"
            )
        return found

    _report(options.ask(topom, token, work), server, form)


@app.command("show")
def show(
    group_id: GroupId,
    server: Server = None,
    slots: Slots = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show how the check of a group goes, or what the last one found. Ends with status 1 where a replica differs."""
    _report(options.ask(topom, token, lambda client: client.digest(group_id, slots)), server, form)


@app.command("cancel")
def cancel(
    group_id: GroupId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """End the check of a group that is under way."""
    _report(options.ask(topom, token, lambda client: client.cancel_digest(group_id)), None, form)


@app.command("resync")
def resync(
    group_id: GroupId,
    server: Server = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    limit: options.Limit = options.DEFAULT_LIMIT,
    form: options.Output = Form.TABLE,
) -> None:
    """Have the master fill replicas again that are known to differ. Nothing is checked."""
    found = options.ask(topom, token, lambda client: _resynced(client, group_id, server, limit))
    _choose(found, server)

    def tell() -> None:
        differing = {one["server"] for one in found["known"]}
        for name in found["servers"]:
            say(f"{name} {'was not filled again' if name in differing else 'holds a new copy'}")

    answer(found, form, tell)


def _report(found: Answer, server: str | None, form: Form) -> None:
    """Print what a check found, and end with status 1 where a replica differs."""
    _choose(found, server)
    answer(found, form, lambda: _say(found))
    if any(replica["stage"] in ("different", "failed") for replica in found["replicas"]) or found.get("known"):
        raise typer.Exit(1)


def _choose(found: Answer, server: str | None) -> None:
    if server is not None:
        for name in ("replicas", "known"):
            found[name] = [one for one in found.get(name, []) if one["server"] == server]


async def _waited(
    client: TopomClient, group_id: int, limit: float, goes_on: Callable[[Answer], bool], slots: bool = False
) -> Answer:
    """What is known of a group once this is over; after ``limit`` seconds it still goes on.

    Args:
        slots: with the digests of every slot.
    """
    patience = Patience()
    try:
        async with asyncio.timeout(limit):
            while True:
                try:
                    found = await client.digest_if_any(group_id)
                    if not goes_on(found):
                        return await client.digest_if_any(group_id, slots) if slots else found
                    patience.heard()
                except (TopomUnreachable, TopomRefused) as error:
                    patience.bear(error)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        note(f"it goes on; see slotferry digest show {group_id}")
    return await client.digest_if_any(group_id, slots)


def _checked(found: Answer) -> bool:
    """Whether replicas of a group are being checked."""
    return any(one["stage"] == "running" for one in found.get("replicas", ()))


async def _resynced(client: TopomClient, group_id: int, server: str | None, limit: float) -> Answer:
    """Have replicas filled again, and wait until they are, or until topom has given up."""
    told = await client.resync_replica(group_id, server)
    found = await _waited(client, group_id, limit, _filled)
    return {**told, "replicas": [], "known": list(found["known"])}


def _filled(found: Answer) -> bool:
    """Whether replicas of a group are being filled again."""
    return any(one["resyncing"] for one in (*found.get("replicas", ()), *found["known"]))


def _say(found: Answer) -> None:
    for replica in found["replicas"]:
        compared = f"{replica['keys']:,} of {counted(replica['keys_total'], 'key')} compared"
        text = f"{replica['server']}: {replica['stage']}, {compared}"
        say(text + (f" ({in_words(replica['reason'])})" if replica["reason"] else ""))
        for title, names in (
            (
                f"{counted(replica['differences'], 'key differs', 'keys differ')} from {replica['master']}",
                replica["named"],
            ),
            (
                f"{counted(replica['uncompared'], 'key was', 'keys were')} not compared",
                replica["uncompared_named"],
            ),
        ):
            if names:
                rows = [(one["slot"], one["database"], ascii(one["key"])[1:-1], one["what"]) for one in names]
                table(("slot", "database", "key", "what"), rows, title)
        if replica["slots"]:
            rows = [(one["slot"], one["keys"], one["master"], one["replica"]) for one in replica["slots"]]
            table(("slot", "keys", "master", "replica"), rows)
    for one in found.get("known", []):
        say(in_words(one["reason"]))
