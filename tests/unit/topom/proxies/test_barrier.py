"""Members and barriers: which proxies are waited for, which are fenced, and what a proxy's silence means."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from slots.messages import control
from slots.messages.control import Register
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster import topology
from topom.cluster.state import Marked
from topom.proxies.barrier import Barrier, BarrierRefused, BarrierTimeout
from topom.proxies.member import Refused

MakeBench = Callable[..., Awaitable[Bench]]


async def reach(bench: Bench, seconds: float = 0.05, stop_at_refusal: bool = False) -> None:
    await bench.barrier.reach(bench.ledger.table.epoch, ["s1:6379"], seconds, stop_at_refusal)


async def touch(bench: Bench) -> None:
    await bench.edit(lambda table, epoch: table.changed(epoch))


async def test_without_proxies_a_barrier_passes(bench: MakeBench) -> None:
    one = await bench()
    await reach(one, 0)


async def test_everyone_is_waited_for(bench: MakeBench) -> None:
    one = await bench()
    await FakeProxy(one, 1).register()
    slow = await FakeProxy(one, 2, lambda table: None).register()
    with pytest.raises(BarrierTimeout, match=r"proxy 2 .* did not acknowledge"):
        await reach(one)
    waiting = asyncio.create_task(reach(one, 5))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert slow.member is not None
    one.members.acknowledge(slow.member, one.ledger.table.epoch)
    await waiting


async def test_locks_are_had_one_at_a_time_and_in_order(bench: MakeBench) -> None:
    one = await bench()
    order: list[int] = []

    async def hold(number: int) -> None:
        async with one.barrier.locking():
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)
            if number == 1:
                raise BarrierRefused("busy")

    outcomes = await asyncio.gather(*(hold(number) for number in range(3)), return_exceptions=True)
    assert order == [0, 0, 1, 1, 2, 2]
    assert [type(outcome) for outcome in outcomes] == [type(None), BarrierRefused, type(None)]


async def test_an_acknowledgement_stands_for_all_tables_before(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1, lambda table: None).register()
    epoch = one.ledger.table.epoch
    waiting = asyncio.create_task(one.barrier.reach(epoch, [], 5, False))
    await touch(one)
    assert proxy.member is not None
    one.members.acknowledge(proxy.member, one.ledger.table.epoch)
    await waiting


async def test_drained_a_proxy_that_registers_meanwhile_is_waited_for(bench: MakeBench) -> None:
    one = await bench()
    first = await FakeProxy(one, 1, lambda table: None).register()
    waiting = asyncio.create_task(reach(one, 5))
    await asyncio.sleep(0.01)
    second = await FakeProxy(one, 2, lambda table: None).register()
    assert first.member is not None
    assert second.member is not None
    one.members.acknowledge(first.member, one.ledger.table.epoch)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    one.members.acknowledge(second.member, one.ledger.table.epoch)
    await waiting


async def test_a_refusal_ends_a_barrier_that_asks_for_it(bench: MakeBench) -> None:
    one = await bench()
    await FakeProxy(one, 1, lambda table: False).register()
    with pytest.raises(BarrierRefused, match=r"proxy 1 .* said: busy"):
        await reach(one, 5, stop_at_refusal=True)
    with pytest.raises(BarrierTimeout):
        await reach(one, 0.02)


async def test_a_refused_table_is_told_again(bench: MakeBench) -> None:
    one = await bench()
    refusals = iter([False, False])
    await FakeProxy(one, 1, lambda table: next(refusals, True)).register()
    one.run()
    epoch = one.ledger.table.epoch
    await reach(one, 5)
    assert one.ledger.table.epoch > epoch


async def test_a_proxy_that_leaves_is_not_waited_for(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1, lambda table: None).register()
    waiting = asyncio.create_task(reach(one, 5))
    await asyncio.sleep(0.01)
    assert proxy.member is not None
    await one.members.leave(proxy.member)
    await waiting
    assert not one.ledger.state.proxies
    assert not one.ledger.state.fenced


async def test_disconnected_proxies_are_waited_for(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    await reach(one)
    assert proxy.member is not None
    one.members.disconnected(proxy.member, proxy)
    await touch(one)
    with pytest.raises(BarrierTimeout, match="online"):
        await reach(one)
    await proxy.register()
    await reach(one)
    assert len(one.members.all()) == 1


async def test_a_lost_proxy_is_fenced_and_not_waited_for(bench: MakeBench) -> None:
    one = await bench(lease=0.05)
    proxy = await FakeProxy(one, 1, lambda table: None).register()
    one.run()
    await reach(one, 5)
    assert one.fencer.fenced == {proxy.instance: {"s1:6379"}}
    assert one.ledger.state.marked == {"s1:6379": Marked("first", 1)}
    message = "nothing was heard of the proxy for longer than its lease, so it was fenced off the servers"
    assert proxy.last_messages == [control.Refused(reason="fenced", message=message)]
    with pytest.raises(Refused) as refused:
        await proxy.register()
    assert refused.value.reason == "fenced"
    await FakeProxy(one, 9).register()


async def test_drained_a_lost_proxy_is_waited_for_until_it_is_fenced(bench: MakeBench) -> None:
    one = await bench(lease=0.02)
    await FakeProxy(one, 1, lambda table: None).register()
    one.fencer.down = {"s1:6379"}
    one.run()
    with pytest.raises(BarrierTimeout, match="cannot be fenced at s1:6379: no answer"):
        await reach(one, 0.2)
    waiting = asyncio.create_task(reach(one, 5))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    one.fencer.down = set()
    await waiting


async def test_a_fence_is_made_up_for_at_other_servers(bench: MakeBench) -> None:
    one = await bench(lease=0.02)
    proxy = await FakeProxy(one, 1, lambda table: None).register()
    one.run()
    await reach(one, 5)
    assert not one.barrier.passed(one.ledger.table.epoch, ["s1:6379", "s2:6379"])
    await one.barrier.reach(one.ledger.table.epoch, ["s2:6379"], 5, False)
    assert one.fencer.fenced == {proxy.instance: {"s1:6379", "s2:6379"}}


async def test_a_lost_proxy_that_acknowledged_is_let_be(bench: MakeBench) -> None:
    one = await bench(lease=0.02)
    proxy = await FakeProxy(one, 1).register()
    one.run()
    assert proxy.member is not None
    async with asyncio.timeout(30):
        while not proxy.member.lost:
            await asyncio.sleep(0.01)
    await reach(one)
    one.members.heard(proxy.member)
    assert proxy.member.state == "online"
    assert not one.fencer.fenced


async def test_members_have_a_lease_after_a_restart(bench: MakeBench) -> None:
    one = await bench()
    first = await FakeProxy(one, 1).register()
    await FakeProxy(one, 2).register()
    again = await Bench(one.store, lease=0.2).start()
    with pytest.raises(BarrierTimeout):
        await reach(again, 0.02)
    back = await FakeProxy(again, 1).register()
    assert back.member is not None
    assert first.member is not None
    assert back.member.record.id == first.member.record.id
    again.run()
    keep_alive = asyncio.create_task(_heartbeats(again, back))
    await reach(again, 5)
    keep_alive.cancel()
    await again.stop()
    assert [member.record.id for member in again.members.all()] == [back.member.record.id]


async def _heartbeats(bench: Bench, proxy: FakeProxy) -> None:
    while True:
        assert proxy.member is not None
        bench.members.heard(proxy.member)
        await asyncio.sleep(0.01)


async def test_a_held_up_topom_does_not_blame_its_proxies(bench: MakeBench) -> None:
    one = await bench(lease=0.2)
    proxy = await FakeProxy(one, 1).register()
    one.run()
    await asyncio.sleep(0.02)
    time.sleep(0.5)  # noqa: ASYNC251 - the event loop has to stand still, as in a stopped process
    await asyncio.sleep(0.03)
    assert proxy.member is not None
    assert proxy.member.state == "online"


async def test_a_new_connection_takes_the_place_of_the_old(bench: MakeBench) -> None:
    one = await bench()
    old = await FakeProxy(one, 1).register()
    new = await FakeProxy(one, 1).register()
    assert old.last_messages == [None]
    assert old.member is new.member
    assert new.member is not None
    one.members.disconnected(new.member, old)
    assert new.member.link is new


async def test_a_proxy_with_a_newer_table_is_refused(bench: MakeBench) -> None:
    one = await bench(filled=False)
    proxy = FakeProxy(one, 1)
    frame = Register(instance=proxy.instance, address="a:1", hostname="h", pid=1, workers=1, version="0", epoch=50)
    with pytest.raises(Refused, match="epoch 50"):
        await one.members.register(frame, proxy)


async def test_removal_fences_for_good(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    await one.members.fence([proxy.member.record.id], "removed", "gone", only_lost=False)
    assert proxy.last_messages == [control.Refused(reason="removed", message="gone")]
    assert await one.barrier.fence_removed(["s1:6379"]) == {}
    with pytest.raises(Refused):
        await proxy.register()


async def test_a_proxy_is_told_why_it_was_removed_however_long_that_is(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    await one.members.fence([proxy.member.record.id], "removed", "gone " * 1000, only_lost=False)
    [told] = proxy.last_messages
    assert isinstance(told, control.Refused)
    assert told.message.startswith("gone gone ")


async def test_wakes_come_with_the_new_table(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 9))
    await asyncio.sleep(0.01)
    assert 9 in proxy.seen[-1].groups


EVERYWHERE = ["s1:6379", "s2:6379", "s3:6379"]


async def remove(one: Bench, *proxies: FakeProxy) -> None:
    ids = [proxy.member.record.id for proxy in proxies if proxy.member is not None]
    await one.members.fence(ids, "removed", "gone", only_lost=False)


async def test_a_fence_that_is_up_everywhere_is_forgotten(bench: MakeBench) -> None:
    """The proxy is refused even so: it says that it was a member."""
    one = await bench()
    first, second, third = [await FakeProxy(one, number).register() for number in range(3)]
    await remove(one, first, second)
    assert await one.barrier.fence_removed(EVERYWHERE[:2]) == {}
    assert len(one.ledger.state.fenced) == 2
    await remove(one, third)
    one.fencer.down.add("s3:6379")
    assert list(await one.barrier.fence_removed(EVERYWHERE)) == ["s3:6379"]
    assert len(one.ledger.state.fenced) == 3
    one.fencer.down.clear()
    assert await one.barrier.fence_removed(EVERYWHERE) == {}
    state = one.ledger.state
    assert (state.fenced, state.marked, state.came, state.last_fence) == ({}, {}, {}, 3)
    assert all(one.fencer.fenced[proxy.instance] == set(EVERYWHERE) for proxy in (first, second, third))
    for proxy in (first, second, third):
        with pytest.raises(Refused):
            await proxy.register()


async def test_a_server_that_was_started_anew_is_fenced_anew(bench: MakeBench) -> None:
    """run-id: the process that has the marks is stored with them, and another one counts as having none."""
    one = await bench()
    seen: dict[str, str] = {}
    barrier = Barrier(one.ledger, one.members, one.fencer, seen.get)
    proxy = await FakeProxy(one, 1).register()
    await remove(one, proxy)
    assert await barrier.fence_removed(["s1:6379"]) == {}
    assert barrier.passed(one.ledger.table.epoch, ["s1:6379"])
    for run_id in ("first", "second"):
        one.fencer.fenced.clear()
        seen["s1:6379"] = one.fencer.processes["s1:6379"] = run_id
        assert barrier.passed(one.ledger.table.epoch, ["s1:6379"]) is (run_id == "first")
        assert await barrier.fence_removed(["s1:6379"]) == {}
        assert one.fencer.fenced == ({} if run_id == "first" else {proxy.instance: {"s1:6379"}})
        assert barrier.passed(one.ledger.table.epoch, ["s1:6379"])


async def test_a_server_that_was_started_anew_unseen_has_all_fences_before_it_counts(bench: MakeBench) -> None:
    """run-id: an old fence does not count as up only because a new one was put up at the new process."""
    one = await bench()
    barrier = Barrier(one.ledger, one.members, one.fencer, lambda server: "first")
    first, second = [await FakeProxy(one, number).register() for number in range(2)]
    await remove(one, first)
    assert await barrier.fence_removed(["s1:6379"]) == {}
    # When: it is started anew, and nobody has noticed that yet when the next proxy is fenced.
    one.fencer.fenced.clear()
    one.fencer.processes["s1:6379"] = "second"
    await remove(one, second)
    assert list(await barrier.fence_removed(["s1:6379"])) == ["s1:6379"]
    assert one.fencer.fenced == {second.instance: {"s1:6379"}}
    later = Barrier(one.ledger, one.members, one.fencer, lambda server: "second")
    assert not later.passed(one.ledger.table.epoch, ["s1:6379"])
    assert await later.fence_removed(["s1:6379"]) == {}
    assert one.fencer.fenced == {proxy.instance: {"s1:6379"} for proxy in (first, second)}
    assert later.passed(one.ledger.table.epoch, ["s1:6379"])


async def test_a_barrier_goes_on_once_it_is_known_which_process_was_fenced(bench: MakeBench) -> None:
    one = await bench()
    seen = {"s1:6379": "first"}
    barrier = Barrier(one.ledger, one.members, one.fencer, seen.get)
    await remove(one, await FakeProxy(one, 1).register())
    one.fencer.processes["s1:6379"] = "second"
    reaching = asyncio.create_task(barrier.reach(one.ledger.table.epoch, ["s1:6379"], 600.0, False))
    await eventually(lambda: "s1:6379" in one.ledger.state.marked)
    await asyncio.sleep(0.01)
    assert not reaching.done()
    seen["s1:6379"] = "second"
    async with asyncio.timeout(30):
        await reaching


async def test_a_refusal_of_a_table_that_was_never_told_changes_nothing(bench: MakeBench) -> None:
    """If topom believed it, the tables up to that epoch would count as refused before there are any."""
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    one.members.refuse(proxy.member, one.ledger.table.epoch + 100, "no")
    assert one.members.refused_epoch == 0
    assert proxy.member.refused == (0, "")
    one.members.refuse(proxy.member, one.ledger.table.epoch, "no")
    assert one.members.refused_epoch == one.ledger.table.epoch
