"""Loops go on, no matter what fails in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slots.messages.message import Product
from slots.table import SlotTable
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import MemoryStore
from topom.cluster import changed_records, records, topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.errors import Conflict
from topom.reasons import Kind
from topom.store import StoreConflict, Stored, StoreDamaged
from topom.term import tending
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tending import Tending


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tending, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(tending, "LONGEST_WAIT_SECONDS", 0.002)


@asynccontextmanager
async def running(topom: Topom) -> AsyncIterator[asyncio.Task[None]]:
    await topom.start()
    task = asyncio.create_task(topom.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await topom.close()


async def test_a_loop_that_fails_is_said_and_begun_again() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            raise ValueError("an odd answer")

    kept = Tending()
    await kept.keep("work", work)
    assert begun == 4
    assert kept.failures == {"work": 3}
    reason = kept.reasons["work"]
    assert (reason.kind, reason.what) == (Kind.FAULT, "ValueError: an odd answer")


async def test_a_cancellation_of_what_a_loop_waits_for_does_not_end_it() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            inner = asyncio.create_task(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(inner.cancel)
            await inner
        await asyncio.Event().wait()

    kept = Tending()
    task = asyncio.create_task(kept.keep("work", work))
    await eventually(lambda: begun == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_ends_a_loop_for_good_is_raised() -> None:
    async def work() -> None:
        raise StoreConflict("another topom has written")

    with pytest.raises(StoreConflict):
        await Tending(StoreConflict).keep("work", work)


LOOPS = [
    ("members", "lose_silent"), ("actions", "look"), ("promotions", "run"), ("health", "look"),
    ("masters", "look"), ("gone", "look"), ("actions", "follow_clock"), ("proxies", "look"), ("identities", "look"),
    ("departures", "look"), ("server_departures", "look"), ("filling", "look"), ("strays", "look"),
    ("digests", "look"), ("placements", "_look"), ("sweeps", "look"),
]  # fmt: skip


@pytest.mark.long
async def test_no_loop_of_a_term_ends_topom_or_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fails twice at first, with an error that nobody expects there; all of them go on."""
    topom = Topom(TopomSettings(data=tmp_path, number_of_slots=16), MemoryStore())
    called: dict[tuple[str, str], int] = dict.fromkeys(LOOPS, 0)
    for part, name in LOOPS:
        owner, key = getattr(topom, part), (part, name)

        def broken(*arguments: object, real: object = getattr(owner, name), key: tuple[str, str] = key) -> object:
            called[key] += 1
            if called[key] < 3:
                raise AttributeError("'int' object has no attribute 'splitlines'")
            return real(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, broken)
    async with running(topom) as task:
        await eventually(lambda: all(count >= 3 for count in called.values()), 60.0)
        await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
        assert not task.done()
        assert len(topom.tending.failures) >= len(LOOPS) - 1
        assert topom.health.looked.is_set() or topom.tending.failures["health"] == 2


async def test_who_listens_is_called_once_and_keeps_nobody_else_from_hearing() -> None:
    heard: list[int] = []

    class Listener:
        def hear(self, old: ClusterState, new: ClusterState) -> None:
            heard.append(new.version)

    def broken(old: ClusterState, new: ClusterState) -> None:
        raise ValueError

    ledger = Ledger(MemoryStore(), "w")
    await ledger.start(Product(name="p", number_of_slots=16, slot_function="crc32", databases=16))
    listener = Listener()
    for one in (broken, listener.hear, listener.hear):
        ledger.listen(one)
    await ledger.change(with_group)
    assert heard == [2]
    with pytest.raises(Conflict):
        await ledger.change(with_group)


def with_group(state: ClusterState, epoch: int) -> ClusterState:
    return replace(state, table=topology.add_group(state.table, epoch, 1))


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ("cluster", b"7"), ("cluster", b"null"), ("cluster", b"\xff"), ("cluster", b"[" * 100_000),
        ("groups/0000", b"{}1"), ("groups/0000", b'{"1": 2}'), ("groups/0000", b"[[]]"),
        ("slots/0000", b'"x"'), ("migration", b"[1]"),
        ("skipped", b"[3]"), ("moved", b'{"1e400": "0-3"}'), ("moved", b'{"1": 7}'), ("promotions", b"[]"),
        ("proxies/00000001", b"[]"), ("proxies/00000001", b'{"id": {}}'), ("fenced/a", b"1"),
        ("proxies/00000001", b'{"id": 1, "instance": 2}'),
        ("placement", b"5"), ("joining", b'{"address": 1}'), ("pool", b'[{"address": ["x"]}]'), ("speed", b"[]"),
    ],
)  # fmt: skip
async def test_whatever_is_odd_in_the_store_is_refused_with_a_sentence(document: str, value: bytes) -> None:
    state = ClusterState(
        1, "w", Product(name="p", number_of_slots=16, slot_function="crc32", databases=16), SlotTable.empty(16)
    )
    documents = {name: found for name, found in changed_records.differences(None, state).items() if found is not None}
    assert records.decode(Stored(1, documents)) is not None
    with pytest.raises(StoreDamaged, match="cannot be read"):
        records.decode(Stored(1, {**documents, document: value}))
