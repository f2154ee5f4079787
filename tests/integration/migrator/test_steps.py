"""The steps that small keys and big ones share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from migrator import bigkeys
from migrator.bigkeys import KeyMover
from migrator.connection import Connection, Timeouts
from migrator.errors import KeyGone
from migrator.options import MoveOptions
from migrator.pace import Pace
from migrator.pair import ServerPair
from migrator.steps import Permit
from migrator.transfer import Transfer
from slots.access import ServerAccess
from slots.beginning import Beginning
from slots.moving import UNBOUNDED
from slots.reserved import STATE
from tests.integration.migrator.pairs import INSTANCE, Pair

Ways = tuple[ServerPair, Connection, Connection, Permit]


@pytest.fixture
async def ways(pair: Pair) -> AsyncIterator[Ways]:
    """Connections to both servers, and a permit that holds."""
    async with AsyncExitStack() as stack:
        way = ServerPair(stack, pair.source.address, pair.target.address, ServerAccess(), INSTANCE, Timeouts())
        from_source, to_target = await way.connect_source(), await way.connect_target()
        permit = Permit(from_source, to_target, way.target, Beginning())
        await permit.renew("", anew=True)
        yield way, from_source, to_target, permit


async def test_only_what_was_placed_is_deleted(ways: Ways, source: Redis) -> None:
    """given a batch of which the target refused keys, these stay, and no claim does."""
    _, from_source, to_target, permit = ways
    await source.mset({"placed": 1, "refused": 2, "too": 3})
    transfer = Transfer(from_source, to_target, permit, MoveOptions(), 1.0)
    await transfer._take(permit.held, 0, [b"placed", b"refused", b"too"], UNBOUNDED, False, None)
    assert await transfer._drop(permit.held, 0, [b"placed"], [b"refused", b"too"])
    assert sorted(await source.keys("[a-z]*")) == [b"refused", b"too"]
    assert await source.hkeys(STATE) == [b"permit"]


async def test_a_key_that_goes_while_it_is_copied_keeps_no_claim(
    ways: Ways, pair: Pair, source: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given that its mover lives on, clients do not wait for a key that is gone."""
    way, _, _, permit = ways

    async def copy(*_: object) -> None:
        await source.delete("big")
        raise KeyGone("gone")

    monkeypatch.setattr(bigkeys, "copy", copy)
    await source.rpush("big", *range(3000))
    mover = await KeyMover.open(way, permit, Pace(), pair.progress, MoveOptions(), b"found")
    await mover.move(0, b"big")
    assert await source.hkeys(STATE) == [b"permit"]


async def test_a_caller_comes_after_one_that_was_cancelled(ways: Ways) -> None:
    """given a connection that still owes a reply to the caller before, the next one gets its own."""
    _, _, to_target, _ = ways
    waiting = asyncio.create_task(to_target.call("WAIT", 1, 300))
    await asyncio.sleep(0.05)
    waiting.cancel()
    assert await to_target.call("ECHO", "mine") == b"mine"
