"""Changes of masters when commands come late, terms end, servers are gone for good, and proxies are old."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace

import pytest

from slots.access import ServerAccess
from slots.group import Group
from tests.unit.topom.masters.test_failover import FakeHealth, watching
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, Case, case, hurry
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster import topology
from topom.cluster.state import Promotion
from topom.errors import LeaderSilent, NotReady
from topom.masters.endings import PromotionFailed
from topom.masters.failover import Masters
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings, Judgement
from topom.servers.health import Health
from topom.servers.lastcopy import ServerFailed

__all__ = ["case", "hurry"]


async def test_a_master_that_a_late_command_made_a_replica_is_made_a_master_again(case: Case) -> None:
    async with case.topom():
        case.servers.all[SECOND].down = True
        await case.promotions.promote(1, FIRST)
        await eventually(lambda: case.servers.all[MASTER].follows == FIRST)
        case.servers.all[FIRST].stuck = True  # nothing was copied yet
        case.servers.all[FIRST].follows = MASTER
        await eventually(lambda: case.servers.all[FIRST].follows is None)
        case.servers.all[FIRST].stuck = False
        case.servers.all[SECOND].down = False
        await case.settled()


async def test_the_new_master_remembers_that_it_is_one_while_others_are_away(case: Case) -> None:
    """last-copy: if it were restarted with its old configuration file, it would follow the former master."""
    async with case.topom() as bench:
        case.servers.all[SECOND].down = True
        await case.promotions.promote(1, FIRST)
        assert case.servers.kept == [FIRST]
        assert 1 in bench.ledger.state.promotions
        case.servers.all[SECOND].down = False
        await case.settled()


@asynccontextmanager
async def told_late(case: Case, *servers: str) -> AsyncIterator[None]:
    """These servers are about to be told to follow the master, and wait for that; in the end they were told, or not."""
    bench = case.bench
    async with bench.barrier.locking():
        unfinished = {1: Promotion(MASTER, FIRST)}
        await bench.ledger.change(lambda state, epoch: replace(state, promotions=unfinished))
        await eventually(lambda: case.filling._begun.keys() == {*servers})
        yield
    await eventually(lambda: not case.filling._begun)


async def test_nobody_is_told_to_follow_a_master_of_before(case: Case) -> None:
    async with case.topom() as bench:
        case.servers.all[FIRST].follows = None
        case.servers.all[SECOND].follows = FIRST
        async with told_late(case, FIRST, SECOND):
            await bench.edit(lambda table, epoch: topology.promote(table, epoch, 1, FIRST))
        assert case.servers.all[FIRST].follows is None
        assert case.servers.all[SECOND].follows == FIRST


async def test_nobody_is_told_to_follow_while_it_is_not_decided_who_is_the_master(case: Case) -> None:
    async with case.topom() as bench:
        case.servers.all[FIRST].follows = None
        # Nobody decides meanwhile.
        with case.promotions._locks.held_by_this(1):
            async with told_late(case, FIRST):
                await bench.edit(lambda table, epoch: topology.lock_group(table, epoch, 1))
            assert case.servers.all[FIRST].follows is None


async def test_a_server_that_has_left_its_group_is_not_told_to_follow(case: Case) -> None:
    async with case.topom() as bench:
        case.servers.all[SECOND].follows = FIRST
        async with told_late(case, SECOND):
            await bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, SECOND))
            case.servers.all[SECOND].follows = None
            await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 5, [SECOND]))
        assert case.servers.all[SECOND].follows is None, "it is the master of another group"


async def leave_locked(case: Case) -> None:
    """Have the group wait for its master and the replica that was to be master. Both are gone; the third has all."""

    async def end(step: str) -> None:
        if step == "lock stored":
            case.servers.replicate()
            case.servers.all[MASTER].down = case.servers.all[FIRST].down = True

    await case.bench.until(lambda table: case.acknowledged > 0)
    case.promotions.on_step = end
    with pytest.raises(ServerFailed, match="stays locked"):
        await case.promotions.promote(1, FIRST)
    case.promotions.on_step = None


async def test_a_locked_group_of_which_two_are_gone_is_given_the_third(case: Case) -> None:
    async with case.topom() as bench:
        await leave_locked(case)
        with pytest.raises(NotReady, match="name another"):
            await case.promotions.force(1, FIRST)
        before = bench.ledger.table.epoch
        table = await case.promotions.force(1, SECOND)
        assert table.groups[1].master == SECOND
        assert not table.groups[1].locked
        assert table.epoch > before
        locked = [table.groups[1] for table in case.proxy.seen if table.epoch > before and table.groups[1].locked]
        assert [group.lost for group in locked] == [True]
        promotion = bench.ledger.state.promotions[1]
        known = Promotion(SECOND, MASTER, (FIRST,), case.servers.run_id(SECOND))
        assert promotion == known == Promotion(**{**asdict(promotion), "earlier": [FIRST]})
        # The replica that was to be master had become it, and nobody knew.
        case.servers.all[FIRST].follows = None
        for server in (FIRST, MASTER):
            case.servers.all[server].down = False
        await case.settled()


@pytest.mark.parametrize("server", [MASTER, FIRST])
async def test_a_locked_group_of_which_one_is_back_is_not_forced(case: Case, server: str) -> None:
    async with case.topom() as bench:
        await leave_locked(case)
        case.servers.all[server].down = False
        with pytest.raises(NotReady, match=r"answers|unlocked meanwhile"):
            await case.promotions.force(1, SECOND)
        await bench.until(lambda table: not table.groups[1].locked)
        assert bench.ledger.table.groups[1].master == MASTER


async def test_who_comes_back_while_a_locked_group_is_forced_is_preferred(case: Case) -> None:
    async with case.topom() as bench:
        await leave_locked(case)

        async def come_back(step: str) -> None:
            if step == "lock acknowledged":
                # It had become the master, and nobody knew.
                case.servers.all[FIRST].follows = None
                case.servers.all[FIRST].down = False

        case.promotions.on_step = come_back
        with pytest.raises(PromotionFailed, match=f"stays locked as it was: {FIRST} answers"):
            await case.promotions.force(1, SECOND)
        assert case.servers.all[SECOND].follows == MASTER
        await bench.until(lambda table: not table.groups[1].locked)
        case.servers.all[MASTER].down = False
        assert (await case.settled()).groups[1].master == FIRST


async def test_what_went_on_before_a_group_was_forced_does_not_undo_it(case: Case) -> None:
    """A task that waits for the lock while an operator forces another server does not decide the former change."""
    async with case.topom() as bench:
        await leave_locked(case)
        lock = bench.barrier._lock

        async def come_back(step: str) -> None:
            if step == "promoted":
                # It had become the master, and nobody knew.
                case.servers.all[FIRST].follows = None
                case.servers.all[FIRST].down = case.servers.all[MASTER].down = False

        case.promotions.on_step = come_back
        async with bench.barrier.locking():
            forcing = asyncio.create_task(case.promotions.force(1, SECOND))
            await eventually(lambda: len(lock._waiters or ()) == 2)  # type: ignore[attr-defined]
        assert (await forcing).groups[1].master == SECOND
        assert (await case.settled()).groups[1].master == SECOND


async def test_what_is_found_after_the_deadline_does_not_count(case: Case) -> None:
    async with case.topom() as bench:

        async def dawdle(step: str) -> None:
            if step == "lock acknowledged":
                await asyncio.sleep(0.15)  # of the 0.1 s that a promotion has

        case.promotions.on_step = dawdle
        with pytest.raises(PromotionFailed, match=r"after 0\.1 s"):
            await case.promotions.promote(1, FIRST)
        assert bench.ledger.table.groups[1].master == MASTER
        await case.settled()


@pytest.mark.parametrize("forced", [True, False])
async def test_who_waits_when_the_term_ends_has_a_typed_answer(case: Case, forced: bool) -> None:
    async with case.topom():
        case.servers.all[MASTER].down = forced
        case.hang_at = "lock stored"
        work = case.promotions.force if forced else case.promotions.promote
        waiting = asyncio.create_task(work(1, FIRST))
        await case.hanging.wait()
    with pytest.raises(LeaderSilent, match="not known"):
        await waiting


async def test_a_group_is_looked_at_again_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one group's master is replaced, an operator gives the next group another one."""
    replaced: list[int] = []

    async def replace(masters: Masters, group: Group) -> None:
        replaced.append(group.id)
        if len(replaced) == 1:
            new = Group(2, ("p:1", "o:1"))
            await case.bench.edit(lambda table, epoch: table.changed(epoch, groups=[new]))

    def of(health: FakeHealth, server: str) -> Judgement:
        return Judgement(Condition.FAILED if server in (MASTER, "o:1") else Condition.ALIVE, 3, 3)

    monkeypatch.setattr(FakeHealth, "of", of)
    monkeypatch.setattr(Masters, "_replace", replace)
    case = Case()
    async with watching(case) as (_, masters):
        stale = Group(2, ("o:1", FIRST))
        await eventually(lambda: len(replaced) > 2)
        assert set(replaced) == {1}
        with pytest.raises(NotReady, match="not the master of group 2 any more"):
            await masters._choose(stale)


