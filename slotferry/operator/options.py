"""What all of the operator's verbs share: options, and asking topom."""

import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Annotated, TypeAlias, TypeVar

import typer

from slotferry import completing, contexts
from slotferry.calls import TopomNotAsked
from slotferry.client import DEFAULT_URL, TopomClient
from slotferry.contexts import ContextError, Contexts
from slotferry.operator import addressing
from slotferry.operator.addressing import CONTEXT_VARIABLE, TOKEN_VARIABLE, TOPOM_VARIABLE, Line, Where
from slotferry.output import fail, run
from slots.forms import Form
from slots.topomtls import Files

_line: ContextVar[Line] = ContextVar("line", default=Line())  # noqa: B039  it never changes

Topom = Annotated[
    str,
    typer.Option(
        "--topom",
        envvar=TOPOM_VARIABLE,
        metavar="URL,...",
        help="URL of topom's API, or of all topoms.",
        show_default=f"the context's, or {DEFAULT_URL}",
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        metavar="TOKEN",
        help="topom's bearer token. Better in a context or the environment, where other users do not see it.",
        show_default=False,
    ),
]
TlsCa = Annotated[
    str,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        help="Authorities that may vouch for a topom with https://, in PEM.",
        show_default="those that the system trusts",
    ),
]
TlsCertificate = Annotated[
    str,
    typer.Option(
        "--tls-certificate",
        metavar="FILE",
        help="Certificate shown to a topom that asks for one, in PEM.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    str,
    typer.Option("--tls-key", metavar="FILE", help="Its key, in PEM, without a password.", show_default=False),
]
Output = Annotated[
    Form, typer.Option("--output", "-o", help="Print tables and sentences, one line of JSON, or YAML for programs.")
]
GroupId = Annotated[
    int,
    typer.Argument(metavar="GROUP", min=1, help="The group's id, 1 or larger.", autocompletion=completing.groups),
]
NewAddress = Annotated[str, typer.Argument(metavar="HOST:PORT", help="A Redis server.")]
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="A Redis server.", autocompletion=completing.servers)]
ProxyId = Annotated[
    int,
    typer.Argument(
        metavar="PROXY", min=1, help="The proxy's id, from `slotferry proxy list`.", autocompletion=completing.proxies
    ),
]
Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="The node's name, from `slotferry node list`.", autocompletion=completing.nodes
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when the slots have moved, and show the progress.")]
Limit = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, help="Limit of --wait. The move goes on after it."),
]
DEFAULT_TOPOM = ""
DEFAULT_LIMIT = 3600.0
MOST_BIGGEST = 10
"""Biggest keys that topom knows of a slot."""
Result = TypeVar("Result")
Change: TypeAlias = Callable[[Contexts], Contexts]


def names_of_contexts(incomplete: str) -> list[str]:
    """The contexts whose names begin so, for the shell."""
    try:
        return sorted(name for name in contexts.load().known if name.startswith(incomplete))
    except ContextError:
        return []


def context_of_the_line() -> str:
    """The context that the command line names; empty if it names none."""
    return _line.get().context


def tls_of_the_line() -> Files:
    """The certificates for topom that the command line names."""
    return _line.get().tls


def named_context() -> str:
    """The context that the command line or the environment names; empty if neither does."""
    return context_of_the_line() or os.environ.get(CONTEXT_VARIABLE, "")


def begin(line: Line) -> None:
    """Have the verb go by what the command line says before it."""
    _line.set(line)


def resolve(topom: str, token: str) -> Where:
    """The topom to ask (:func:`slotferry.operator.addressing.resolve`). If there is none, the verb ends."""
    try:
        return addressing.resolve(topom, token, _line.get())
    except ContextError as error:
        raise fail(str(error)) from None


def client(where: Where) -> TopomClient:
    """A client of the topom to ask. Raises :class:`slotferry.calls.TopomError` if its certificates cannot be used."""
    return TopomClient(where.topom, where.token, tls=where.tls)


def ask(topom: str, token: str, call: Callable[[TopomClient], Awaitable[Result]]) -> Result:
    """The answer of the topom that a verb's options name. If topom refuses, the verb ends (:func:`output.run`)."""

    where = resolve(topom, token)

    async def work() -> Result:
        async with client(where) as asked:
            try:
                return await call(asked)
            except TopomNotAsked as error:
                if not where.unused:
                    raise
                names = ", ".join(where.unused)
                raise TopomNotAsked(
                    f"{error}. No context is in use; kept are: {names} (slotferry context use NAME)"
                ) from None

    return run(work())
