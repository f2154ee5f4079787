"""How a copy rests in the stream for the sake of a latency goal, and when it does not."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from migrator.pace import Throttle
from migrator.stream.copying import Copy
from migrator.stream.following import HURRY_BYTES, Following
from migrator.stream.spool import SpoolReader
from slots.keyslots import KeySlots
from slots.requests.wanted import WantedRequests
from slots.reserved import MARKER
from tests.unit.migrator.virtual import in_virtual_time, now

REST = 1.0


async def nothing(at: str) -> None:
    return


def a_following(missing: int = 0, wanted: bytearray | None = None) -> Following:
    """One that has to rest, and at whose target so many bytes are missing."""
    return Following(
        "s:1",
        cast(SpoolReader, SimpleNamespace(offset=100, end=100 + missing, release=lambda offset: None)),
        KeySlots("crc32", 1024),
        bytearray(1024) if wanted is None else wanted,
        cast(Copy, SimpleNamespace(write=nothing, correct=nothing)),
        cast(Throttle, SimpleNamespace(rest=lambda work: REST)),
        Path(),
    )


@pytest.mark.parametrize(("missing", "seconds"), [(0, REST), (HURRY_BYTES, REST), (HURRY_BYTES + 1, 0)])
@in_virtual_time
async def test_it_rests_unless_too_much_is_missing(missing: int, seconds: float) -> None:
    following = a_following(missing)
    began = now()

    await following._rest(0.1)

    assert now() - began == pytest.approx(seconds, abs=0.01)


@in_virtual_time
async def test_who_waits_for_a_marker_ends_the_rest_and_there_is_none_until_it_has_come() -> None:
    following = a_following()
    began = now()
    rest = asyncio.create_task(following._rest(0.1))
    await asyncio.sleep(REST / 4)

    with following.expect(b"marker", ()):
        await rest
        await following._rest(0.1)

    assert now() - began == pytest.approx(REST / 4, abs=0.01)


@in_virtual_time
async def test_a_marker_for_which_nobody_waits_any_more_keeps_no_rest_away_and_takes_no_slot() -> None:
    wanted = bytearray([1]) * 1024
    following = a_following(wanted=wanted)
    with suppress(TimeoutError), following.expect(b"late", (1, 2)) as come_by:
        async with asyncio.timeout(1):
            await come_by.wait()
    began = now()

    await following._rest(0.1)
    await following._take(cast(WantedRequests, None), [b"SET", MARKER, b"late"], 200, 0)

    assert now() - began == pytest.approx(REST, abs=0.01)
    assert all(wanted)


@in_virtual_time
async def test_it_rests_no_more_once_that_keeps_it_from_becoming_level() -> None:
    following = a_following()
    began = now()
    rest = asyncio.create_task(following._rest(0.1))
    await asyncio.sleep(REST / 4)

    following.rest_no_more()
    await rest
    await following._rest(0.1)

    assert now() - began == pytest.approx(REST / 4, abs=0.01)
