"""Makes rows for commands that the command table does not have, from a server's own description of them.

Such commands come from modules and from newer versions of Redis. A command with keys is routed by its keys: by their
fixed places, else by the key specifications of Redis 7, else by the answer of COMMAND GETKEYS to each request.
**one-owner** rests on the server's word here. A module that touches undeclared keys cannot be served by any system that
spreads keys over servers.

A command without keys is refused, even if it only reads: one server's answer is not the answer of all servers. An
operator who knows better names the command in the proxy's settings. A server declares that a command writes or that it
reads. A command with neither declaration counts as one that writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from slots.commands import Command, KeysError, Right, Route, categories, key_positions
from slots.keys import positions

ASKED = "asked"
"""The rule of commands whose keys only a server can find."""
WITHOUT_KEYS = "it names no key, and one server's answer is not all servers'; see the setting any_server_commands"
CONTAINER = "it needs a subcommand"
KEYWORD = re.compile(r"[A-Z0-9_.-]+")
FIXED = re.compile(r"spec:index:\d+:range:[-\d:]+(\+spec:index:\d+:range:[-\d:]+)*")
"""Rules for which only the number of the arguments matters."""
TRIED_ARGUMENTS = 12
"""Numbers of arguments with which two ways of finding keys are compared."""


def rows(entries: Iterable[Sequence[Any]], any_server: Collection[str] = ()) -> dict[str, Command]:
    """The rows of all commands, with their subcommands, in a server's reply to COMMAND (in RESP2, as text).

    Args:
        entries: the reply.
        any_server: names of commands without keys that any server may answer.
    """
    found: dict[str, Command] = {}
    for entry in entries:
        subcommands = entry[9] if len(entry) > 9 else []
        row = _row(entry, any_server, container=bool(subcommands))
        found[row.name] = row
        found |= rows(subcommands, any_server)
    return found


def missing(known: dict[str, Command], reported: dict[str, Command]) -> dict[str, Command]:
    """Those of the reported rows that are new. A known command never gets another row."""
    everything = reported | known
    found: dict[str, Command] = {}
    for name, row in reported.items():
        parent = everything[name.partition("|")[0]]
        # The subcommand would never be looked up, because the command is known to have none.
        if name not in known and (parent.container or "|" not in name):
            refused = parent.name in known and parent.route is Route.REFUSED
            found[name] = replace(
                row,
                route=parent.route if refused else row.route,
                reason=parent.reason if refused else row.reason,
                rights=parent.rights & {Right.DATABASES},
            )
    return found


def _row(entry: Sequence[Any], any_server: Collection[str], container: bool) -> Command:
    name = str(entry[0]).upper()
    arity, first, last, step = int(entry[1]), int(entry[3]), int(entry[4]), int(entry[5])
    flags = frozenset(map(str, entry[2]))
    if not flags & {"readonly", "write"}:
        flags |= {"write"}
    rule = _rule(entry, flags)
    if rule:
        if rule != ASKED and _agree(rule, arity, first, last, step):
            rule = ""
        else:
            first = last = step = 0
    route, reason = Route.MOVABLE if rule else Route.KEYED, ""
    if "blocking" in flags:
        route = Route.BLOCKING
    if not rule and (first <= 0 or step <= 0):
        first = last = step = 0
        if container:
            route, reason = Route.REFUSED, CONTAINER
        elif name in any_server or name.endswith("|HELP"):
            route = Route.ANY
        else:
            route, reason = Route.REFUSED, WITHOUT_KEYS
    row = Command(name, arity, first, last, step, flags, route, rule, reason, container, learned=True)
    declared = [str(category).removeprefix("@") for category in entry[6]] if len(entry) > 6 else ()
    # What it does with each key is not looked at: a command that writes needs both rights to all of them.
    access = ("rw" if "write" in flags else "r") if rule or first else ""
    return replace(row, categories=categories(flags, declared), access=access)


def _rule(entry: Sequence[Any], flags: Collection[str]) -> str:
    """A rule of :mod:`slots.keys`; empty where the fixed places are enough."""
    movable = "movablekeys" in flags
    if len(entry) <= 8:
        return ASKED if movable else ""
    specifications = [_fields(specification) for specification in entry[8]]
    declared = [one for one in specifications if "not_key" not in one["flags"]]
    if not declared:
        return ASKED if movable else ""
    parts = [_part(one) for one in declared]
    # The flag says that Redis made the specification from fixed places. Then a module's own function knows better.
    made_up = movable and any("variable_flags" in one["flags"] for one in declared)
    if made_up or None in parts:
        return ASKED
    return "+".join(part for part in parts if part is not None)


def _part(specification: dict[str, Any]) -> str | None:
    """One key specification as part of a rule; None where it does not name all keys."""
    begin, find = _fields(specification["begin_search"]), _fields(specification["find_keys"])
    where, which = _fields(begin["spec"]), _fields(find["spec"])
    if "incomplete" in specification["flags"] or int(which.get("keystep", 1)) <= 0:
        return None
    match begin["type"]:
        case "index" if int(where["index"]) > 0:
            begins = f"index:{where['index']}"
        case "keyword" if KEYWORD.fullmatch(str(where["keyword"]).upper()):
            begins = f"keyword:{str(where['keyword']).upper()}:{where['startfrom']}"
        case _:
            return None
    match find["type"]:
        case "range":
            return f"spec:{begins}:range:{which['lastkey']}:{which['keystep']}:{which['limit']}"
        case "keynum":
            return f"spec:{begins}:keynum:{which['keynumidx']}:{which['firstkey']}:{which['keystep']}"
        case _:
            return None


def _fields(flat: Any) -> dict[str, Any]:
    """A map, in the form of RESP2."""
    if isinstance(flat, dict):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _agree(rule: str, arity: int, first: int, last: int, step: int) -> bool:
    """Whether the fixed places name the same keys as the rule, for any number of arguments."""
    if first <= 0 or step <= 0 or not FIXED.fullmatch(rule):
        return False
    plain = Command("", arity, first, last, step, frozenset(), Route.KEYED)
    least = abs(arity)
    for count in [least] if arity > 0 else range(least, least + TRIED_ARGUMENTS):
        argv = [b"0"] * count
        try:
            by_rule: list[int] | None = positions(rule, argv)
        except KeysError:
            by_rule = None
        try:
            by_places: list[int] | None = key_positions(plain, argv)
        except KeysError:
            by_places = None
        # Where the places make no sense, the server will report the error.
        if by_places is not None and by_rule != by_places:
            return False
    return True
