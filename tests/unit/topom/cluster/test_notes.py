"""Events of topom itself: in the write of a change or in a write of their own, bounded, once."""

import time

import pytest

from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import ledger as ledgers
from topom.cluster import topology
from topom.cluster.events import What, actor, asker
from topom.cluster.notes import MOST_NOTES
from topom.store import StoreError


async def test_a_note_is_topoms_own_and_all_that_wait_are_one_write() -> None:
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    actor.set(asker("operator", "ada"))
    ledger.note(What.PROXY_LOST, "proxy 1 was not heard of")
    ledger.note(What.PROXY_BACK, "proxy 1 was heard of again")
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    whats = {event.what: event.who for event in ledger.state.events[-3:]}
    assert whats[What.GROUP_ADDED] == "ada (by operator)"
    assert whats[What.PROXY_LOST] == whats[What.PROXY_BACK] == f"topom {ledger.state.writer[:8]}"
    assert ledger.state.version == version + 2
    await bench.stop()


async def test_a_note_waits_for_a_write_to_take_it_along() -> None:
    """An urgent event is stored first, together with the events that say why; never by a write that another did."""
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    ledger.note(What.SERVER_FAILED, "failed: server a:1", wait=600.0)
    actor.set(asker("operator", "ada"))
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert [event.what for event in ledger.state.events[-1:]] == [What.GROUP_ADDED]
    actor.set("")
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    assert [event.what for event in ledger.state.events[-2:]] == [What.SERVER_FAILED, What.GROUP_ADDED]
    assert ledger.state.version == version + 2
    ledger.note(What.DIGEST_BEGUN, "it began", asker("operator", "ada"))
    await eventually(lambda: ledger.state.events[-1].what == What.DIGEST_BEGUN)
    assert ledger.state.events[-1].who == "ada (by operator)"
    await bench.stop()


@pytest.mark.parametrize("failure", ["fail_before", "fail_after"])
async def test_a_note_outlasts_a_store_that_fails(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is told once, with its own time, no matter whether the failed write is in the store."""
    monkeypatch.setattr(ledgers, "FIRST_WAIT_SECONDS", 0.01)
    bench = Bench()
    await bench.start()
    ledger, began = bench.ledger, time.time()
    setattr(bench.store, failure, 1)
    ledger.note(What.SERVER_FAILED, "failed: server a:1")
    await eventually(lambda: ledger.state.events[-1].what == What.SERVER_FAILED)
    assert [event.what for event in ledger.state.events].count(What.SERVER_FAILED) == 1
    assert began - 0.01 <= ledger.state.events[-1].at <= time.time()
    # The same is true for an event that the write of a change took along.
    setattr(bench.store, failure, 1)
    ledger.note(What.SERVER_BACK, "answer again: server a:1", wait=600.0)
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    assert [event.what for event in ledger.state.events].count(What.SERVER_BACK) == 1
    await bench.stop()


async def test_notes_are_bounded_and_end_with_the_lead() -> None:
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    for number in range(MOST_NOTES + 5):
        ledger.note(What.SERVER_FAILED, str(number), wait=600.0)
    await ledger.close()
    ledger.note(What.SERVER_FAILED, "too late")
    assert ledger.state.version == version
