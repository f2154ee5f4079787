"""newest-store: topom does nothing to servers, and gives no new proxy its table, before known proxies could object."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from slots.messages.control import KnownTable, Register
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster import lineage, topology
from topom.cluster.lineage import StoreIsOlder
from topom.errors import NotLeading
from topom.proxies import members
from topom.proxies.member import Refused
from topom.proxies.newest import NewestStore, NotSettled

MakeBench = Callable[..., Awaitable[Bench]]
LEASE_SECONDS = 3600.0


async def register(bench: Bench, proxy: FakeProxy, known: KnownTable | None, pid: int = 1) -> None:
    frame = Register(
        instance=proxy.instance,
        address="127.0.0.1:6380",
        hostname="here",
        pid=pid,
        workers=2,
        version="0",
        epoch=0,
        known=known,
    )
    await bench.members.register(frame, proxy)


def known_of(bench: Bench, epoch: int | None = None, start: str = "", cluster: str = "") -> KnownTable:
    """A table as this topom has given it, or with something else, sealed by the cluster."""
    state = bench.ledger.state
    start, epoch = start or state.starts[-1].writer, state.table.epoch if epoch is None else epoch
    seal = lineage.seal(state.seal_key, start, epoch)
    return KnownTable(cluster=cluster or state.cluster_id, start=start, epoch=epoch, seal=seal)


async def started_again(bench: Bench, make: MakeBench) -> Bench:
    """topom comes to lead again over what a bench has stored: no member has registered yet, and leases are long."""
    return await make(filled=False, store=bench.store, lease=LEASE_SECONDS)


async def registered_before(bench: Bench, *numbers: int) -> list[FakeProxy]:
    """Members of a topom that has led."""
    return [await FakeProxy(bench, number).register() for number in numbers]


async def has_settled(bench: Bench) -> bool:
    """Whether it needs to wait no longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await bench.members.newest.settled()
            return True
    return False


@pytest.mark.parametrize("knows", [False, True])
async def test_nothing_begins_before_every_known_proxy_has_registered(bench: MakeBench, knows: bool) -> None:
    first = await bench()
    proxies = await registered_before(first, 7, 8)
    one = await started_again(first, bench)
    settled = asyncio.create_task(one.members.newest.settled())
    # One that is no member, such as one that was fenced, may know a table that is older than this one's.
    new = asyncio.create_task(register(one, FakeProxy(one, 9), known_of(first) if knows else None))
    await register(one, proxies[0], known_of(first))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not settled.done()
    assert not new.done()
    # One that never had a table has nothing to say, and is waited for by nobody but itself.
    await register(one, proxies[1], None)
    async with asyncio.timeout(60):
        await settled
        await new
    # Who comes later, and ends before it is registered, holds up nobody.
    await one.ledger.change(
        lambda state, epoch: replace(state, proxies={**state.proxies, 99: replace(state.proxies[1], id=99)})
    )
    assert await has_settled(one)


async def test_a_known_proxy_that_stays_away_is_waited_for_until_it_is_lost(bench: MakeBench) -> None:
    first = await bench()
    proxies = await registered_before(first, 7, 8)
    one = await started_again(first, bench)
    await register(one, proxies[0], known_of(first))
    one.members.allow(LEASE_SECONDS)  # topom itself was held up, and has not read what the proxy says
    one.members.lease_seconds = 0.0
    one.members.lose_silent()
    assert not await has_settled(one)
    one.members.lease_seconds = -LEASE_SECONDS
    one.members.lose_silent()
    assert await has_settled(one)


async def test_who_knows_no_proxy_waits_for_a_lease_s_time(bench: MakeBench) -> None:
    """Slots may have moved under proxies that came after the store was saved."""
    assert await has_settled(await bench()), "the store is new"
    again = await started_again(await bench(filled=False), bench)
    assert await has_settled(again), "no slot ever had a group"
    await again.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1"]))
    await again.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
    one = await started_again(again, bench)
    one.members.allow(LEASE_SECONDS)
    one.members.lease_seconds = 0.0
    one.members.lose_silent()
    assert not await has_settled(one)
    one.members.lease_seconds = -LEASE_SECONDS
    one.members.lose_silent()
    assert await has_settled(one)


async def test_who_cannot_wait_for_longer_is_told_whom_topom_waits_for(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "REGISTRATION_SECONDS", 0.0)
    first = await bench()
    await registered_before(first, 7)
    one = await started_again(first, bench)
    named = r"it waits for a lease's time for proxy 1 \(127.0.0.1:6380 on here\); try again in a while"
    with pytest.raises(NotSettled, match=named):
        await one.members.newest.settled_within(0.0)
    with pytest.raises(Refused, match=named):
        await register(one, FakeProxy(one, 9), None)
    assert len(one.ledger.state.proxies) == 1
    again = await started_again(await bench(), bench)
    with pytest.raises(NotSettled, match="for proxies that it does not know"):
        await again.members.newest.settled_within(0.0)


async def test_who_waits_is_sent_away_when_the_term_ends(bench: MakeBench) -> None:
    first = await bench()
    await registered_before(first, 7)
    one = await started_again(first, bench)
    new = asyncio.create_task(register(one, FakeProxy(one, 9), None))
    await asyncio.sleep(0)
    one.members.newest.end()
    async with asyncio.timeout(60):
        with pytest.raises(NotLeading):
            await new
    assert len(one.ledger.state.proxies) == 1


async def test_one_newer_table_ends_the_term_and_nothing_begins(bench: MakeBench) -> None:
    first = await bench()
    (proxy,) = await registered_before(first, 7)
    one = await started_again(first, bench)
    settled = asyncio.create_task(one.members.newest.settled())
    new = asyncio.create_task(register(one, FakeProxy(one, 9), None))
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="on here has a table of epoch 3 that was made after what the store holds"):
        await register(one, proxy, known_of(one, 3, start="another"))
    async with asyncio.timeout(60):
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


