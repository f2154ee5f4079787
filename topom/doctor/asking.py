"""Asks one server for what the checks need: three round trips at most, and nothing that changes it.

What a server refuses to tell, or tells as no server does, is not known.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from migrator.followable import may
from slots.access import ServerAccess
from slots.replies import Info
from topom.doctor import machine, rights
from topom.doctor.facts import CONFIG, ServerFacts
from topom.servers.readings import ProxyAnswers, SentinelAnswers, is_proxy

MOST_TEXT = 1000
"""Bytes of a setting that are read."""


async def ask(client: Redis, address: str, group: int | None, master: bool, access: ServerAccess) -> ServerFacts:
    """The facts about a server.

    Args:
        access: how ``client`` logs in.

    Raises what :func:`topom.servers.readings.read` does.
    """
    questions: list[tuple[str, ...]] = [("TIME",), ("COMMAND INFO", *rights.COMMANDS)]
    questions += [("CONFIG", "GET", name) for name in CONFIG]
    async with client.pipeline(transaction=False) as together:
        together.info()
        for question in questions:
            together.execute_command(*question)
        before = time.time()
        answers = await together.execute(raise_on_error=False)
        after = time.time()
    info, now, commands, *settings = answers
    if isinstance(info, Exception) and not isinstance(info, NoPermissionError):
        raise info
    known = info if isinstance(info, Info) else Info()
    if is_proxy(known):
        raise ProxyAnswers("a Slotferry proxy answers there, and no Redis server")
    if known.get("redis_mode") == "sentinel":
        raise SentinelAnswers("a Redis Sentinel answers there, and no Redis server")
    user = access.user or "default"
    user_lacks, open_to_all = await _rights(client, user)
    facts = ServerFacts(
        address,
        group,
        master,
        info=known,
        config=_settings(settings),
        ahead=_ahead(now, before, after),
        open=open_to_all if access.password else True,
        user=user,
        lacking=(*(["+info"] if info is not known and "+info" not in user_lacks else []), *user_lacks),
        kernel=machine.kernel_of(address, known),
    )
    return _with_missing(facts, commands)


def _settings(answers: Iterable[object]) -> dict[str, str]:
    found = {}
    for name, answer in zip(CONFIG, answers, strict=True):
        fields = _fields(answer)
        if isinstance(value := fields.get(name), bytes):
            found[name] = value[:MOST_TEXT].decode(errors="replace")
    return found


def _ahead(now: object, before: float, after: float) -> tuple[float, float] | None:
    """How far the server's clock is ahead. It told the time at some moment between the two of topom's."""
    if isinstance(now, tuple) and len(now) == 2 and all(type(part) is int for part in now) and after >= before:
        return now[0] + now[1] / 1e6 - (before + after) / 2, (after - before) / 2
    return None


async def _rights(client: Redis, user: str) -> tuple[tuple[str, ...], bool | None]:
    """What topom's user lacks, and whether the user of those who do not log in may do anything."""
    about, of_default = await _asked(client, [("ACL", "GETUSER", user), ("ACL", "GETUSER", "default")])
    default = _fields(of_default)
    flags = _words(default.get("flags"))
    rules_of_default = _words(default.get("commands"))
    open_to_all = {"on", "nopass"} <= set(flags) and rules_of_default != ["-@all"] if flags else None
    if isinstance(about, NoPermissionError):
        return ("+acl|getuser",), open_to_all
    fields = _fields(about)
    rules = " ".join(_words(fields.get("commands")))
    if not rules:
        return (), open_to_all
    selectors = bool(fields.get("selectors"))
    keys, channels = _patterns(fields, "keys", "~"), _patterns(fields, "channels", "&")
    lacks = rights.lacking(rules, keys, channels, {})
    if (lacks or selectors) and may(rules, "acl|dryrun", rights.ADMIN):
        outcomes = await _asked(client, [("ACL", "DRYRUN", user, *right.tried) for right in rights.RIGHTS])
        said = {
            right.name: outcome == b"OK"
            for right, outcome in zip(rights.RIGHTS, outcomes, strict=True)
            if isinstance(outcome, bytes)
        }
        # Of keys and channels a dry run says little: selectors may open them.
        return rights.lacking(rules, "~*" if selectors else keys, "&*" if selectors else channels, said), open_to_all
    # Selectors are further rules, of which one may allow it.
    return (() if selectors else lacks), open_to_all


async def _asked(client: Redis, questions: Iterable[Sequence[str]]) -> list[Any]:
    async with client.pipeline(transaction=False) as together:
        for question in questions:
            together.execute_command(*question)
        answers: list[Any] = await together.execute(raise_on_error=False)
    return answers


def _patterns(fields: Mapping[str, object], name: str, sign: str) -> str:
    """Patterns as Redis 7 writes them; 6 gives a list without signs, and 6.0 knows no channels."""
    said = fields.get(name)
    if said is None:
        return f"{sign}*"
    return " ".join(f"{sign}{word}" for word in _words(said)) if isinstance(said, list) else " ".join(_words(said))


def _words(said: object) -> list[str]:
    parts = said if isinstance(said, list) else [said]
    return [word for part in parts if isinstance(part, bytes) for word in part.decode(errors="replace").split()]


def _fields(answer: object) -> dict[str, object]:
    """A list of names and values as a mapping; empty for anything else."""
    if not isinstance(answer, list):
        return {}
    return {
        name.decode(errors="replace"): value
        for name, value in zip(answer[::2], answer[1::2], strict=False)
        if isinstance(name, bytes)
    }


def _with_missing(facts: ServerFacts, commands: object) -> ServerFacts:
    if not isinstance(commands, list) or len(commands) != len(rights.COMMANDS):
        return facts
    known = {name: entry is not None for name, entry in zip(rights.COMMANDS, commands, strict=True)}
    return replace(facts, missing=rights.missing(known, facts.version))
