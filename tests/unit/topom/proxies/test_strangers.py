"""Proxies that topom does not know, at the servers that it would move slots from."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import pytest

from migrator.errors import MigrationError, ServerUnavailable, UsedByOthers
from migrator.progress import Progress
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from slots.beginning import UNKNOWN
from slots.keyslots import KeySlots
from tests.integration.cluster.harness import plain_client
from tests.unit.topom.proxies.test_forgetting import FakeConnections
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster import lineage
from topom.cluster.lineage import StoreIsOlder
from topom.migration.mover import RedisMover
from topom.proxies.strangers import Strangers
from topom.reasons import Kind, Reason

Make = Callable[..., Awaitable[Bench]]
STRANGER = "f" * 32


class AllForeign:
    """Says that all keys may be deleted."""

    def foreign(self) -> bytes:
        return bytes([1] * 16)

    async def begin(self, keys: int, known: bool) -> bytes:
        return self.foreign()

    def hold(self, removed: int) -> None: ...


async def test_members_and_fenced_proxies_are_no_strangers(bench: Make) -> None:
    one = await bench()
    serving, fenced = await FakeProxy(one, 1).register(), await FakeProxy(one, 2).register()
    assert fenced.member is not None
    await one.members.fence([fenced.member.record.id], "fenced", "for a test", only_lost=False)
    servers = FakeConnections()
    servers.connected_at["a:1"] = {serving.instance, fenced.instance}
    assert fenced.instance in one.ledger.state.fenced
    assert await Strangers(one.ledger, servers, one.members.newest).reason("a:1") is None
    servers.connected_at["a:1"].add(STRANGER)
    reason = await Strangers(one.ledger, servers, one.members.newest).reason("a:1")
    assert reason is not None
    assert reason.kind is Kind.PROXY
    assert reason.what.startswith(f"a:1 is used by 1 proxy that topom does not know ({STRANGER})")
    assert "CLIENT LIST" in reason.to_do
    assert await Strangers(one.ledger, servers, one.members.newest).reason("b:1") is None


async def test_many_are_counted_and_three_are_named(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.connected_at["a:1"] = {f"{number:032x}" for number in range(40)}
    reason = await Strangers(one.ledger, servers, one.members.newest).reason("a:1")
    assert reason is not None
    assert "40 proxies" in reason.what
    assert reason.what.count("0" * 30) == 3


async def test_newest_store_nothing_is_begun_at_a_server_that_does_not_say_whose_mark_it_has(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.down = {"a:1"}
    reason = await Strangers(one.ledger, servers, one.members.newest).reason("a:1")
    assert reason is not None
    assert (reason.kind, reason.what) == (Kind.SERVER, "a:1 does not say which topom has moved slots there last")
    assert reason.to_do == "see that it runs, and answers topom: slotferry status"
    assert await Strangers(one.ledger, servers, one.members.newest).reason("b:1") is None


async def test_one_owner_nothing_is_begun_at_a_server_that_strangers_use(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    servers.connected_at["a:1"] = {STRANGER}
    mover = RedisMover(
        16,
        lambda: KeySlots("crc32", 16),
        ServerAccess(),
        "1" * 32,
        strangers=Strangers(one.ledger, servers, one.members.newest).reason,
    )
    for source, target in (("a:1", "b:1"), ("b:1", "a:1"), (None, "a:1")):
        with pytest.raises(UsedByOthers, match="topom does not know"):
            await mover.check(source, target, 1.0)
        with pytest.raises(UsedByOthers, match="topom does not know"):
            async with mover.watch(source, target):
                pass
    for source, target in (("a:1", "b:1"), ("b:1", "a:1")):
        with pytest.raises(UsedByOthers, match="topom does not know"):
            await mover.move(source, target, [1], Progress(), UNKNOWN, lambda: None)
    with pytest.raises(UsedByOthers, match="topom does not know"):
        await mover.sweep("a:1", "", AllForeign())


async def test_one_owner_strangers_are_looked_for_again_before_a_sweep_deletes(tmp_path: Path) -> None:
    looks: list[str] = []

    async def one_comes(server: str) -> Reason | None:
        looks.append(server)
        return Reason(Kind.PROXY, "topom does not know it") if len(looks) > 1 else None

    server = await start_redis("redis", tmp_path)
    try:
        async with plain_client(server.address) as client:
            await client.set("key", "value")
            mover = RedisMover(16, lambda: KeySlots("crc32", 16), ServerAccess(), "1" * 32, strangers=one_comes)
            with pytest.raises(UsedByOthers, match="topom does not know it"):
                await mover.sweep(server.address, "", AllForeign())
            assert looks == [server.address] * 2
            assert await client.get("key") == b"value"
    finally:
        await server.stop()


async def test_newest_store_a_server_tells_of_a_move_that_was_made_after_the_state(bench: Make) -> None:
    one, servers = await bench(), FakeConnections()
    strangers = Strangers(one.ledger, servers, one.members.newest)
    state = one.ledger.state
    own = state.starts[-1].writer
    for mark in (
        "",
        "odd",
        lineage.signature(state.cluster_id, state.seal_key, own, 10**6),
        lineage.signature("another", state.seal_key, "x" * 32, 10**6),
        lineage.signature(state.cluster_id, "invented", "x" * 32, 10**6),
    ):
        servers.marks["a:1"] = mark
        assert await strangers.reason("a:1") is None
    servers.marks["a:1"] = lineage.signature(state.cluster_id, state.seal_key, "x" * 32, 10)
    with pytest.raises(StoreIsOlder, match="which has changed the owner of slots at a:1, has a table of epoch 10"):
        await strangers.reason("a:1")
    with pytest.raises(StoreIsOlder):
        await one.members.newest.watch()


async def test_newest_store_a_mark_is_left_at_both_ends_before_slots_are_locked_and_whenever_their_keys_begin_to_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[list[str]] = []
    moved: list[int] = []
    full: dict[str, str] = {}

    async def use(servers: Iterable[str]) -> Mapping[str, str]:
        used.append(list(servers))
        return full

    async def migrate(*arguments: object, **options: object) -> None:
        moved.append(len(used))

    monkeypatch.setattr("topom.migration.mover.migrate", migrate)
    mover = RedisMover(16, lambda: KeySlots("crc32", 16), ServerAccess(), "1" * 32, use=use)
    for source, target in ((None, "localhost:1"), ("localhost:1", "localhost:2")):
        with pytest.raises(MigrationError):  # nobody is there
            async with mover.watch(source, target):
                pass
        assert used[-1] == [server for server in (source, target) if server is not None]
    await mover.move("a:1", "b:1", [1], Progress(), UNKNOWN, lambda: None)
    assert used[-1] == ["a:1", "b:1"]
    full["a:1"] = "it is full"
    await mover.move("a:1", "b:1", [1], Progress(), UNKNOWN, lambda: None)
    assert moved == [3, 4]
    full["b:1"] = "no answer in time"
    with pytest.raises(ServerUnavailable, match=r"b:1 does not take the mark .* no answer in time"):
        await mover.move("a:1", "b:1", [1], Progress(), UNKNOWN, lambda: None)
    with pytest.raises(ServerUnavailable, match="b:1 does not take the mark"):
        async with mover.watch("a:1", "b:1"):
            pass
    assert moved == [3, 4]
