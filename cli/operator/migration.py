"""``slotferry migration``: how the moving of keys stands, and how fast it may go."""

from typing import Annotated, Any

import typer

from cli.client import Answer, TopomClient
from cli.operator import options
from cli.operator.waiting import describe
from cli.output import answer, run, say, size, table

app = typer.Typer(no_args_is_help=True, help="See, pause and pace the moving of keys.")

SETTINGS = {
    "parallel_slots": "slots of one pair of groups that move together",
    "keys_per_second": "limit over all moves, 0 for none",
    "bytes_per_second": "limit over all moves, 0 for none",
    "batch_keys": "most keys moved by one command",
    "batch_bytes": "most bytes moved by one command",
    "batch_milliseconds": "how long one command should hold up its source",
}


@app.command("status")
def status(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show what is moving, how fast, and how much is left."""
    found = run(_call(topom, token, "migration"))
    answer(found, as_json, lambda: say_migration(found, settings=True))


@app.command("pause")
def pause(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Stop moving keys. What has moved stays moved, and clients are served as before."""
    found = run(_call(topom, token, "pause_migration"))
    answer(found, as_json, lambda: say("moving of keys is paused"))


@app.command("resume")
def resume(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Go on moving keys."""
    found = run(_call(topom, token, "resume_migration"))
    answer(found, as_json, lambda: say("moving of keys goes on"))


@app.command("set")
def set_settings(
    parallel_slots: Annotated[
        int | None, typer.Option(min=1, help="Slots of one pair of groups that move together.")
    ] = None,
    keys_per_second: Annotated[int | None, typer.Option(min=0, help="Limit over all moves; 0: none.")] = None,
    bytes_per_second: Annotated[int | None, typer.Option(min=0, help="Limit over all moves; 0: none.")] = None,
    batch_keys: Annotated[int | None, typer.Option(min=1, help="Most keys moved by one command.")] = None,
    batch_bytes: Annotated[int | None, typer.Option(min=1, help="Most bytes moved by one command.")] = None,
    batch_milliseconds: Annotated[
        float | None, typer.Option(min=0.1, help="How long one command should hold up its source.")
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Change the pace. topom remembers it, and moves under way follow at once."""
    given: dict[str, int | float | None] = {
        "parallel_slots": parallel_slots,
        "keys_per_second": keys_per_second,
        "bytes_per_second": bytes_per_second,
        "batch_keys": batch_keys,
        "batch_bytes": batch_bytes,
        "batch_milliseconds": batch_milliseconds,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise typer.BadParameter("name at least one setting, such as --keys-per-second 20000")
    found = run(_call(topom, token, "set_migration", **changes))
    answer(found, as_json, lambda: say_migration(found, settings=True))


async def _call(topom: str, token: str, method: str, **arguments: Any) -> Answer:
    async with options.connect(topom, token) as client:
        called: Answer = await getattr(TopomClient, method)(client, **arguments)
        return called


def say_migration(found: Answer, settings: bool = False) -> None:
    """The moving of keys, and with ``settings`` its pace, as text."""
    say(
        f"migration: {found['slots_pending']} slots pending, {found['slots_moving']} moving, "
        f"{found['slots_moved']} moved since topom started, "
        f"{found['keys_moved']:,} keys, {size(found['bytes_moved'])}; {describe(found)}"
    )
    if found["batches"]:
        columns = ("from", "to", "state", "slots", "keys", "bytes", "keys left", "passes", "message")
        rows = [
            (
                f"group {batch['source']}" if batch["source"] else "offline",
                f"group {batch['target']}",
                batch["state"],
                batch["slots"],
                batch["keys_moved"],
                size(batch["bytes_moved"]),
                batch["remaining_keys"],
                batch["passes"],
                batch["message"],
            )
            for batch in found["batches"]
        ]
        table(columns, rows)
    if settings:
        rows_of_settings = [(name, value, SETTINGS.get(name, "")) for name, value in found["settings"].items()]
        table(("setting", "value", "what it is"), rows_of_settings)
