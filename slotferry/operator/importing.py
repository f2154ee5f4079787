"""``slotferry import``: takes servers and slots over from another system."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from slotferry.calls import Answer, TopomError, TopomRefused
from slotferry.client import TopomClient
from slotferry.codis import dump as codis_dump
from slotferry.codis.plan import Plan, plan_import
from slotferry.operator import options
from slotferry.operator.groups import hidden_keys
from slotferry.output import FAILED, answer, fail, note, say, table
from slots import ranges
from slots.forms import Form

NOT_THE_MASTER = "TakesNoWrites"
"""topom's error where a replica is to be a group's first server."""

app = typer.Typer(no_args_is_help=True, help="Bring in groups, servers and slots from another system.")


@app.callback()
def _root() -> None:
    """Other systems have their own verbs."""


@app.command("codis")
def import_codis(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `codis-admin --config-dump` printed.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken, and what not.")] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Take groups, servers and slots from Codis. Nothing is done where topom disagrees; it can be run again.

    Ends with status 1 if nothing was done, if slots that have a group in Codis could not be taken, or if a server does
    not answer topom as the dump has it.
    """
    try:
        dump = codis_dump.load(source)
    except codis_dump.DumpInvalid as error:
        raise fail(str(error)) from None

    async def work(client: TopomClient) -> tuple[Plan, list[str]]:
        plan = plan_import(dump, await client.status(), (await client.slots())["slots"])
        if dry_run or plan.conflicts:
            return plan, []
        await _carry_out(client, plan)
        return plan, checks(dump, (await client.status())["groups"])

    plan, found = options.ask(topom, token, work)
    answer(_described(plan, found, dry_run), form, lambda: _say(plan, found, dry_run))
    if plan.conflicts or plan.left or found:
        raise typer.Exit(FAILED)


async def _carry_out(client: TopomClient, plan: Plan) -> None:
    try:
        for group_id in plan.groups:
            await client.add_group(group_id, [])
        for group_id, address, datacenter in plan.servers:
            # One that is down in Codis is down here, too; the checks at the end name it.
            added = await client.add_server(group_id, address, datacenter, offline_ok=True)
            for sentence in hidden_keys(added):
                note(f"{address}: {sentence}")
        for group_id, address, datacenter in plan.datacenters:
            await client.set_datacenter(group_id, address, datacenter)
        for group_id, slots in sorted(plan.slots.items()):
            await client.assign_slots(ranges.show(slots), group_id)
    except TopomError as error:
        note("some parts were not taken; correct that and run this again, and it goes on from here")
        if isinstance(error, TopomRefused) and error.error == NOT_THE_MASTER:
            note(
                "Codis's Sentinels have made another server the master, and the dump is older: start Codis's dashboard "
                "until it knows the new one, end it, dump again, and import that. Detach no server"
            )
        raise error from None


def checks(dump: codis_dump.Dump, groups: list[Answer]) -> list[str]:
    """Errors of the dump's servers, as topom sees them."""
    taken = {group.id for group in dump.groups}
    wrong = []
    for group in groups:
        for place, server in enumerate(group["servers"] if group["id"] in taken else ()):
            wanted = "replica" if place else "master"
            named = f"{server['address']} of group {group['id']}"
            if not server["up"]:
                wrong.append(f"{named} does not answer topom; see that it runs, and topom's redis_password")
            elif server["role"] != wanted:
                wrong.append(f"{named} says that it is a {server['role']}, and should be a {wanted}")
    return wrong


def _described(plan: Plan, found: list[str], dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "conflicts": plan.conflicts,
        "groups": plan.groups,
        "servers": [
            {"group_id": group_id, "address": address, "datacenter": datacenter}
            for group_id, address, datacenter in plan.servers
        ],
        "datacenters": [
            {"group_id": group_id, "address": address, "datacenter": datacenter}
            for group_id, address, datacenter in plan.datacenters
        ],
        "slots": {str(group_id): ranges.show(slots) for group_id, slots in sorted(plan.slots.items())},
        "slots_there": ranges.show(plan.there),
        "slots_left": ranges.show(plan.left),
        "not_taken": [asdict(one) for one in plan.not_taken],
        "notes": [*plan.notes, *found],
    }


def _say(plan: Plan, found: list[str], dry_run: bool) -> None:
    if plan.conflicts:
        say("nothing was done, for topom and the dump disagree:")
        for conflict in plan.conflicts:
            say(f"- {conflict}")
        return
    rows: list[tuple[str, str]] = [("group", str(group_id)) for group_id in plan.groups]
    for group_id, address, datacenter in plan.servers + plan.datacenters:
        where = f", datacenter {datacenter}" if datacenter else ""
        rows.append(("server", f"{address} to group {group_id}{where}"))
    for group_id, slots in sorted(plan.slots.items()):
        rows.append(("slots", f"{ranges.show(slots)} to group {group_id} ({len(slots)})"))
    if plan.there:
        rows.append(("there already", f"slots {ranges.show(plan.there)} ({len(plan.there)})"))
    table(("would take" if dry_run else "taken", "what"), rows)
    if plan.not_taken:
        table(("not taken", "because"), [(one.what, one.why) for one in plan.not_taken])
    for sentence in [*plan.notes, *found]:
        say(f"look at: {sentence}")
    if plan.left:
        note(
            f"slots {ranges.show(plan.left)} have to be taken before clients are pointed here: dump again, and run this"
        )
