"""In cluster mode a client is told of places that it can connect to: those with TLS, or those without."""

from pathlib import Path

import redis.asyncio
from redis.exceptions import ClusterDownError

from proxy.clusterview import Node
from slots.messages.channel import Proxies
from tests.certificates import Authority
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.places import tls_client, tls_settings
from tests.integration.worker.replicated import eventually

OWN = Node(2, "10.0.0.2", 6380, 6390)
NODES = [Node(1, "10.0.0.1", 6380, 0), OWN, Node(3, "fd00::3", 6380, 6390)]


async def places(client: redis.asyncio.Redis) -> list[tuple[str, int]]:
    """Hosts and ports of CLUSTER SLOTS, which redis-py would make something else of."""
    client.response_callbacks.clear()
    async with client:
        found = await client.execute_command("CLUSTER SLOTS")
        return [(entry[2][0].decode(), entry[2][1]) for entry in found]


async def is_told(client: redis.asyncio.Redis) -> bool:
    """Whether the worker knows of the others."""
    try:
        return bool(await client.execute_command("CLUSTER", "MYID"))
    except ClusterDownError:
        return False


async def test_by_the_way_that_the_client_came(start_worker: StartWorker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    unix = str(tmp_path / "proxy.sock")
    worker = await start_worker(
        servers=1, cluster_mode=True, unix_socket=unix, **tls_settings(authority.issue("proxy"))
    )
    async with worker.client() as client:
        assert not await is_told(client)
        assert await client.execute_command("CLUSTER", "KEYSLOT", "x") == 16287  # needs no others
    worker.channel.send(Proxies(own=OWN.listed, nodes=[node.listed for node in NODES]))
    plain = [("10.0.0.1", 6380), ("10.0.0.2", 6380), ("fd00::3", 6380)]
    async with worker.client() as client:
        await eventually(lambda: is_told(client), "the worker to hear of the others")
    assert await places(worker.client()) == plain
    assert await places(redis.asyncio.Redis(unix_socket_path=unix)) == plain
    assert await places(tls_client(worker, authority)) == [("10.0.0.2", 6390), ("fd00::3", 6390)]