async def test_an_older_store_stays_one_however_often_topom_starts(bench: MakeBench) -> None:
    """Though nobody says it again, and each start pushes out an earlier one that the state keeps."""
    first = await bench()
    (proxy,) = await registered_before(first, 7)
    one = await started_again(first, bench)
    with pytest.raises(Refused, match="has a table of epoch 9 that"):
        await register(one, proxy, known_of(one, 9, start="another"))
    await one.members.newest.store_proof()
    before = one.store.version
    for _ in range(3):
        with pytest.raises(StoreIsOlder, match=r"a table of epoch 9 that was made after what .*backup\.md"):
            await started_again(one, bench)
    assert one.store.version == before


@pytest.mark.parametrize("older", [False, True])
async def test_nothing_begins_before_servers_were_asked_whose_marks_they_have(bench: MakeBench, older: bool) -> None:
    """Though no proxy is known, and a lease's time has passed."""
    one = await started_again(await bench(), bench)
    own, answers = one.ledger.state.starts[-1].writer, asyncio.Event()

    async def used_by() -> Mapping[str, str]:
        await answers.wait()
        return {"s1:1": "", "s2:1": signature(one, "another" if older else own, 10)}

    newest = NewestStore(one.ledger, list, used_by)
    newest.over()
    newest.spoke()
    watching, settled = asyncio.create_task(newest.watch()), asyncio.create_task(newest.settled())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not settled.done()
    answers.set()
    async with asyncio.timeout(60):
        if older:
            with pytest.raises(StoreIsOlder, match="the owner of slots at s2:1, has a table of epoch 10"):
                await settled
            with pytest.raises(StoreIsOlder):
                await watching
        else:
            await settled
            assert not watching.done()
            watching.cancel()


async def test_a_new_store_has_no_older_one_and_asks_nobody(bench: MakeBench) -> None:
    one = await bench()
    async with asyncio.timeout(60):
        await NewestStore(one.ledger, list, asyncio.Future).settled()


class Marks:
    """What servers say of who has fenced proxies."""

    def __init__(self, bench: Bench, *signatures: str) -> None:
        self.asked: list[list[str]] = []
        self.before: Callable[[], None] = lambda: None
        self._signatures = signatures
        bench.members.fenced_by = self

    async def __call__(self, instances: Collection[str]) -> Mapping[str, Collection[str]]:
        self.asked.append([*instances])
        self.before()
        return {"s1:1": [], "s2:1": self._signatures}


def signature(bench: Bench, start: str, epoch: int, key: str | None = None, cluster: str = "") -> str:
    state = bench.ledger.state
    return lineage.signature(cluster or state.cluster_id, state.seal_key if key is None else key, start, epoch)


async def test_a_fence_of_a_topom_over_a_copy_ends_the_term(bench: MakeBench) -> None:
    """The proxy would write by this topom's table, and the other topom has moved the slots."""
    one = await bench()
    former, again = FakeProxy(one, 7), FakeProxy(one, 8)
    await register(one, former, None)
    marks = Marks(one, signature(one, "another", 5))
    with pytest.raises(
        Refused, match="another topom, which has fenced a proxy off s2:1, has a table of epoch 5 that was"
    ):
        await register(one, again, known_of(one))
    assert marks.asked == [[former.instance]]
    async with asyncio.timeout(60):
        with pytest.raises(StoreIsOlder):
            await one.members.newest.watch()


async def test_any_other_mark_ends_nothing(bench: MakeBench) -> None:
    one = await bench()
    await register(one, FakeProxy(one, 7), None)
    own = one.ledger.state.starts[-1].writer
    marks = Marks(
        one,
        signature(one, own, 1),
        signature(one, "another", 5, key="invented"),
        signature(one, "another", 5, key=""),
        signature(one, "another", 5, cluster="another"),
        "made by an earlier version",
    )
    await register(one, FakeProxy(one, 8), known_of(one))
    assert len(marks.asked) == 1
    # Only a process that is known under another identity can have seen the fence of one.
    await register(one, FakeProxy(one, 9), known_of(one), pid=2)
    await register(one, FakeProxy(one, 8), known_of(one))
    assert len(marks.asked) == 1
    assert len(one.ledger.state.proxies) == 3


async def test_a_fence_of_its_successor_is_nothing_to_a_topom_that_does_not_lead_any_more(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    await register(one, FakeProxy(one, 7), None)
    marks = Marks(one, signature(one, "successor", 5))
    marks.before = lambda: monkeypatch.setattr(one.ledger, "_leads", lambda: False)
    with pytest.raises(NotLeading):
        await register(one, FakeProxy(one, 8), known_of(one))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"cluster": "another"}, "has the table of another cluster"),
        # Of a start and a seal that a proxy has been told.
        ({"epoch": 10**9}, "nothing shows that this cluster has made it"),
        ({"start": "invented", "seal": ""}, "nothing shows that this cluster has made it"),
    ],
)
async def test_a_proxy_of_another_cluster_or_with_an_invented_table_is_refused_and_ends_nothing(
    bench: MakeBench, said: dict[str, object], reason: str
) -> None:
    first = await bench()
    known = known_of(first)
    one = await started_again(first, bench)
    with pytest.raises(Refused, match=reason):
        await register(one, FakeProxy(one, 7), known.model_copy(update=said))
    watching = asyncio.create_task(one.members.newest.watch())
    await asyncio.sleep(0.05)
    assert not watching.done()
    watching.cancel()
