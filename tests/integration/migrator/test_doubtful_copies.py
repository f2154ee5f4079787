"""If the target may have a copy of a key, the source's is not deleted: the key is claimed, or the permit has changed.

Before a proxy deletes a key at the source, it asks the target for a key of that name, under the same permit.
"""

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots import permits
from slots.moving import DELETE
from slots.reserved import IN_PIECES, STATE
from tests.integration.migrator.pairs import Pair
from tests.integration.migrator.steps import drop, place, taken


@pytest.fixture
async def permit(source: Redis, target: Redis) -> str:
    """One that holds, at a source that has the key ``key``."""
    await source.set("key", "value")
    return await permits.renew(source, target, "target")


async def why_not(source: Redis, permit: str, at_target: bool = False) -> str:
    """The beginning of the refusal to delete the key; empty if it was deleted."""
    try:
        said = await source.execute_command("EVAL", DELETE.text, 2, STATE, "key", permit, 0, int(at_target))
    except ResponseError as error:
        assert await source.get("key") == b"value"
        return str(error).split()[0]
    assert said == [1]
    assert not await source.exists("key")
    return ""


async def test_a_key_that_is_on_its_way_may_be_at_the_target(source: Redis, target: Redis, permit: str) -> None:
    found = await taken(source, permit, b"key")
    assert await why_not(source, permit) == "CLAIMED"
    assert await place(target, permit, found) == (1, b"")
    assert await why_not(source, permit) == "CLAIMED"


async def test_a_key_that_goes_in_pieces_may_be_at_the_target(source: Redis, permit: str) -> None:
    await source.hset(STATE, "claim:0:key", f"{IN_PIECES}a mover")
    assert await why_not(source, permit) == "CLAIMED"


async def test_the_permit_of_before_does_not_hold(source: Redis, target: Redis, permit: str) -> None:
    """given a key that was placed and not dropped, its claim goes with the permit."""
    assert await place(target, permit, await taken(source, permit, b"key")) == (1, b"")
    latest = await permits.renew(source, target, "target", permit)
    assert await why_not(source, permit) == "NOTPERMITTED"
    # A process that asks the target by the latest permit finds the copy there.
    assert await why_not(source, latest, at_target=bool(await target.exists("key"))) == "COPIED"


async def test_run_id_the_permit_of_another_process_does_not_hold(source: Redis, permit: str) -> None:
    others = permit.replace(permits.processes_of(permit)[0], "f" * 40)
    await source.hset(STATE, "permit", others)
    assert await why_not(source, others) == "NOTPERMITTED"


async def test_a_target_that_takes_nothing_has_nothing(source: Redis, permit: str) -> None:
    """The permit has to last for this: otherwise nothing could be deleted while a target is full."""
    await taken(source, permit, b"key")
    assert await drop(source, permit, b"key", deletes=0) == 1
    assert await why_not(source, permit) == ""


async def test_a_key_that_both_have_is_not_deleted_at_one(source: Redis, permit: str) -> None:
    assert await why_not(source, permit, at_target=True) == "COPIED"


async def test_a_move_that_a_target_refuses_leaves_keys_that_can_be_deleted(
    pair: Pair, source: Redis, target: Redis, permit: str
) -> None:
    found = await taken(source, permit, b"key")
    nonsense = type(found).of([1, 1, [], [], [1], [b"nonsense"], [-1], [], []], [b"key"])
    said = await place(target, permit, nonsense)
    assert said is not None
    placed, error = said
    assert placed == 0
    assert error.startswith(b"ERR DUMP payload version or checksum")
    assert await drop(source, permit, b"key", deletes=placed) == 1
    assert await why_not(source, permit) == ""
