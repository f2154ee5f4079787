"""The steps by which a key moves, one at a time, as a test wants them: late, by an earlier permit, or never."""

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots import moving
from slots.moving import DROP, PLACE, TAKE, Taken
from slots.reserved import STATE
from slots.scripts import NOT_PERMITTED, Script

MOVER = "somebody"


async def take(source: Redis, permit: str, *keys: bytes, check: bool = True, mover: str = MOVER) -> Taken | None:
    """What was taken of database 0; None if the permit does not hold."""
    arguments = moving.take_arguments(
        permit,
        0,
        mover,
        keys,
        check=check,
        enough_bytes=1_000_000,
        wanted=False,
    )
    reply = await _run(source, TAKE, arguments)
    return None if reply is None else Taken.of(reply, keys)


async def taken(source: Redis, permit: str, *keys: bytes) -> Taken:
    """What was taken by a permit that holds."""
    found = await take(source, permit, *keys)
    assert found is not None
    assert found.keys == [*keys]
    return found


async def place(
    target: Redis, permit: str, found: Taken, *, check: bool = True, keeps_target: bool = False
) -> tuple[int, bytes] | None:
    """How many were placed, and the error for the first that was not; None if the permit does not hold."""
    arguments = moving.place_arguments(permit, 0, found, check=check, keeps_target=keeps_target)
    reply = await _run(target, PLACE, arguments)
    if reply is None:
        return None
    refused = moving.refused(reply, len(found.keys))
    return len(found.keys) - len(refused), next(iter(refused.values()), b"")


async def drop(
    source: Redis, permit: str, *keys: bytes, deletes: int | None = None, check: bool = True, mover: str = MOVER
) -> int | None:
    """How many claims there were; None if the permit does not hold. By default all keys are deleted."""
    arguments = moving.drop_arguments(
        permit, 0, mover, keys, check=check, deletes=len(keys) if deletes is None else deletes
    )
    reply = await _run(source, DROP, arguments)
    return None if reply is None else moving.dropped(reply, len(keys))


async def claims(source: Redis) -> dict[bytes, bytes]:
    """The movers that have claims."""
    fields: dict[bytes, bytes] = await source.hgetall(STATE)
    return {name: value for name, value in fields.items() if name.startswith(b"claim:")}


async def _run(server: Redis, script: Script, arguments: tuple[str | bytes | int, ...]) -> Any:
    try:
        return await server.execute_command("EVAL", script.text, *arguments)
    except ResponseError as error:
        if not str(error).startswith(NOT_PERMITTED):
            raise
        return None
