"""Which servers the live picture asks when, and what it shows of groups whose servers have not been asked."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api.live import servers as module
from topom.api.live.servers import Servers
from topom.servers.readings import Reading, Replication
from topom.term.service import Topom
from topom.term.settings import TopomSettings

SAYS = Reading(Replication(True, "s" * 40, 7), "r" * 40, 5, used_memory=1234)


class Asked:
    """Which servers were asked, in order; none of them answers unless it is in ``answers``."""

    def __init__(self) -> None:
        self.servers: list[str] = []
        self.answers: dict[str, Reading] = {}

    async def read(self, address: str) -> Reading | None:
        self.servers.append(address)
        return self.answers.get(address)

    def taken(self) -> list[str]:
        servers, self.servers = self.servers, []
        return servers


@pytest.fixture
async def topom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Topom]:
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(module, "MOST_SERVERS", 2)
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        for group in range(1, 6):
            await one.post("/groups", json={"id": group, "servers": [address(group)], "offline_ok": True})
        yield one


@pytest.fixture
def asked(topom: Topom, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> Asked:
    one = Asked()
    monkeypatch.setattr(topom.servers, "read", one.read)
    return one


@pytest.fixture
async def servers(topom: Topom) -> AsyncIterator[Servers]:
    one = Servers(topom)
    yield one
    await one.close()


def address(group: int) -> str:
    return f"127.0.0.1:{group}"


async def turn(servers: Servers, asked: Asked) -> list[int]:
    """The groups that are asked in the next turn."""
    await servers.first()
    return [int(address.partition(":")[2]) for address in asked.taken()]


async def test_groups_are_asked_in_turn(servers: Servers, asked: Asked) -> None:
    """**bounded**"""
    assert [await turn(servers, asked) for _ in range(6)] == [[1, 2], [3, 4], [5, 1], [2, 3], [4, 5], [1, 2]]


async def test_a_group_that_has_changed_is_asked_first(
    servers: Servers, asked: Asked, client: httpx.AsyncClient
) -> None:
    for _ in range(3):
        await turn(servers, asked)
    await client.post("/groups/5/servers", json={"address": "127.0.0.1:55", "offline_ok": True})
    assert await turn(servers, asked) == [5, 55]
    assert await turn(servers, asked) == [2, 3]


async def test_groups_that_change_all_the_time_leave_none_out(
    servers: Servers, asked: Asked, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await turn(servers, asked)
    conditions = iter(range(10**6))
    monkeypatch.setattr(topom.health, "condition_of", lambda server: next(conditions))
    counted: Counter[int] = Counter()
    for _ in range(10):
        counted.update(await turn(servers, asked))
    assert set(counted) == {1, 2, 3, 4, 5}
    assert min(counted.values()) >= 3


async def test_what_is_not_asked_yet_is_shown_all_the_same(servers: Servers, asked: Asked, topom: Topom) -> None:
    asked.answers = {address(group): SAYS for group in range(1, 6)}
    await servers.first()
    assert [group.id for group in servers.described] == [1, 2, 3, 4, 5]
    assert servers.figures["1"] == [[None, None, None]]
    servers.look()
    assert [servers.figures[str(group)] for group in (1, 2, 3)] == [[[5, 1230, None]]] * 2 + [[[None, None, None]]]
    # Nothing answers there, as topom's other questions show.
    assert [group.servers[0].up for group in servers.described] == [True, True, False, False, False]


async def test_a_server_that_is_not_asked_yet_is_up_if_topom_hears_it(
    servers: Servers, asked: Asked, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topom.health, "hears", lambda server: server == address(4))
    servers.look()
    assert [group.servers[0].up for group in servers.described] == [False, False, False, True, False]


async def test_a_group_that_is_gone_is_shown_no_more(servers: Servers, asked: Asked, client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await turn(servers, asked)
    await client.delete("/groups/4")
    for _ in range(3):
        assert 4 not in await turn(servers, asked)
    servers.look()
    assert list(servers.groups) == list(servers.figures) == ["1", "2", "3", "5"]
    assert [group.id for group in servers.described] == [1, 2, 3, 5]


async def test_what_a_server_said_goes_with_it(servers: Servers, client: httpx.AsyncClient, asked: Asked) -> None:
    """given that its group stays."""
    replica = "127.0.0.1:9"
    await client.post("/groups/1/servers", json={"address": replica, "offline_ok": True})
    asked.answers[replica] = SAYS
    while servers._said.get(replica) is None:
        await turn(servers, asked)
    await client.delete(f"/groups/1/servers/{replica}")
    await turn(servers, asked)
    servers.look()
    assert replica not in servers._said


async def test_connections_to_servers_that_are_gone_are_closed(
    servers: Servers, topom: Topom, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[set[str]] = []

    async def keep_only(addresses: set[str]) -> None:
        kept.append(set(addresses))

    monkeypatch.setattr(topom.servers, "keep_only", keep_only)
    await servers.first()
    assert kept == [{address(group) for group in range(1, 6)}]
