"""``slotferry sentinel``: the Redis Sentinels that find new masters for topom."""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, in_words, say, table
from slots.forms import Form

app = typer.Typer(no_args_is_help=True, help="Add, remove and list the Redis Sentinels that watch the groups.")

Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="A Redis Sentinel.")]


@app.command("add")
def add(
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have one more Sentinel watch all groups. Use three or more, on different machines."""
    found = options.ask(topom, token, lambda client: client.add_sentinel(address))
    answer(found, form, lambda: _say_added(found, address))


@app.command("remove")
def remove(
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have a Sentinel watch nothing any more, and the others count without it."""
    found = options.ask(topom, token, lambda client: client.remove_sentinel(address))
    answer(found, form, lambda: _say_told(found, f"sentinel {address} removed"))


@app.command("list")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show the Sentinels, the groups that they watch, and the master that each names."""
    found = options.ask(topom, token, lambda client: client.sentinels())
    answer(found, form, lambda: _say_sentinels(found))


@app.command("resync")
def resync(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Have every Sentinel forget the groups, and the Sentinels that are gone, and watch the groups again."""
    found = options.ask(topom, token, lambda client: client.resync_sentinels())
    answer(found, form, lambda: _say_told(found, "sentinels watch the groups again"))


def _say_added(found: Answer, address: str) -> None:
    say(f"sentinel {address} added")
    if found.get("reason"):
        say(in_words(found["reason"]))


def _say_told(found: Answer, done: str) -> None:
    say(done)
    for address, reason in found["failed"].items():
        say(f"{address} could not be told: {reason}")


def _say_sentinels(found: Answer) -> None:
    if found["ha"] != "sentinel":
        say(f'topom leaves nothing to Sentinels: its setting ha is "{found["ha"]}"')
        return
    groups = found["groups"]
    table(
        ["sentinel", "up", *(f"group {group['id']}" for group in groups), "reason"],
        [
            [
                one["address"],
                one["up"],
                *(one["masters"].get(str(group["id"])) for group in groups),
                in_words(one["reason"]),
            ]
            for one in found["sentinels"]
        ],
    )
    for group in groups:
        if group["reason"]:
            say(in_words(group["reason"]))
    if found.get("reason"):
        say(in_words(found["reason"]))
