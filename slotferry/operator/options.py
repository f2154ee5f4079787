"""Options that all of the operator's verbs share."""

from typing import Annotated

import typer

from slotferry.client import DEFAULT_URL, TopomClient

Topom = Annotated[
    str,
    typer.Option("--topom", envvar="SLOTFERRY_TOPOM", metavar="URL,...", help="Where topom's API is, or those of all."),
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
Wait = Annotated[bool, typer.Option("--wait", help="Return when the slots have moved, and show how it goes.")]
Limit = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=1, help="How long --wait waits. The move goes on when it is over."
    ),
]
DEFAULT_TOPOM = DEFAULT_URL
DEFAULT_LIMIT = 3600.0
MOST_BIGGEST = 10
"""Biggest keys that topom knows of a slot."""


def connect(topom: str, token: str) -> TopomClient:
    """A client for the options' values. Raises :class:`slotferry.calls.TopomError` when they make no request."""
    return TopomClient(topom, token)
