"""A source that restarts in the middle of a move: whether it has keys again that had left it."""

import asyncio
from contextlib import suppress

import pytest

from migrator.errors import MigrationError
from migrator.pace import PaceSettings
from tests.integration.migrator.pairs import Pair, assert_moved, client_of, fill

KEYS = 600
LEFT = 200


@pytest.mark.parametrize("older", [True, False])
async def test_a_source_that_comes_back_says_whether_keys_are_there_again(fragile_pair: Pair, older: bool) -> None:
    """given a source that is killed amid a move, when it has the data of before the move again, then the next call
    says how many keys it does not know to have left. With the data that it had at last, it knows of all."""
    pair = fragile_pair
    async with client_of(pair.source) as source:
        await fill(source, KEYS)
        await source.save()
        pair.pace.change(PaceSettings(keys_per_second=KEYS))
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, LEFT)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        there = int(await source.dbsize()) - 1
        if not older:
            await source.save()
    await pair.source.kill()
    pair.source.start()
    await pair.source.ready()
    pair.pace.change(PaceSettings())
    with suppress(MigrationError):
        await pair.migrate()
    await pair.migrate()
    back = pair.progress.undone
    if older:
        # What left with the last step of all was not heard of.
        assert LEFT / 2 < back <= KEYS - there
    else:
        assert back == 0
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await assert_moved(source, target, KEYS)
