"""``slotferry digest``: compares a group's replicas with its master."""

import asyncio
from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.groups import GroupId
from slotferry.output import answer, in_words, note, say, table

POLL_SECONDS = 0.3


def digest(
    group_id: GroupId,
    server: Annotated[
        str | None, typer.Option("--server", metavar="HOST:PORT", help="One of its replicas; all if left out.")
    ] = None,
    keys_per_second: Annotated[
        int,
        typer.Option(
            "--keys-per-second", metavar="N", min=0, help="Limit of keys a second; 0: as fast as small steps allow."
        ),
    ] = 20_000,
    show: Annotated[bool, typer.Option("--show", help="Only show the last check, and begin none.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the check that is under way.")] = False,
    resync: Annotated[
        bool,
        typer.Option(
            "--resync",
            help="Check nothing; have replicas that are known to differ filled again by their master.",
        ),
    ] = False,
    slots: Annotated[bool, typer.Option("--slots", help="With the digests of every slot.")] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    limit: options.Limit = options.DEFAULT_LIMIT,
    as_json: options.Json = False,
) -> None:
    """Compare replicas of a group with its master, slot by slot. Ends with status 1 where one differs."""
    if show + cancel + resync > 1:
        raise typer.BadParameter("--show, --cancel and --resync exclude one another")

    async def work(client: TopomClient) -> Answer:
        if resync:
            return await _resynced(client, group_id, server, limit)
        if cancel:
            return await client.cancel_digest(group_id)
        if not show:
            await client.start_digest(group_id, server, keys_per_second)
            await _over(client, group_id, limit)
        return await client.digest(group_id, slots)

    found = options.ask(topom, token, work)
    if server is not None:
        for name in ("replicas", "known"):
            found[name] = [one for one in found.get(name, []) if one["server"] == server]
    answer(found, as_json, lambda: _say(found, resync))
    if not resync and (
        any(replica["stage"] in ("different", "failed") for replica in found["replicas"]) or found.get("known")
    ):
        raise typer.Exit(1)


async def _over(client: TopomClient, group_id: int, limit: float) -> None:
    """Wait until no check is under way; after the time limit the check still goes on."""
    try:
        async with asyncio.timeout(limit):
            while any(one["stage"] == "running" for one in (await client.digest(group_id))["replicas"]):
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        note(f"it goes on; see slotferry digest {group_id} --show")


async def _resynced(client: TopomClient, group_id: int, server: str | None, limit: float) -> Answer:
    """Have replicas filled again, and wait until they are, or until topom has given up."""
    told = await client.resync_replica(group_id, server)
    try:
        async with asyncio.timeout(limit):
            while await _filled(client, group_id):
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        note(f"it goes on; see slotferry digest {group_id} --show")
    return {**told, "replicas": [], "known": await _known(client, group_id)}


async def _filled(client: TopomClient, group_id: int) -> bool:
    """Whether replicas of a group are being filled again."""
    found = await client.digest_if_any(group_id)
    return any(one["resyncing"] for one in (*found.get("replicas", ()), *found["known"]))


async def _known(client: TopomClient, group_id: int) -> list[Answer]:
    """The stored differences of the group's replicas."""
    found = await client.digest_if_any(group_id)
    return list(found["known"])


def _say(found: Answer, resync: bool) -> None:
    known = {one["server"]: one for one in found.get("known", [])}
    if resync:
        for server in found["servers"]:
            say(f"{server} {'was not filled again' if server in known else 'holds a new copy'}")
        return
    for replica in found["replicas"]:
        text = f"{replica['server']}: {replica['stage']}, {replica['keys']} keys of {replica['keys_total']} compared"
        say(text + (f" ({in_words(replica['reason'])})" if replica["reason"] else ""))
        for title, names in (
            (f"{replica['differences']} keys differ from {replica['master']}", replica["named"]),
            (f"{replica['uncompared']} keys were not compared", replica["uncompared_named"]),
        ):
            if names:
                rows = [(one["slot"], one["database"], ascii(one["key"])[1:-1], one["what"]) for one in names]
                table(("slot", "database", "key", "what"), rows, title)
        if replica["slots"]:
            rows = [(one["slot"], one["keys"], one["master"], one["replica"]) for one in replica["slots"]]
            table(("slot", "keys", "master", "replica"), rows)
    for one in known.values():
        say(in_words(one["reason"]))
