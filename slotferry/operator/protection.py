"""``slotferry protection``: shows and changes the protection mode, in which many members are lost at once."""

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, moment, say
from slots.forms import Form

app = typer.Typer(no_args_is_help=True, help="When many servers and proxies are lost at a time.")


@app.command("show")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show how many members are lost, and whether nothing is done by itself because of that."""
    found = options.ask(topom, token, lambda client: client.protection())
    answer(found, form, lambda: say_protection(found))


@app.command("off")
def off(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Have failed masters replaced all the same, until the members that are lost now are back."""
    found = options.ask(topom, token, lambda client: client.lift_protection())
    answer(found, form, lambda: say_protection(found))


def say_protection(found: Answer) -> None:
    """Print the state of the protection mode."""
    if found["active"] is None:
        say("whether protection is on is not known: no topom leads")
        say_lifted(found)
        return
    say(
        f"protection is {'on: nothing is done by itself' if found['active'] else 'off'}; "
        f"{found['lost']} of {found['members']} members lost"
    )
    say_lifted(found)


def say_lifted(found: Answer) -> None:
    """Print who has lifted the protection, and when."""
    if lifted := found.get("lifted"):
        say(f"{lifted['by']} lifted it at {moment(lifted['at'])}, until the members lost then are back")
