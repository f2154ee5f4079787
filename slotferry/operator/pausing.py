"""``slotferry pause`` and ``slotferry resume``: topom keeps its hands off, and acts by itself again."""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, moment, say
from slots.forms import Form


def pause(
    why: Annotated[str, typer.Option(help="Shown to others, for instance 'switches are changed'.")] = "",
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have topom do nothing by itself: no failover, no moves, no copies, no clean-up. Your commands are carried out."""
    found = options.ask(topom, token, lambda client: client.pause(why))
    answer(found, form, lambda: say_pause(found["pause"]))


def resume(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Have topom act by itself again."""
    found = options.ask(topom, token, lambda client: client.resume())
    answer(found, form, lambda: say_pause(found["pause"]))


def say_pause(found: Answer | None) -> None:
    """Whether topom is paused, by whom, since when and why."""
    if found is None:
        say("topom acts by itself")
        return
    why = f" ({found['why']})" if found["why"] else ""
    say(
        f"PAUSED: {found['by']} paused topom at {moment(found['at'])}{why}; it does nothing by itself until "
        "`slotferry resume`"
    )
