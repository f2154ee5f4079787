"""``slotferry migration``: the state of the moving of keys, and its pace."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.waiting import COURSES, describe, wait_moved
from slotferry.output import answer, in_words, say, size, table
from slots import ranges
from slots.counting import counted
from slots.forms import Form
from slots.slot import MOST_REPLICAS

app = typer.Typer(no_args_is_help=True, help="See, pause, pace, cancel and retry the moving of keys.")

Slots = Annotated[
    str | None, typer.Option("--slots", metavar="RANGES", help="Slots, such as 0-511,700. All, if not given.")
]


class Way(StrEnum):
    """How slots move."""

    KEYS = "keys"
    STREAM = "stream"
    AUTO = "auto"


SETTINGS = {
    "parallel_slots": "slots of one pair of groups that move together",
    "keys_per_second": "limit over all moves, 0 for none",
    "bytes_per_second": "limit over all moves, 0 for none",
    "latency_goal_milliseconds": "time for servers to answer 99 of 100 requests, 0 for no goal",
    "hours": "hours of the day in which keys move; empty means always",
    "time_zone": "time zone of these hours; empty means the one of topom's computer",
    "min_replicas": "replicas that have to have a key before it is deleted at its source",
    "way": "how slots move that begin now: key by key, by the replication stream, or each batch as suits it",
}


@app.command("show")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show which slots move, how fast, and how many keys are left."""
    found = options.ask(topom, token, lambda client: client.migration())
    answer(found, form, lambda: say_migration(found, settings=True))


