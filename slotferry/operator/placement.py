"""``slotferry placement``: on which nodes groups have their masters and replicas."""

from typing import Annotated, Literal

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, run, say, table

app = typer.Typer(no_args_is_help=True, help="Show and change on which nodes groups have masters and replicas.")


@app.command("show")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show nodes and groups, what a plan would change, what it lacks, and what is being applied."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.placement()

    found = run(work())
    answer(found, as_json, lambda: say_placement(found))


@app.command("apply")
def apply(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Begin to do what a plan says: new replicas from the pool, promotions, old copies back to the pool."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.apply_placement()

    found = run(work())
    answer(found, as_json, lambda: _say_begun(found))


@app.command("cancel")
def cancel(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """End what is being applied. What is done stays; copies under way are let go, and stay in the pool."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.cancel_placement()

    found = run(work())
    answer(found, as_json, lambda: say("the placement was cancelled; what it had done stays"))


@app.command("auto")
def auto(
    wish: Annotated[Literal["on", "off"], typer.Argument(help="Whether topom is to place by itself.")],
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Have topom place by itself when nodes are lost or come, or not any more; what is under way goes on."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.set_auto_placement(wish == "on")

    found = run(work())
    text = "applied by itself from now on" if wish == "on" else "not applied by itself any more"
    answer(found, as_json, lambda: say(f"placement is {text}"))


def say_placement(found: Answer) -> None:
    """All of it."""
    table(
        ("node", "datacenter", "state", "leads", "follows", "pool"),
        [
            (
                node["name"],
                node["datacenter"],
                node["problem"] or "there",
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
            (str(one["id"]), one["leader"], ", ".join(one["followers"]), one["problem"] or "planned for")
            for one in found["groups"]
        ],
        title=f"groups, of which {found['replicas']} copies are wanted; epoch {found['epoch']}",
    )
    say(f"placement is {'' if found['auto'] else 'not '}applied by itself")
    if found["waits_for"]:
        say(f"nothing is done now: {found['waits_for']}")
    say_run(found)
    if found["run"] is None:
        plan = found["plan"]
        for step in plan["steps"]:
            say(f"would change in round {step['round']}: {step['text']}")
        if not plan["steps"]:
            say("a plan would change nothing")
    for text in found["plan"]["missing"]:
        say(f"missing: {text}")


def _say_begun(found: Answer) -> None:
    if found["run"] is None:
        say("nothing to do: everything is as it should be")
    say_run(found)


def say_run(found: Answer) -> None:
    """What is being applied, if anything is."""
    if found["run"] is None:
        return
    rows = [(str(step["round"]), step["state"], step["text"], step["reason"]) for step in found["run"]["steps"]]
    table(("round", "state", "step", "reason"), rows, title=f"being applied, for {found['run']['who']}")


def _groups(ids: list[int]) -> str:
    return ", ".join(str(one) for one in ids)
