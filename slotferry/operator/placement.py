"""``slotferry placement``: on which nodes groups have their masters and replicas."""

from typing import Annotated, Literal

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, in_words, say, table

app = typer.Typer(no_args_is_help=True, help="Show and change on which nodes groups have masters and replicas.")


@app.command("show")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show nodes and groups, the changes of a plan, what it lacks, and the present run."""
    found = options.ask(topom, token, lambda client: client.placement())
    answer(found, as_json, lambda: say_placement(found))


@app.command("apply")
def apply(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Begin to carry out a plan: new replicas from the pool, promotions, old copies back to the pool."""
    found = options.ask(topom, token, lambda client: client.apply_placement())
    answer(found, as_json, lambda: _say_begun(found))


@app.command("cancel")
def cancel(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """End the present run. Finished changes stay; servers whose copies are under way go back to the pool."""
    found = options.ask(topom, token, lambda client: client.cancel_placement())
    answer(found, as_json, lambda: say("the placement was cancelled; what it had done stays"))


@app.command("auto")
def auto(
    state: Annotated[Literal["on", "off"], typer.Argument(help="Whether topom places by itself.")],
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Switch placement by topom itself on or off, for when nodes are lost or come; the present run goes on."""
    found = options.ask(topom, token, lambda client: client.set_auto_placement(state == "on"))
    text = "applied by itself from now on" if state == "on" else "not applied by itself any more"
    answer(found, as_json, lambda: say(f"placement is {text}"))


def say_placement(found: Answer) -> None:
    """Print everything about the placement."""
    table(
        ("node", "datacenter", "state", "leads", "follows", "pool"),
        [
            (
                node["name"],
                node["datacenter"],
                in_words(node["reason"]) or "there",
                _groups(node["leads"]),
                _groups(node["follows"]),
                ", ".join(node["pool"]),
            )
            for node in found["nodes"]
        ],
        title="nodes",
    )
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


def _groups(ids: list[int]) -> str:
    return ", ".join(str(one) for one in ids)
