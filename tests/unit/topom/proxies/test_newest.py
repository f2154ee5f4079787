"""newest-store: topom does nothing to servers, and gives no new proxy its table, before known proxies could object."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slots.messages.control import KnownTable, Register
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster.lineage import StoreIsOlder
from topom.proxies.members import Refused

MakeBench = Callable[..., Awaitable[Bench]]
LEASE_SECONDS = 3600.0


async def register(bench: Bench, proxy: FakeProxy, known: KnownTable | None) -> None:
    frame = Register(
        instance=proxy.instance,
        address="127.0.0.1:6380",
        hostname="here",
        pid=1,
        workers=2,
        version="0",
        epoch=0,
        known=known,
    )
    await bench.members.register(frame, proxy)


def known_of(bench: Bench, epoch: int | None = None, start: str = "", cluster: str = "") -> KnownTable:
    """A table as this topom has given it, or with something else."""
    state = bench.ledger.state
    return KnownTable(
        cluster=cluster or state.cluster_id,
        start=start or state.starts[-1].writer,
        epoch=state.table.epoch if epoch is None else epoch,
    )


async def started_again(bench: Bench) -> None:
    """As if topom had just come to lead: no member has registered, and their leases are long."""
    bench.members.lease_seconds = LEASE_SECONDS
    bench.members.newest._seconds = LEASE_SECONDS
    bench.members.start()


async def test_nothing_begins_before_every_known_proxy_has_registered(bench: MakeBench) -> None:
    one = await bench()
    proxies = [await FakeProxy(one, number).register() for number in (7, 8)]
    await started_again(one)
    settled = asyncio.create_task(one.members.newest.settled())
    new = asyncio.create_task(register(one, FakeProxy(one, 9), None))
    await register(one, proxies[0], known_of(one))
    await asyncio.sleep(0)
    assert not settled.done()
    assert not new.done()
    # One that never had a table has nothing to say, and is waited for by nobody but itself.
    await register(one, proxies[1], None)
    async with asyncio.timeout(10):
        await settled
        await new


async def test_a_known_proxy_that_stays_away_is_waited_for_as_long_as_its_lease(bench: MakeBench) -> None:
    one = await bench()
    await FakeProxy(one, 7).register()
    await started_again(one)
    one.members.newest._seconds = 0.05
    one.members.newest.begin()
    async with asyncio.timeout(10):
        await one.members.newest.settled()


async def test_one_newer_table_ends_the_term_and_nothing_begins(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 7).register()
    await started_again(one)
    settled = asyncio.create_task(one.members.newest.settled())
    new = asyncio.create_task(register(one, FakeProxy(one, 9), None))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="on here has a table of epoch 3 that was made after what the store holds"):
        await register(one, proxy, known_of(one, 3, start="another"))
    async with asyncio.timeout(10):
        with pytest.raises(StoreIsOlder):
            await one.members.newest.watch()
        with pytest.raises(StoreIsOlder):
            await settled
        # Nor does a proxy that was waiting get the older table.
        with pytest.raises(Refused, match="was made after what the store holds"):
            await new
    # Nor does any other, whatever it says, while the term ends.
    with pytest.raises(Refused, match="was made after what the store holds"):
        await register(one, proxy, known_of(one))
    with pytest.raises(StoreIsOlder):
        await one.members.newest.settled()


async def test_a_proxy_of_another_cluster_is_refused_and_ends_nothing(bench: MakeBench) -> None:
    one = await bench()
    with pytest.raises(Refused, match="has the table of another cluster"):
        await register(one, FakeProxy(one, 7), known_of(one, 10**9, cluster="another"))
    watching = asyncio.create_task(one.members.newest.watch())
    await asyncio.sleep(0.05)
    assert not watching.done()
    watching.cancel()
