"""``slotferry placement``: on which nodes groups have their masters and replicas."""

from typing import Annotated, Literal

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.operator.nodes import say_nodes
from slotferry.output import answer, in_words, say, table
from slots.forms import Form

app = typer.Typer(no_args_is_help=True, help="Show and change on which nodes groups have masters and replicas.")


@app.command("show")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show nodes and groups, the changes of a plan, what it lacks, and the present run."""
    found = options.ask(topom, token, lambda client: client.placement())
    answer(found, form, lambda: say_placement(found))


@app.command("apply")
def apply(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Begin to carry out a plan: new replicas from the pool, promotions, old copies back to the pool."""
    found = options.ask(topom, token, lambda client: client.apply_placement())
    answer(found, form, lambda: _say_begun(found))


@app.command("cancel")
def cancel(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """End the present run. Finished changes stay; servers whose copies are under way go back to the pool."""
    found = options.ask(topom, token, lambda client: client.cancel_placement())
    answer(found, form, lambda: say("the placement was cancelled; what it had done stays"))


@app.command("auto")
def auto(
    state: Annotated[Literal["on", "off"], typer.Argument(help="Whether topom places by itself.")],
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Switch placement by topom itself on or off, for when nodes are lost or come; the present run goes on."""
    found = options.ask(topom, token, lambda client: client.set_auto_placement(state == "on"))
    text = "applied by itself from now on" if state == "on" else "not applied by itself any more"
    answer(found, form, lambda: say(f"placement is {text}"))


def say_placement(found: Answer) -> None:
    """Print everything about the placement."""
    say_nodes(found["nodes"])
    table(
        ("group", "leader", "followers", "state"),
        [
            (str(one["id"]), one["leader"], ", ".join(one["followers"]), in_words(one["reason"]) or "planned for")
            for one in found["groups"]
        ],
        title=f"groups, of which {found['replicas']} copies are wanted; epoch {found['epoch']}",
    )
    say(f"placement is {'' if found['auto'] else 'not '}applied by itself")
    if found["reason"]:
        say(f"nothing is done now: {in_words(found['reason'])}")
    say_run(found)
    if found["run"] is None:
        plan = found["plan"]
        for step in plan["steps"]:
            say(f"would change in round {step['round']}: {step['text']}")
        if not plan["steps"]:
            say("a plan would change nothing")
    for missing in found["plan"]["missing"]:
        say(f"missing: {in_words(missing)}")


def _say_begun(found: Answer) -> None:
    if found["run"] is None:
        say("nothing to do: everything is as it should be")
    say_run(found)


def say_run(found: Answer) -> None:
    """Print the present run, if there is one."""
    if found["run"] is None:
        return
    rows = [
        (str(step["round"]), step["state"], step["text"], in_words(step["reason"])) for step in found["run"]["steps"]
    ]
    table(("round", "state", "step", "reason"), rows, title=f"being applied, for {found['run']['who']}")
