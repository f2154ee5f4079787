"""Changes of slot rules: what is stored when, and what refuses them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from migrator.errors import ServerUnavailable
from slots.rules import SlotRule
from slots.slot import Slot
from tests.unit.topom.operators import send
from tests.unit.topom.topom_fakes import Bench, FakeProxy, MemoryBook, MemoryStore
from topom.cluster import records, rules, topology
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.errors import RulesChanging
from topom.migration.misplaced import Placing, Tally
from topom.migration.rulechanges import RUNNING, RuleChange, RuleChanges, RulesChange, RulesWait, Stage
from topom.proxies.member import Refused
from topom.store import STATE, StoreError

MakeBench = Callable[..., Awaitable[Bench]]
RULES = (SlotRule("bull:(*):*"),)


class Counts:
    """Stands for the servers: what each count of keys finds. ``then`` is called amid each, with its number."""

    def __init__(self, *misplaced: int) -> None:
        self.misplaced = misplaced
        self.placings: list[Placing] = []
        self.then: Callable[[int], Awaitable[object]] | None = None

    async def __call__(self, placing: Placing, tally: Tally) -> None:
        self.placings.append(placing)
        number = len(self.placings)
        if self.then is not None:
            await self.then(number)
        tally.keys += 10
        if number <= len(self.misplaced) and self.misplaced[number - 1]:
            tally.misplaced += self.misplaced[number - 1]
            tally.named.append("bull:mail:1")


def changes(one: Bench, counts: Counts, seconds: float = 5.0) -> RuleChanges:
    return RuleChanges(one.ledger, one.members, one.barrier, counts, seconds)


async def over(of: RuleChanges) -> RuleChange:
    async with asyncio.timeout(60):
        while of.last is None or of.last.stage in RUNNING or of.under_way:
            await asyncio.sleep(0.002)
    return of.last


async def test_all_proxies_lock_before_keys_are_counted_again(bench: MakeBench) -> None:
    one = await bench()
    proxies = [await FakeProxy(one, number).register() for number in (1, 2)]
    counts = Counts()
    seen: list[tuple[int, tuple[SlotRule, ...] | None, set[int]]] = []

    async def then(number: int) -> None:
        members = {proxy.member.acked for proxy in proxies if proxy.member is not None}
        seen.append((number, one.ledger.table.coming, members))

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    done = await over(change)
    assert (done.stage, done.reason) == (Stage.DONE, None)
    assert [(number, coming) for number, coming, _ in seen] == [(1, None), (2, RULES)]
    # drained: both had the table by which they lock all slots, before the keys were counted again.
    for proxy in proxies:
        tables = [(table.rules, table.coming) for table in proxy.seen if table.coming or table.rules]
        assert tables[0] == ((), RULES)
        locked = next(table.epoch for table in proxy.seen if table.coming == RULES)
        assert min(seen[1][2]) >= locked
    table = one.ledger.table
    assert (table.rules, table.coming) == (RULES, None)
    assert one.ledger.state.events[-1].what is What.RULES_CHANGED
    placing = counts.placings[1]
    assert (placing.old.rules, placing.new.rules) == ((), RULES)
    assert placing.here == {"s1:6379": bytes([1] * 16)}


async def test_a_dry_run_only_counts(bench: MakeBench) -> None:
    one = await bench()
    epoch = one.ledger.table.epoch
    change = changes(one, Counts(3))
    change.begin(RULES, dry=True)
    with pytest.raises(RulesChange):
        change.begin(RULES, dry=True)
    done = await over(change)
    assert (done.stage, done.tally.misplaced, one.ledger.table.epoch) == (Stage.COUNTED, 3, epoch)


@pytest.mark.parametrize(("found", "locks"), [((3,), False), ((0, 1), True)])
async def test_stranded_keys_refuse_it(bench: MakeBench, found: tuple[int, ...], locks: bool) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    change = changes(one, Counts(*found))
    change.begin(RULES, dry=False)
    done = await over(change)
    assert done.stage is Stage.FAILED
    assert done.reason is not None
    assert "would be in another group than now ('bull:mail:1')" in done.reason.what
    assert (one.ledger.table.rules, one.ledger.table.coming) == ((), None)
    assert any(table.coming for table in proxy.seen) is locks


async def test_a_proxy_that_does_not_lock_refuses_it(bench: MakeBench) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1, lambda table: table.coming is None).register()
    change = changes(one, Counts())
    change.begin(RULES, dry=False)
    done = await over(change)
    assert (done.stage, one.ledger.table.coming, one.ledger.table.rules) == (Stage.FAILED, None, ())
    # All are unlocked at once.
    assert [table.coming for table in proxy.seen][-2:] == [RULES, None]
    assert done.reason is not None
    assert "busy" in done.reason.what


async def test_a_proxy_that_comes_after_the_others_have_locked_begins_with_the_coming_rules(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    await FakeProxy(one, 1).register()
    late = FakeProxy(one, 2, lambda table: table.coming is None or None)
    reach = one.barrier.reach

    async def reached(*arguments: Any, **options: Any) -> None:
        await reach(*arguments, **options)
        await late.register()

    monkeypatch.setattr(one.barrier, "reach", reached)
    change = changes(one, Counts())
    change.begin(RULES, dry=False)
    done = await over(change)
    assert (done.stage, one.ledger.table.rules, one.ledger.table.coming) == (Stage.DONE, RULES, None)
    # It has no command under way from before, and never had a table by which it would serve keys whose slot changes.
    assert [(table.rules, table.coming) for table in late.seen][:1] == [((), RULES)]


@pytest.mark.parametrize("restarted", [False, True])
async def test_another_master_amid_the_count_refuses_it(bench: MakeBench, restarted: bool) -> None:
    one = await bench()
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "r1:6379"))
    counts = Counts()

    async def then(number: int) -> None:
        if number == 2:
            if restarted:
                # run-id: it may have older data.
                await one.ledger.change(lambda state, epoch: replace(state, run_ids={"s1:6379": "another"}))
                return
            group = one.ledger.table.groups[1]
            servers = tuple(reversed(group.servers))
            await one.edit(lambda table, epoch: table.changed(epoch, groups=[replace(group, servers=servers)]))

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    done = await over(change)
    assert (done.stage, one.ledger.table.rules, one.ledger.table.coming) == (Stage.FAILED, (), None)
    assert done.reason is not None
    assert "another master" in done.reason.what


async def test_no_slot_changes_and_nothing_is_swept_amid_it(bench: MakeBench) -> None:
    one = await bench()
    counts = Counts()
    refused: list[str] = []

    async def then(number: int) -> None:
        for change in (
            lambda state, epoch: replace(state, table=state.table.changed(epoch, [Slot(3, 2)])),
            lambda state, epoch: replace(state, table=topology.move(state.table, epoch, [3], 2)),
            lambda state, epoch: replace(state, sweeping={"s1:6379": "sweep"}),
        ):
            if number == 2:
                with pytest.raises(RulesChanging) as error:
                    await one.ledger.change(change)
                refused.append(str(error.value))

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    assert (await over(change)).stage is Stage.DONE
    assert len(refused) == 3


async def test_it_waits_for_slots_on_their_way_and_for_sweeps(bench: MakeBench) -> None:
    one = await bench()
    change = changes(one, Counts())
    await one.ledger.change(lambda state, epoch: replace(state, sweeping={"s1:6379": "sweep"}))
    with pytest.raises(RulesWait, match="are still being removed"):
        change.begin(RULES, dry=False)
    await one.ledger.change(lambda state, epoch: replace(state, sweeping={}, leftovers={2: {3: 1}}))
    with pytest.raises(RulesWait, match="are still being removed"):
        change.begin(RULES, dry=False)
    await one.ledger.change(lambda state, epoch: replace(state, leftovers={}))
    await send(one, [3])
    with pytest.raises(RulesWait, match=r"on their way \(3\)"):
        change.begin(RULES, dry=False)


async def test_offline_slots_may_have_keys_anywhere(bench: MakeBench) -> None:
    one = await bench(filled=False)
    change = changes(one, Counts())
    # A new product has no keys.
    change.begin(RULES, dry=False)
    assert (await over(change)).stage is Stage.DONE
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["s1:6379"]))
    await one.edit(lambda table, epoch: topology.assign(table, epoch, range(15), 1))
    with pytest.raises(RulesWait, match="slots are offline"):
        change.begin((), dry=False)


async def test_a_proxy_that_does_not_know_of_changes_refuses_it(bench: MakeBench) -> None:
    one = await bench()
    proxy = FakeProxy(one, 1)
    proxy.changes_rules = False
    await proxy.register()
    change = changes(one, Counts())
    with pytest.raises(RulesWait, match="its version does not know"):
        change.begin(RULES, dry=False)


async def test_such_a_proxy_does_not_register_amid_it(bench: MakeBench) -> None:
    one = await bench()
    counts = Counts()

    async def then(number: int) -> None:
        proxy = FakeProxy(one, 1)
        proxy.changes_rules = False
        if number == 2:
            with pytest.raises(Refused, match="its version does not know"):
                await proxy.register()

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    assert (await over(change)).stage is Stage.DONE


async def test_a_server_that_is_silent_refuses_it(bench: MakeBench) -> None:
    one = await bench()
    counts = Counts()

    async def then(number: int) -> None:
        if number == 2:
            raise ServerUnavailable("s1:6379 is away")

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    done = await over(change)
    assert (done.stage, one.ledger.table.coming) == (Stage.FAILED, None)


async def test_a_change_is_cancelled(bench: MakeBench) -> None:
    one = await bench()
    counts, reached = Counts(), asyncio.Event()

    async def then(number: int) -> None:
        if number == 2:
            reached.set()
            await asyncio.Event().wait()

    counts.then = then
    change = changes(one, counts)
    change.begin(RULES, dry=False)
    await reached.wait()
    assert one.ledger.table.coming == RULES
    await change.cancel()
    assert change.last is not None
    assert (change.last.stage, one.ledger.table.coming, one.ledger.table.rules) == (Stage.CANCELLED, None, ())


async def test_a_change_that_is_being_taken_back_is_not_left_half_way(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    counts, away, tried = Counts(0, 1), asyncio.Event(), asyncio.Event()
    write = one.ledger.change

    async def change(*arguments: Any) -> Any:
        if away.is_set():
            tried.set()
            raise StoreError("the store is away")
        return await write(*arguments)

    async def then(number: int) -> None:
        if number == 2:
            away.set()

    monkeypatch.setattr(one.ledger, "change", change)
    counts.then = then
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    await tried.wait()
    cancelling = asyncio.gather(of.cancel(), of.cancel())
    await asyncio.sleep(0.01)
    away.clear()
    await cancelling
    assert (await over(of)).stage is Stage.FAILED
    assert (one.ledger.table.coming, one.ledger.table.rules) == (None, ())


async def test_a_change_that_the_store_has_although_it_failed_is_taken_back(bench: MakeBench) -> None:
    one = await bench()
    counts = Counts()

    async def then(number: int) -> None:
        one.store.fail_after = 1

    counts.then = then
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    done = await over(of)
    assert done.stage is Stage.FAILED
    await one.ledger.confirm()
    assert (one.ledger.table.coming, one.ledger.table.rules) == (None, ())


async def test_a_change_that_is_cancelled_while_it_is_being_stored_is_taken_back(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    of = changes(one, Counts())
    write, writing, cancelled = MemoryBook.write, asyncio.Event(), asyncio.Event()

    async def slowly(book: MemoryBook, *arguments: Any) -> None:
        writing.set()
        await cancelled.wait()
        await write(book, *arguments)

    monkeypatch.setattr(MemoryBook, "write", slowly)
    of.begin(RULES, dry=False)
    await writing.wait()
    cancelling = asyncio.create_task(of.cancel())
    for _ in range(20):
        await asyncio.sleep(0)
    cancelled.set()
    await cancelling
    await one.ledger.change(lambda state, epoch: state)  # by now nothing is being stored
    assert of.last is not None
    assert (of.last.stage, one.ledger.table.coming, one.ledger.table.rules) == (Stage.CANCELLED, None, ())


class LeavingStore(MemoryStore):
    """A store that can be away."""

    away = False

    def check(self) -> None:
        if self.away:
            raise StoreError("the store is away")


async def last_write_fails(write: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, LeavingStore, RuleChanges]:
    """A change whose last write has failed; ``write`` says whether the store has it. The store is away by now."""
    store = LeavingStore()
    one = await Bench(store).start()
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["s1:6379"]))
    await one.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
    counts, failed, real = Counts(), asyncio.Event(), MemoryBook.write

    async def writes(book: MemoryBook, *arguments: Any) -> None:
        counted = len(counts.placings) == 2
        try:
            await real(book, *arguments)
        except StoreError:
            if counted:
                store.away = True
                failed.set()
            raise

    async def then(number: int) -> None:
        if number == 2:
            setattr(store, write, 1)

    monkeypatch.setattr(MemoryBook, "write", writes)
    counts.then = then
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    await failed.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    return one, store, of


@pytest.mark.parametrize("write", ["fail_before", "fail_after"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_change_ends_once_it_is_known_which_rules_the_store_has(
    write: str, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, store, of = await last_write_fails(write, monkeypatch)
    assert of.last is not None
    assert (of.last.stage, of.last.reason) == (Stage.CHECKING, None)
    cancelling = asyncio.create_task(of.cancel()) if cancelled else None
    await asyncio.sleep(0.01)
    assert of.last.stage is Stage.CHECKING
    store.away = False
    done = await over(of)
    if cancelling is not None:
        await cancelling
    table = one.ledger.table
    if write == "fail_after":
        assert (done.stage, done.reason, table.rules, table.coming) == (Stage.DONE, None, RULES, None)
        assert any(event.what == What.RULES_CHANGED for event in one.ledger.state.events)
        return
    assert (done.stage, table.rules, table.coming) == (Stage.FAILED, (), None)
    assert done.reason is not None
    assert "the disk is full" in done.reason.what


async def test_a_topom_that_ends_does_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one that leads finds out which rules hold."""
    _, _, of = await last_write_fails("fail_before", monkeypatch)
    running = asyncio.create_task(of.run())
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    assert not of.under_way