@app.command("pause")
def pause(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Stop moving keys. Keys that have moved stay there, and clients are served as before."""
    found = options.ask(topom, token, lambda client: client.pause_migration())
    answer(found, form, lambda: say("moving of keys is paused"))


@app.command("resume")
def resume(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Go on moving keys."""
    found = options.ask(topom, token, lambda client: client.resume_migration())
    answer(found, form, lambda: say("moving of keys goes on"))


@app.command("set")
def set_settings(
    parallel_slots: Annotated[
        int | None, typer.Option(min=1, help="Slots of one pair of groups that move together.")
    ] = None,
    keys_per_second: Annotated[int | None, typer.Option(min=0, help="Limit over all moves; 0: none.")] = None,
    bytes_per_second: Annotated[int | None, typer.Option(min=0, help="Limit over all moves; 0: none.")] = None,
    latency_goal_milliseconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Milliseconds within which source and target should answer 99 of 100 requests; moving slows "
            "down to hold it. 0: no goal.",
        ),
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option(metavar="SPANS", help="Hours of the day in which keys move, such as 22:00-06:00. '': always."),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Time zone of these hours, such as Europe/Paris. '': the one of topom's computer."
        ),
    ] = None,
    min_replicas: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_REPLICAS,
            help="Replicas of the target that have to have a key before it is deleted at its source. For a "
            "slot that is already moving, proxies keep the number from its start.",
        ),
    ] = None,
    way: Annotated[
        Way | None,
        typer.Option(
            help="How slots move that begin from now on: key by key, by the replication stream, or each batch as "
            "suits it."
        ),
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Change the pace, and what keys wait for. topom remembers it, and moves under way follow at once."""
    given: dict[str, int | float | str | None] = {
        "parallel_slots": parallel_slots,
        "keys_per_second": keys_per_second,
        "bytes_per_second": bytes_per_second,
        "latency_goal_milliseconds": latency_goal_milliseconds,
        "hours": hours,
        "time_zone": time_zone,
        "min_replicas": min_replicas,
        "way": None if way is None else str(way),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise typer.BadParameter("name at least one setting, such as --keys-per-second 20000")
    found = options.ask(topom, token, lambda client: client.set_migration(**changes))
    answer(found, form, lambda: say_migration(found, settings=True))


@app.command("cancel")
def cancel(
    slots: Slots = None,
    wait: options.Wait = False,
    limit: options.Limit = options.DEFAULT_LIMIT,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Cancel moves. Keys of a slot that have moved go back; a slot that has moved as a whole stays in its new group."""

    async def work(client: TopomClient) -> Answer:
        cancelled = await client.cancel_migration(slots)
        if wait:
            returning = set(cancelled["returning"])

            def homes(slots: Sequence[Answer]) -> dict[int, int]:
                return {slot["id"]: _home(slot) for slot in slots if slot["id"] in returning}

            await wait_moved(client, homes, limit, cancelled["epoch"])
        return cancelled

    found = options.ask(topom, token, work)
    answer(found, form, lambda: _say_cancelled(found, wait))


@app.command("skip")
def skip(
    slots: Annotated[str, typer.Option("--slots", metavar="RANGES", help="Slots, such as 0-511,700.")],
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have slots that do not go on step aside for others, until they are retried."""
    found = options.ask(topom, token, lambda client: client.skip_slots(slots=slots))
    answer(found, form, lambda: say(f"skipped: {_listed(found['slots'])}"))


@app.command("retry")
def retry(
    slots: Slots = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Try at once what failed and waits, and have skipped slots go on."""
    found = options.ask(topom, token, lambda client: client.retry_migration(slots=slots))
    more = f"; no longer skipped: {_listed(found['slots'])}" if found["slots"] else ""
    answer(found, form, lambda: say(f"tried again{more}"))


def _home(slot: Answer) -> int:
    """The group that a cancelled slot returns to."""
    action = slot["action"]
    return int(action["target_id"] if action.get("course") == "back" else slot["group_id"])


def _say_cancelled(found: Answer, waited: bool) -> None:
    said = [
        (found["ended"], "cancelled before anything moved"),
        (found["returning"], "have returned" if waited else "on the way back"),
        (found["too_late"], "too late, they have moved"),
    ]
    for slots, word in said:
        if slots:
            say(f"{word}: {_listed(slots)}")
    if not any(slots for slots, _ in said):
        say("nothing to cancel")


def _listed(slots: list[int]) -> str:
    return ranges.named(slots) if slots else "nothing to change"


def say_migration(found: Answer, settings: bool = False) -> None:
    """Print the state of the migration, and with ``settings`` its pace, as text."""
    say(
        f"migration: {counted(found['slots_pending'], 'slot')} pending, {found['slots_moving']} moving, "
        f"{found['slots_moved']} moved since topom started, "
        f"{counted(found['keys_moved'], 'key')}, {size(found['bytes_moved'])}; {describe(found)}"
    )
    if found["batches"]:
        columns = ("from", "to", "state", "slots", "keys", "bytes", "keys left", "passes", "reason")
        rows = [
            (
                f"group {batch['source']}" if batch["source"] else "offline",
                f"group {batch['target']}",
                batch["state"] + COURSES.get(batch.get("course", ""), ""),
                ranges.shortened(batch["slots"]),
                batch["keys_moved"],
                size(batch["bytes_moved"]),
                batch["remaining_keys"],
                batch["passes"],
                "; ".join(filter(None, (in_words(batch["reason"]), *batch.get("notes", [])))),
            )
            for batch in found["batches"]
        ]
        table(columns, rows)
    held = [batch for batch in found["batches"] if batch.get("pacing")]
    if held:
        table(
            ("from", "to", "speed", "source p99 ms", "target p99 ms", "allowed ms"),
            [_pacing_row(batch) for batch in held],
            title="pace by latency",
        )
    for skipped in found.get("skipped", []):
        say(
            f"skipped: slots {ranges.shortened(skipped['slots'])}: {in_words(skipped['reason'])}; "
            f"`slotferry migration retry --slots {skipped['slots']}` has them go on"
        )
    if settings:
        rows_of_settings = [(name, value, SETTINGS.get(name, "")) for name, value in found["settings"].items()]
        table(("setting", "value", "what it is"), rows_of_settings)


def _pacing_row(batch: Answer) -> tuple[str, ...]:
    pacing = batch["pacing"]
    servers = pacing["source"], pacing["target"]
    return (
        f"group {batch['source']}",
        f"group {batch['target']}",
        f"{pacing['speed']:.0%}",
        *(_milliseconds(server["p99_milliseconds"], server["quiet_p99_milliseconds"]) for server in servers),
        " and ".join(f"{server['allowed_milliseconds']:.1f}" for server in servers),
    )


def _milliseconds(p99: float | None, quiet: float | None) -> str:
    known = "-" if p99 is None else f"{p99:.1f}"
    return known if quiet is None else f"{known} (quiet {quiet:.1f})"
