"""What all of the operator's verbs share: options, and asking topom."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from slotferry.client import DEFAULT_URL, TopomClient
from slotferry.output import run

Topom = Annotated[
    str,
    typer.Option("--topom", envvar="SLOTFERRY_TOPOM", metavar="URL,...", help="URL of topom's API, or of all topoms."),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="SLOTFERRY_TOKEN",
        metavar="TOKEN",
        help="topom's bearer token. Better in the environment, where other users do not see it.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of text.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when the slots have moved, and show the progress.")]
Limit = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="Limit of --wait. The move goes on after it."),
]
DEFAULT_TOPOM = DEFAULT_URL
DEFAULT_LIMIT = 3600.0
MOST_BIGGEST = 10
"""Biggest keys that topom knows of a slot."""
Result = TypeVar("Result")


def ask(topom: str, token: str, call: Callable[[TopomClient], Awaitable[Result]]) -> Result:
    """The answer of the topom that a verb's options name. If topom refuses, the verb ends (:func:`output.run`)."""

    async def work() -> Result:
        async with TopomClient(topom, token) as client:
            return await call(client)

    return run(work())