async def test_a_topom_that_ends_amid_a_count_tries_once_to_take_the_change_back(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    counts, reached, tried = Counts(), asyncio.Event(), 0

    async def change(*arguments: Any) -> Any:
        nonlocal tried
        tried += 1
        raise StoreError("the store is away")

    async def then(number: int) -> None:
        if number == 2:
            monkeypatch.setattr(one.ledger, "change", change)
            reached.set()
            await asyncio.Event().wait()

    counts.then = then
    of = changes(one, counts)
    running = asyncio.create_task(of.run())
    of.begin(RULES, dry=False)
    await reached.wait()
    running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    assert (tried, of.under_way) == (1, False)


async def test_a_change_that_is_cancelled_too_late_is_done(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await bench()
    counts, of = Counts(), None
    write, writing, cancelled = MemoryBook.write, asyncio.Event(), asyncio.Event()

    async def slowly(book: MemoryBook, *arguments: Any) -> None:
        if len(counts.placings) == 2 and not writing.is_set():
            writing.set()
            await cancelled.wait()
        await write(book, *arguments)

    monkeypatch.setattr(MemoryBook, "write", slowly)
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    await writing.wait()
    cancelling = asyncio.create_task(of.cancel())
    for _ in range(20):
        await asyncio.sleep(0)
    cancelled.set()
    await cancelling
    assert of.last is not None
    table = one.ledger.table
    assert (of.last.stage, of.last.reason, table.rules, table.coming) == (Stage.DONE, None, RULES, None)


async def test_who_cancels_a_change_may_be_cancelled(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await bench()
    counts, reached, ends = Counts(), asyncio.Event(), asyncio.Event()

    async def then(number: int) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ends.wait()

    counts.then = then
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    await reached.wait()
    cancelling = asyncio.create_task(of.cancel())
    await asyncio.sleep(0)
    cancelling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelling
    assert of.under_way
    ends.set()
    assert (await over(of)).stage is Stage.CANCELLED


async def test_a_count_ends_though_the_store_is_away(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to take back."""
    one = await bench()
    counts, reached = Counts(), asyncio.Event()

    async def change(*arguments: Any) -> Any:
        raise StoreError("the store is away")

    async def then(number: int) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(one.ledger, "change", change)
    counts.then = then
    of = changes(one, counts)
    of.begin(RULES, dry=False)
    await reached.wait()
    cancelling = asyncio.create_task(of.cancel())
    assert (await over(of)).stage is Stage.CANCELLED
    await cancelling


async def test_the_next_topom_takes_it_back() -> None:
    one = await Bench(store := MemoryStore()).start()
    await one.ledger.change(
        lambda state, epoch: replace(state, table=state.table.ruled(epoch, state.table.rules, RULES))
    )
    stored = records.decode(await store.book(STATE).read())
    assert stored is not None
    assert stored.table.coming == RULES
    two = Ledger(store, "another")
    await two.start(one.product)
    assert (two.table.coming, two.table.rules) == (None, ())
    assert two.table.epoch > stored.table.epoch


def test_rules_over_other_states_say_nothing() -> None:
    """The rule of the ledger is one of those that run."""
    assert rules.no_slot_changes_while_its_rules_do in rules.RULES
