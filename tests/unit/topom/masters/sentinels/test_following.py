"""Which master comes into the slot table, by what Sentinels and servers say."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import pytest

from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.masters.sentinels.following import Following, Verdict, View
from topom.servers.readings import Reading, Replication
from topom.servers.redis_servers import RedisServers

MASTER, REPLICA, STRANGER = "s1:6379", "r:1", "stranger:1"
IS_MASTER = Reading(Replication(True, "a" * 40, 100, former="b" * 40), "run", 0)
FOLLOWS = Reading(Replication(False, "a" * 40, 100, ("master", 1)), "run", 5)
EMPTY = Reading(Replication(True, "c" * 40, 0), "run", 0)
RESTARTED = Reading(Replication(True, "c" * 40, 0), "run", 7)


@pytest.fixture
async def decide(
    bench: Callable[..., Awaitable[Bench]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[tuple[Verdict, str | None, str]]]:
    """Decides for group 1; gives the verdict, the master in the slot table then, and the problem for the operator."""
    one = await bench()
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, REPLICA))

    async def look(
        named: list[str | None], servers: Mapping[str, Reading], known: int = 3
    ) -> tuple[Verdict, str | None, str]:
        async def read(_: object, address: str) -> Reading | None:
            return servers.get(address)

        async def use(_: object, addresses: Iterable[str]) -> Mapping[str, str]:
            marked.append((one.ledger.table.master_of(1), *addresses))
            return {}

        marked: list[tuple[str | None, ...]] = []
        monkeypatch.setattr(RedisServers, "read", read)
        monkeypatch.setattr(RedisServers, "use", use)
        view = View(1, MASTER, (MASTER, REPLICA), {f"sentinel{place}": name for place, name in enumerate(named)})
        deciding = Following(one.ledger, RedisServers.__new__(RedisServers))
        verdict = await deciding.look(view, known)
        # newest-store: the new master has a mark that names the state with it.
        assert marked == ([(REPLICA, REPLICA)] if one.ledger.table.master_of(1) == REPLICA else [])
        return verdict, one.ledger.table.master_of(1), str(deciding.reason(1) or "")

    return look


Decide = Callable[..., Awaitable[tuple[Verdict, str | None, str]]]


@pytest.mark.parametrize("reading", [IS_MASTER, RESTARTED])
@pytest.mark.parametrize("third", [MASTER, REPLICA, None])
async def test_a_majority_is_followed(decide: Decide, reading: Reading, third: str | None) -> None:
    assert await decide([REPLICA, REPLICA, third], {REPLICA: reading}) == (Verdict.AGREED, REPLICA, "")


@pytest.mark.parametrize(
    ("named", "verdict"),
    [
        ([MASTER, MASTER, MASTER], Verdict.AGREED),
        ([MASTER, MASTER, None], Verdict.AGREED),
        ([MASTER, MASTER, REPLICA], Verdict.UNDECIDED),
        # The third Sentinel does not answer. One of the two that do is not a majority.
        ([MASTER, REPLICA], Verdict.UNDECIDED),
        ([REPLICA], Verdict.UNDECIDED),
        ([], Verdict.AGREED),
    ],
)
async def test_less_than_a_majority_changes_nothing(decide: Decide, named: list[str | None], verdict: Verdict) -> None:
    assert await decide(named, {REPLICA: IS_MASTER}) == (verdict, MASTER, "")


@pytest.mark.parametrize(
    ("address", "servers", "verdict", "says"),
    [
        (REPLICA, {}, Verdict.UNDECIDED, "does not answer"),
        (REPLICA, {REPLICA: FOLLOWS}, Verdict.UNDECIDED, "is no master"),
        (REPLICA, {REPLICA: EMPTY}, Verdict.UNDECIDED, "it is empty"),
        (REPLICA, {REPLICA: FOLLOWS, MASTER: IS_MASTER}, Verdict.OUTDATED, ""),
        # It may only hang.
        (REPLICA, {MASTER: IS_MASTER}, Verdict.UNDECIDED, "does not answer"),
        (STRANGER, {STRANGER: IS_MASTER, MASTER: IS_MASTER}, Verdict.UNDECIDED, "slotferry server add 1 stranger:1"),
        (STRANGER, {}, Verdict.UNDECIDED, "slotferry server add 1 stranger:1"),
        (STRANGER, {STRANGER: FOLLOWS, MASTER: IS_MASTER}, Verdict.OUTDATED, ""),
    ],
)
async def test_a_majority_alone_is_not_believed(
    decide: Decide, address: str, servers: Mapping[str, Reading], verdict: Verdict, says: str
) -> None:
    found, master, said = await decide([address] * 3, servers)
    assert (found, master) == (verdict, MASTER)
    assert says in said
    assert bool(says) == bool(said)


async def test_epochs_a_switch_counts_only_over_the_master_it_was_decided_for(
    bench: Callable[..., Awaitable[Bench]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    for address in (REPLICA, "other:1"):
        await one.edit(lambda table, epoch, address=address: topology.add_server(table, epoch, 1, address))

    async def read(_: object, address: str) -> Reading:
        # Meanwhile somebody promotes another one.
        await one.edit(lambda table, epoch: topology.promote(table, epoch, 1, "other:1"))
        return IS_MASTER

    monkeypatch.setattr(RedisServers, "read", read)
    view = View(1, MASTER, (MASTER, REPLICA, "other:1"), dict.fromkeys("abc", REPLICA))
    await Following(one.ledger, RedisServers.__new__(RedisServers)).look(view, 3)
    assert one.ledger.table.master_of(1) == "other:1"