def test_topom_alone_fails_nothing_before_proxies_have_reported() -> None:
    detector = Detector(DetectorSettings())
    detector.judge_only({"a:1": 1})
    detector.keep_only(["1", OWN])
    detector.report(OWN, {"a:1": 99.0}, 0.0, 1)
    assert detector.judge("a:1", 0.0).condition is Condition.SUSPECTED
    detector.report("1", {"a:1": 99.0}, 0.0, 1)
    assert detector.judge("a:1", 0.0).condition is Condition.FAILED
    detector.keep_only([OWN])
    assert detector.judge("a:1", 0.0).condition is Condition.FAILED, "there is nobody else to ask"


async def test_a_new_leader_expects_the_views_of_the_stored_proxies() -> None:
    bench = await Bench().start()
    # Nobody listens at port 1.
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["127.0.0.1:1"]))
    proxy = await FakeProxy(bench, 1).register()
    assert proxy.member is not None
    health = Health(bench.ledger, ServerAccess(), DetectorSettings(0.02, 0.05, 5.0), 0.5)
    running = asyncio.create_task(health.run())
    try:
        await eventually(lambda: health.of("127.0.0.1:1").silent == 1)
        assert health.of("127.0.0.1:1").condition is Condition.SUSPECTED
        await bench.members.leave(proxy.member)
        await eventually(lambda: health.of("127.0.0.1:1").condition is Condition.FAILED)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bench.stop()


async def test_a_replica_that_was_restarted_as_a_master_by_itself_is_not_taken_for_the_new_one(case: Case) -> None:
    """run-id, last-copy: given it has no configuration file, and came up with nothing while its group was locked."""
    case.hang_at = "replica has all"
    async with case.topom():
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        promoting.cancel()
    case.hang_at = ""
    case.servers.restarts[FIRST] = 1
    case.servers.all[FIRST].follows = None
    case.servers.all[FIRST].data = 0
    async with case.topom() as bench:
        await bench.until(lambda table: not table.groups[1].locked)
        assert bench.ledger.table.groups[1].master == MASTER
        await bench.until(lambda table: case.servers.all[FIRST].follows == MASTER)
        await case.settled()
