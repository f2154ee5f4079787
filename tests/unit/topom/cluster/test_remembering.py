"""newest-store: a state that was made before one that this topom has seen is proven older, by a write that counts."""

from dataclasses import replace

import pytest

from tests.unit.topom.topom_fakes import PRODUCT, MemoryStore
from topom.cluster import records
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.lineage import StoreIsOlder
from topom.cluster.remembering import require_newest
from topom.cluster.state import ClusterState
from topom.store import STATE, StoreConflict, StoreError


class PutBack(MemoryStore):
    """A store that can be put back to an earlier state."""

    def save(self) -> tuple[int, dict[str, bytes]]:
        return self.version, dict(self.documents)

    def put_back(self, saved: tuple[int, dict[str, bytes]]) -> None:
        self.version, self.documents = saved[0], dict(saved[1])


async def led(store: MemoryStore, writer: str, changes: int, seen: ClusterState | None = None) -> Ledger:
    """A topom takes the writer's place, and makes so many changes."""
    ledger = Ledger(store, writer)
    await ledger.start(PRODUCT, seen=seen)
    for _ in range(changes):
        await ledger.change(lambda state, epoch: replace(state))
    return ledger


async def stored(store: MemoryStore) -> ClusterState | None:
    return records.decode(await store.book(STATE).read())


async def look(store: MemoryStore, seen: ClusterState | None) -> None:
    await require_newest(store.book(STATE), await stored(store), seen, "who looks")


async def test_a_state_that_went_on_since_is_the_newest() -> None:
    store = PutBack()
    await look(store, None)
    first = await led(store, "a", 3)
    await look(store, first.state)
    seen = first.state
    await led(store, "b", 2)
    await look(store, seen)
    second = await led(store, "c", 1, seen)
    await look(store, second.state)


async def test_an_older_state_is_refused_for_good_though_no_table_has_changed() -> None:
    """A proxy that has come since is in no older state, and nobody would wait for it."""
    store = PutBack()
    ledger = await led(store, "a", 1)
    saved = store.save()
    await ledger.change(lambda state, epoch: replace(state))
    assert ledger.table.epoch == 1
    store.put_back(saved)
    said = r"the store holds an older state \(version 2\) than this topom has seen \(version 3\)"
    with pytest.raises(StoreIsOlder, match=said):
        await led(store, "b", 0, ledger.state)
    # Nor does one begin that remembers nothing.
    with pytest.raises(StoreIsOlder, match=said):
        await led(store, "c", 0)


async def test_it_does_not_matter_how_far_another_topom_has_taken_the_older_state() -> None:
    store = PutBack()
    ledger = await led(store, "a", 1)
    saved = store.save()
    await ledger.change(lambda state, epoch: replace(state))
    store.put_back(saved)
    unknowing = await led(store, "b", 40)
    with pytest.raises(StoreIsOlder):
        await look(store, ledger.state)
    with pytest.raises(LostPlace):
        await unknowing.change(lambda state, epoch: replace(state))
    # Who looks next finds the proof.
    version = store.version
    with pytest.raises(StoreIsOlder):
        await look(store, ledger.state)
    assert store.version == version


async def test_an_older_state_proves_nothing_once_the_store_has_gone_on() -> None:
    """It came from a server of the store that had fallen behind."""
    store = PutBack()
    ledger = await led(store, "a", 1)
    behind = await stored(store)
    await ledger.change(lambda state, epoch: replace(state))
    with pytest.raises(StoreConflict):
        await require_newest(store.book(STATE), behind, ledger.state, "who looks")
    await look(store, ledger.state)


async def test_an_operator_may_say_that_it_is_the_newest() -> None:
    store = PutBack()
    ledger = await led(store, "a", 1)
    saved = store.save()
    await ledger.change(lambda state, epoch: replace(state))
    store.put_back(saved)
    again = Ledger(store, "b")
    await again.start(PRODUCT, newest=True, seen=ledger.state)
    await look(store, again.state)


async def test_neither_an_empty_store_nor_another_cluster_s_is_taken_for_the_one_that_was_seen() -> None:
    store, other = PutBack(), PutBack()
    seen = (await led(store, "a", 3)).state
    with pytest.raises(StoreError, match="the store is empty, and this topom has seen it at version 4; put"):
        await led(other, "b", 0, seen)
    assert other.version == 0
    await led(other, "b", 9)
    with pytest.raises(StoreError, match="the store holds another cluster, and this topom"):
        await led(other, "c", 0, seen)
    assert other.version == 10


@pytest.mark.parametrize("reaches", [False, True])
async def test_a_write_that_failed_does_not_lead_back_to_an_older_state_of_the_same_writer(reaches: bool) -> None:
    """The store was put back before anybody knew what became of the write."""
    store = PutBack()
    ledger = await led(store, "a", 1)
    saved = store.save()
    await ledger.change(lambda state, epoch: replace(state))
    store.fail_after, store.fail_before = (1, 0) if reaches else (0, 1)
    with pytest.raises(StoreError):
        await ledger.change(lambda state, epoch: replace(state))
    store.put_back(saved)
    before = ledger.state
    with pytest.raises(LostPlace):
        await ledger.change(lambda state, epoch: replace(state))
    assert ledger.state is before
    with pytest.raises(StoreIsOlder):
        await led(store, "b", 0, before)
