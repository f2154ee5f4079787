"""The permit by which keys move: how it is renewed, withdrawn and withheld. docs/moving-keys.md says what it is for.

A permit names the processes of both ends (**run-id**) and has a random part. It holds while both ends have it, as
fields of the hash :data:`slots.reserved.STATE`: ``permit`` at the source, ``accepts`` at the target.

**one-way**: a process that does not know how a step ended *renews* the permit (:func:`renew`), at the target first.
From then on, steps that were sent with the former permit do nothing at the target, even if they arrive late. Only then
does the source get the new permit, and it drops the earlier claims. Each change is made only if the value is still the
one that was read. So if several processes renew at once, the same one is last at both ends.

If the hash is lost (by a flush past the proxies, by eviction, by an older RDB file), that costs one more renewal and
nothing else. A flush by a client withholds the permit until it is over at every server (:mod:`slots.flushes`).
"""

import asyncio
import random
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import structlog

from slots.connections import RedisClient
from slots.flushes import TAKEN_OVER_SECONDS, UNDER_WAY
from slots.replies import NotUnderstood, items, one_of
from slots.reserved import STATE, WANTED
from slots.scripts import load

log = structlog.get_logger()

LOOK_SECONDS, MOST_LOOK_SECONDS = 0.02, 0.5
"""How long a process that renews lets others do so before it looks again, at first and at most."""
MOST_TRIES = 20
MOST_FLUSH_WAITS = 3
"""How many times :data:`slots.flushes.TAKEN_OVER_SECONDS` it waits for flushes at most."""

_READ = load("permit_read")
_SET = load("permit_set")
_WITHDRAW_AT_TARGET = load("permit_withdraw_at_target")
_WITHDRAW_AT_SOURCE = load("permit_withdraw_at_source")
WITHDRAW_ALL = load("permit_withdraw_all")
"""Withdraws the permits of a server that becomes a master and was one before."""


class NoPermit(Exception):
    """No permit could be had: other processes keep changing it, a flush is under way, or a server gives no run id."""


class SameProcess(Exception):
    """Source and target are one server with two addresses."""


def processes_of(permit: str) -> tuple[str, str]:
    """The run ids of the source and the target that a permit names; empty for no permit."""
    parts = permit.split(" ")
    return (parts[0], parts[1]) if len(parts) == 3 else ("", "")


def run_id_of(said: object) -> str:
    """The run id in a server's reply to INFO, as bytes or as redis-py has parsed it; empty if there is none."""
    if isinstance(said, Mapping):
        return str(said.get("run_id", ""))
    found = re.search(rb"run_id:(\w+)", said) if isinstance(said, bytes) else None
    return found[1].decode() if found else ""


async def renew(
    source: RedisClient, target: RedisClient, address: str, doubted: str = "", *, anew: bool = False
) -> str:
    """Give the permit that holds; make a new one if none holds, or if the ``doubted`` one does.

    Once this returns, no *place* with the doubted permit can do anything at the target, and its claims are gone.

    Args:
        source: a client of the source.
        target: a client of the target.
        address: the target's ``host:port``, for messages.
        doubted: a permit of steps that were sent and whose outcome is unknown.
        anew: the permit that holds is doubted, and so are the claims on keys in pieces.

    Raises:
        NoPermit: see there.
        SameProcess: see there.
        Errors of the clients.
    """
    unfinished = ""
    for number in range(MOST_TRIES):
        # Another process may set the permit at both ends meanwhile. In this order that does not look like a permit at
        # the target only.
        at_target, accepts = await _read(target, "accepts", address)
        at_source, permit = await _read(source, "permit", f"the source of keys for {address}")
        if at_source == at_target:
            # run-id: a key that is moved would be deleted.
            raise SameProcess(f"{address} is another name of the server that keys have to leave")
        mine = f"{at_source} {at_target} "
        if not anew and permit == accepts != doubted and permit.startswith(mine):
            return permit
        after = f"{mine}{secrets.token_hex(8)}"
        if accepts.startswith(mine) and accepts not in (permit, doubted, unfinished):
            # Another process may be about to set it at the source, too. If many replace each other's permit, none
            # lasts.
            unfinished, said = accepts, b"changed"
        else:
            # one-way: both were read before either is changed, and the target comes first.
            said = await _set(target, "accepts", accepts, after, at_target, anew)
            if said == b"done":
                said = await _set(source, "permit", permit, after, at_source, anew)
                if said == b"done":
                    log.info("permit_renewed", target=address, doubted=doubted)
                    return after
        if said == b"flush":
            await flushes_over(source, target)
        else:
            await asyncio.sleep(random.uniform(0.5, 1.0) * min(MOST_LOOK_SECONDS, LOOK_SECONDS * 2**number))
    raise NoPermit(
        f"the permit to move keys to {address} did not last in {MOST_TRIES} attempts: others renew it as well, or "
        "a server evicts whatever it is given"
    )


async def _read(server: RedisClient, field: str, who: str) -> tuple[str, str]:
    said = await server.execute_command("EVAL", _READ.text, 1, STATE, field, secrets.token_hex(8))
    with _answers(f"{who}: "):
        run_id, permit = (_text(part) for part in items(said, 2))
    if not run_id:
        raise NoPermit(f"{who} gives no run id")
    return run_id, permit


async def _set(server: RedisClient, field: str, before: str, after: str, run_id: str, anew: bool) -> bytes:
    said = await server.execute_command("EVAL", _SET.text, 1, STATE, field, before, after, run_id, int(anew))
    with _answers():
        return one_of(said, b"done", b"changed", b"flush")


@contextmanager
def _answers(who: str = "") -> Iterator[None]:
    """Raises NoPermit for a server whose answer is not understood. The error names the server."""
    try:
        yield
    except NotUnderstood as error:
        raise NoPermit(f"{who}{error}; look at what is running there") from error


async def flushes_over(source: RedisClient, target: RedisClient) -> bool:
    """Return once no flush is under way at either end, and say if there was one; see :mod:`slots.flushes`.

    A flush that lasts too long is taken for dead, and its field is removed. Raises :class:`NoPermit` if new flushes
    keep coming.
    """
    began = time.monotonic()
    since: dict[bytes, float] = {}
    dead: list[bytes] = []
    while (now := time.monotonic()) - began < MOST_FLUSH_WAITS * TAKEN_OVER_SECONDS:
        under_way: set[bytes] = set()
        for server in (target, source):
            said = await server.execute_command("EVAL", UNDER_WAY.text, 1, STATE, *dead)
            with _answers():
                under_way.update(items(said))
        if dead:
            log.warning("flushes_taken_over", flushes=len(dead))
        if not under_way:
            return bool(since)
        since = {field: since.get(field, now) for field in under_way}
        dead = [field for field, first in since.items() if now - first >= TAKEN_OVER_SECONDS]
        if not dead:
            await asyncio.sleep(LOOK_SECONDS)
    raise NoPermit("clients flush the servers all the time, and no key moves meanwhile")


async def withdraw(source: RedisClient | None, target: RedisClient | None) -> None:
    """Make sure that nothing sent from source to target still does anything there. Errors are those of the clients.

    The caller has made sure that no process renews the permit. An end that is None keeps what it has.
    """
    # one-way: the target first.
    if target is not None:
        await target.execute_command("EVAL", _WITHDRAW_AT_TARGET.text, 1, STATE)
    if source is not None:
        await source.execute_command("EVAL", _WITHDRAW_AT_SOURCE.text, 2, STATE, WANTED)


def _text(part: object) -> str:
    if isinstance(part, bytes):
        return part.decode(errors="replace")
    return "" if part is None else str(part)
