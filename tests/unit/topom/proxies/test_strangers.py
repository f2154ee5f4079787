"""Proxies that topom does not know, at the servers that it would move slots from."""

from collections.abc import Awaitable, Callable

import pytest

from migrator.errors import UsedByOthers
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.unit.topom.proxies.test_forgetting import FakeConnections
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.migration.mover import RedisMover
from topom.proxies.strangers import Strangers
from topom.reasons import Kind

Make = Callable[..., Awaitable[Bench]]
STRANGER = "f" * 32


async def test_members_and_fenced_proxies_are_no_strangers(bench: Make) -> None:
    one = await bench()
    serving, fenced = await FakeProxy(one, 1).register(), await FakeProxy(one, 2).register()
    assert fenced.member is not None
    await one.members.fence([fenced.member.record.id], "fenced", "for a test", only_lost=False)
    servers = FakeConnections()
    servers.connected_at["a:1"] = {serving.instance, fenced.instance}
    assert fenced.instance in one.ledger.state.fenced
    assert await Strangers(one.ledger, servers).reason("a:1") is None
    servers.connected_at["a:1"].add(STRANGER)
    reason = await Strangers(one.ledger, servers).reason("a:1")
    assert reason is not None
    assert reason.kind is Kind.PROXY
    assert reason.what.startswith(f"a:1 is used by 1 proxy that topom does not know ({STRANGER})")
    assert "CLIENT LIST" in reason.to_do
    assert await Strangers(one.ledger, servers).reason("b:1") is None


async def test_many_are_counted_and_three_are_named(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.connected_at["a:1"] = {f"{number:032x}" for number in range(40)}
    reason = await Strangers(one.ledger, servers).reason("a:1")
    assert reason is not None
    assert "40 proxies" in reason.what
    assert reason.what.count("0" * 30) == 3


async def test_a_server_that_does_not_answer_is_for_others_to_tell(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.connected_at["a:1"], servers.down = {STRANGER}, {"a:1"}
    assert await Strangers(one.ledger, servers).reason("a:1") is None


async def test_one_owner_nothing_is_begun_at_a_server_that_strangers_use(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.connected_at["a:1"] = {STRANGER}
    mover = RedisMover(
        16,
        lambda: KeySlots("crc32", 16),
        ServerAccess(),
        "1" * 32,
        strangers=Strangers(one.ledger, servers).reason,
    )
    for source, target in (("a:1", "b:1"), ("b:1", "a:1"), (None, "a:1")):
        with pytest.raises(UsedByOthers, match="topom does not know"):
            await mover.check(source, target, 1.0)
    with pytest.raises(UsedByOthers, match="topom does not know"):
        await mover.sweep("a:1", "", object())  # type: ignore[arg-type]  # it is not asked
