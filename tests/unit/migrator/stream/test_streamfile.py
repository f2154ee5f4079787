"""The stream is read by offsets, and freed behind its reader."""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import SourceUnavailable
from migrator.stream import streamfile
from migrator.stream.space import Space
from migrator.stream.spool import Spool
from migrator.stream.streamfile import MOST_SEGMENTS, SpooledStream


@given(
    st.integers(0, 1 << 60),
    st.lists(st.tuples(st.sampled_from(["append", "read", "release"]), st.integers(0, 60)), max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_what_is_read_is_what_was_written(begin: int, steps: list[tuple[str, int]]) -> None:
    chance = random.Random(len(steps))
    whole = b""
    released = 0
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(streamfile, "SEGMENT_BYTES", 16):
        spool = Spool(Path(folder), 10_000)
        stream = spool.stream
        stream._segment_bytes = 16
        stream.begin(begin)
        for kind, number in steps:
            if kind == "append":
                data = chance.randbytes(number)
                stream.append(memoryview(data))
                whole += data
                # At most a file more than what is needed, and the end of the one that is written.
                assert spool.held < len(whole) - released + 16
            elif kind == "read":
                place = released + min(number, len(whole) - released)
                found = stream.read(begin + place, 25)
                assert found == whole[place : place + len(found)]
                assert bool(found) == (place < len(whole))
            else:
                released = min(released + number, len(whole))
                stream.release(begin + released)
            assert stream.end == begin + len(whole)
        place = released
        while found := stream.read(begin + place, 7):
            assert found == whole[place : place + len(found)]
            place += len(found)
        assert place == len(whole)
        spool.close()
        assert spool.held == 0


def test_only_what_is_held_can_be_read(tmp_path: Path) -> None:
    stream = Spool(tmp_path, 1000).stream
    stream.begin(100)
    stream.append(memoryview(b"0123456789"))
    stream.release(105)
    assert stream.read(105, 100) == b"56789"
    for offset in (99, 104, 111):
        with pytest.raises(ValueError, match="not within 105 and 110"):
            stream.read(offset, 1)
    with pytest.raises(ValueError, match="beyond"):
        stream.release(111)


def test_what_came_before_a_failure_is_read_before_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    spool.stream.append(memoryview(b"0123456789"))
    spool.waking.fail(SourceUnavailable("it is gone"))
    assert spool.stream.read(0, 100) == b"0123456789"
    with pytest.raises(SourceUnavailable):
        spool.stream.read(10, 100)


def test_each_byte_has_a_time_of_arrival(tmp_path: Path) -> None:
    """A server of before Redis 7 sends how long a key lives, which counts from then."""
    times = iter((1000, 1100, 1199, 1200, 1500))
    spool = Spool(tmp_path, 1000)
    stream = SpooledStream(Space(tmp_path, 1000), spool.waking, lambda: next(times))
    for _ in range(5):
        stream.append(memoryview(b"01"))
    assert stream.arrived_ms(1) == 1199, "within a fifth of a second all came with the last"
    assert stream.arrived_ms(6) == 1199
    assert stream.arrived_ms(7) == 1200
    assert stream.arrived_ms(10) == 1500
    assert stream.arrived_ms(2) == 1199, "one reader may be ahead of another"
    stream.release(9)
    assert stream.arrived_ms(2) == 1500, "what is not kept any more counts as later"


def test_a_larger_spool_has_larger_files_and_not_more(tmp_path: Path) -> None:
    stream = Spool(tmp_path, 1 << 40).stream
    assert stream._segment_bytes == (1 << 40) // MOST_SEGMENTS


async def test_tasks_wait_for_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    spool.stream.append(memoryview(b"01234"))
    await spool.stream.more(4)
    waiting = [asyncio.create_task(spool.stream.more(5)) for _ in range(3)]
    given_up = asyncio.create_task(spool.stream.more(5))
    await asyncio.sleep(0)
    given_up.cancel()
    threading.Thread(target=lambda: spool.stream.append(memoryview(b"5"))).start()
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)
        beyond = asyncio.create_task(spool.stream.more(6))
        await asyncio.sleep(0)
        threading.Thread(target=spool.close).start()
        with pytest.raises(Exception, match="closed"):
            await beyond
    assert given_up.cancelled()
    assert spool.waking._tasks == set()
