"""Lost proxies: if their processes have gone, they are fenced and forgotten; if they may serve clients, they stay."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import pytest

from slots.messages.control import Refused
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom import periodic
from topom.cluster.topology import all_servers
from topom.proxies import forgetting as gone
from topom.proxies.forgetting import Gone
from topom.reasons import Kind, Reason

Make = Callable[..., Awaitable[Bench]]


class FakeConnections:
    """Servers that have connections of these proxies; those that are down do not answer."""

    def __init__(self) -> None:
        self.connected_at: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.looks = 0
        self.marks: dict[str, str] = {}

    async def used_by(self, addresses: Iterable[str]) -> Mapping[str, str]:
        return {address: self.marks.get(address, "") for address in addresses if address not in self.down}

    async def connected(self, addresses: Iterable[str]) -> Mapping[str, frozenset[str]]:
        self.looks += 1
        return {
            address: frozenset(self.connected_at.get(address, set()))
            for address in addresses
            if address not in self.down
        }


def gone_of(one: Bench, servers: FakeConnections, seconds: float = 5.0, protected: bool = False) -> Gone:
    held = Reason.now(Kind.PROTECTED, "many are lost") if protected else None
    return Gone(one.ledger, one.members, one.barrier, servers, seconds, lambda: held)


async def test_only_a_proxy_that_no_server_has_a_connection_of_is_forgotten(bench: Make) -> None:
    one = await bench()
    dead = await FakeProxy(one, 1).register()
    serving = await FakeProxy(one, 2).register()
    assert dead.member is not None
    assert serving.member is not None
    lost = [dead.member, serving.member]
    dead.member.lost = serving.member.lost = True
    servers = FakeConnections()
    servers.connected_at["s3:6379"] = {serving.instance}
    servers.down = {"s2:6379"}
    assert await gone_of(one, servers).forget(lost) == [], "a server that does not answer may have some"
    servers.down = set()
    assert await gone_of(one, servers, protected=True).forget(lost) == []
    assert one.ledger.state.proxies.keys() == {1, 2}
    assert await gone_of(one, servers).forget(lost) == [1]
    assert one.ledger.state.proxies.keys() == {2}
    # one-owner: it is fenced wherever it may have written.
    assert one.fencer.fenced == {dead.instance: set(all_servers(one.ledger.table))}
    assert dead.last_messages == [Refused(reason="fenced", message=gone.MESSAGE)]


async def test_a_proxy_that_was_heard_of_meanwhile_stays(bench: Make) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    assert await gone_of(one, FakeConnections()).forget([proxy.member]) == []
    assert one.ledger.state.proxies.keys() == {1}
    assert one.fencer.fenced == {}


async def test_it_goes_on_by_itself_and_not_before_its_time(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(periodic, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(Gone, "first_seconds", 0.0)
    monkeypatch.setattr(gone, "FIRST_WAIT_SECONDS", 0.02)
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    online = await FakeProxy(one, 2).register()
    assert proxy.member is not None
    assert online.member is not None
    proxy.member.lost = True
    servers = FakeConnections()
    servers.connected_at["s1:6379"] = {proxy.instance}
    late = asyncio.create_task(gone_of(one, servers, 3600.0).run())
    await gone_of(one, servers, 0.0).run()  # 0 means never
    running = asyncio.create_task(gone_of(one, servers, 0.01).run())
    try:
        await eventually(lambda: servers.looks > 1)
        assert one.ledger.state.proxies.keys() == {1, 2}
        servers.connected_at.clear()
        await eventually(lambda: one.ledger.state.proxies.keys() == {2})
    finally:
        for task in (late, running):
            task.cancel()
        await asyncio.gather(late, running, return_exceptions=True)


async def test_bounded_few_of_many_servers_are_asked_for_their_connections(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone, "MOST_LOOKED_AT", 2)
    one = await bench()
    dead = await FakeProxy(one, 1).register()
    assert dead.member is not None
    dead.member.lost = True
    asked: list[str] = []

    class Counted(FakeConnections):
        async def connected(self, addresses: Iterable[str]) -> Mapping[str, frozenset[str]]:
            asked.extend(addresses)
            return await super().connected(asked)

    assert await gone_of(one, Counted()).forget([dead.member]) == [1]
    masters = {group.master for group in one.ledger.table.groups.values()}
    assert len(asked) == 2 < len(all_servers(one.ledger.table))
    assert masters.issuperset(asked)
    assert one.fencer.fenced == {dead.instance: set(all_servers(one.ledger.table))}
