"""Events: in the write of their change, in one visible line each, and described to operators."""

import itertools
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.topom.topom_fakes import PRODUCT, Bench, FakeProxy
from topom import store as stores
from topom.cluster import records, topology
from topom.cluster.events import MOST_WHO, What, asker
from topom.cluster.ledger import Ledger
from topom.store import StoreError


async def test_an_event_is_in_the_write_of_its_change() -> None:
    bench = Bench()
    await bench.start()
    store, ledger = bench.store, bench.ledger
    before = ledger.state.events
    store.fail_before = 1
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert ledger.state.events is before
    store.fail_after = 1
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    await ledger.confirm()
    (event,) = ledger.state.events[len(before) :]
    assert (event.what, event.epoch_after) == (What.GROUP_ADDED, ledger.table.epoch)
    assert event.epoch_before < event.epoch_after
    stored = records.decode(await store.book(stores.STATE).read())
    assert stored is not None
    assert stored.events == ledger.state.events
    other = Ledger(store, "another")
    await other.start(PRODUCT)
    assert other.state.events[:-1] == ledger.state.events
    assert other.state.events[-1].what == What.TOPOM_STARTED
    await bench.stop()


async def test_a_move_is_told_state_by_state(bench: Callable[..., Awaitable[Bench]]) -> None:
    one = await bench()
    await FakeProxy(one, 1).register()
    one.run()
    last = one.ledger.state.events[-1].id
    await one.edit(lambda table, epoch: topology.move(table, epoch, [3, 4], 2))
    await one.at_rest(30)
    told = [event for event in one.ledger.state.events if event.id > last]
    assert [event.what for event in told] == [
        What.SLOTS_PENDING,
        What.SLOTS_PREPARING,
        What.SLOTS_LOCKED,
        What.SLOTS_MOVING,
        What.SLOTS_FINISHED,
        What.SLOTS_MOVED,
    ]
    assert all(before.epoch_after == after.epoch_before for before, after in itertools.pairwise(told))
    assert all("slots 3-4" in event.text for event in told)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *((None, "ops"), ("", "ops"), (" ada@host ", "ada@host (by ops)"), ("a\r\nb\x1b[1m", "a??b?[1m (by ops)")),
        ("root (by admin)", "root (by admin) (by ops)"),
    ],
)
def test_who_is_one_visible_line(name: str | None, shown: str) -> None:
    assert asker("ops", name) == shown
    assert len(asker("ops", "x" * 1000)) == MOST_WHO
