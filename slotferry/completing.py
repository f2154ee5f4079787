"""What the shell offers for an argument: groups, servers, proxies and nodes of the cluster that the words before name.

The cluster is asked for a second at most, in a thread that the command's end does not wait for: finding an address
cannot be stopped. Nothing is offered, and nothing is said, if it does not answer, refuses or is not topom.
"""

import io
import os
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import httpx
import typer

from slotferry.contexts import ContextError
from slotferry.operator import addressing
from slotferry.operator.addressing import Line, Where
from slots import bearer
from slots.counting import counted
from slots.topomtls import Files

SECONDS = 1.0
"""How long the shell may be held up."""
Offer = tuple[str, str]
"""A word, and what it is for shells that show that."""


def groups(context: typer.Context, incomplete: str) -> list[Offer]:
    """Groups by number."""

    def read(said: Any) -> list[Offer]:
        return [(str(group["id"]), counted(group["slots"], "slot")) for group in said["groups"]]

    return _offers(context, incomplete, "/groups", read)


def servers(context: typer.Context, incomplete: str) -> list[Offer]:
    """Servers of all groups."""

    def read(said: Any) -> list[Offer]:
        return [(one["address"], f"group {group['id']}") for group in said["groups"] for one in group["servers"]]

    return _offers(context, incomplete, "/groups", read)


def proxies(context: typer.Context, incomplete: str) -> list[Offer]:
    """Proxies by number."""
    return _offers(
        context, incomplete, "/proxies", lambda said: [(str(one["id"]), one["address"]) for one in said["proxies"]]
    )


def users(context: typer.Context, incomplete: str) -> list[Offer]:
    """Users that topom keeps, by name."""
    return _offers(context, incomplete, "/users", lambda said: [(one["name"], "") for one in said["users"]])


def nodes(context: typer.Context, incomplete: str) -> list[Offer]:
    """Nodes by name."""
    return _offers(
        context, incomplete, "/placement", lambda said: [(one["name"], one["datacenter"]) for one in said["nodes"]]
    )


def _offers(context: typer.Context, incomplete: str, path: str, read: Callable[[Any], list[Offer]]) -> list[Offer]:
    """What of topom's answer begins as what was typed; nothing if topom does not answer, or not in time."""
    said = context.find_root().params
    try:
        where = addressing.resolve(
            context.params.get("topom") or os.environ.get(addressing.TOPOM_VARIABLE, ""),
            context.params.get("token") or os.environ.get(addressing.TOKEN_VARIABLE, ""),
            Line(
                said.get("context") or "",
                Files(said.get("tls_ca") or "", said.get("tls_certificate") or "", said.get("tls_key") or ""),
            ),
        )
    except ContextError:
        return []
    answers: list[Any] = []
    asking = threading.Thread(target=_ask_each, args=(where, path, answers.append), daemon=True)
    asking.start()
    asking.join(SECONDS)
    try:
        return [offer for answer in answers for offer in read(answer) if offer[0].startswith(incomplete)]
    except (KeyError, TypeError, AttributeError):
        # Something else answers there.
        return []


def _ask_each(where: Where, path: str, take: Callable[[Any], None]) -> None:
    for url in where.topom.split(","):
        address = f"{url.strip().rstrip('/')}/api/v1{path}"
        try:
            verify = where.tls.context_of(address) or False
            shown = bearer.header(where.token)
            said = httpx.get(address, headers=shown, timeout=SECONDS, trust_env=False, verify=verify)
            if said.is_success:
                take(said.json())
                return
        except Exception:
            # Nothing is said of what cannot be asked: an address, a token, an answer, or certificates.
            continue


@contextmanager
def words_of_bash(environment: MutableMapping[str, str], variable: str) -> Iterator[None]:
    """Have the words that bash hands over be those of the line: it breaks words at colons, and puts what is offered in
    the place of the last part alone."""
    line = environment.get("COMP_WORDS", "")
    # What is quoted may have spaces; such lines stay as they are.
    if environment.get(variable) != "complete_bash" or any(sign in line for sign in "\"'\\"):
        yield
        return
    words, place = line.split(" "), int(environment["COMP_CWORD"])
    joined: list[str] = []
    for number, word in enumerate(words[: place + 1]):
        glued = number > 0 and bool(joined) and (word.startswith(":") or (words[number - 1].endswith(":") and word))
        if glued:
            joined[-1] += word
        else:
            joined.append(word)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = " ".join(joined), str(len(joined) - 1)
    before = joined[-1].rpartition(":")[0]
    offered = io.StringIO()
    try:
        with redirect_stdout(offered):
            yield
    finally:
        for line in offered.getvalue().splitlines():
            print(line.removeprefix(f"{before}:") if before else line)
