"""A whole cluster without trust: TLS on every link to and from Redis clients and servers, users everywhere."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions

from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer
from slots.reserved import RESERVED_KEYS
from tests.certificates import Authority
from tests.integration.cluster.harness import Cluster, Counting, eventually, log_of, plain_client

HOST = "127.0.0.1"
USERS = [
    {"name": "app", "password": "app's"},
    {"name": "reports", "password": "reports'", "read_only": True, "databases": [0]},
]


class TlsCluster(Cluster):
    """Its servers are known by their TLS ports, and have a plain one only for the tests."""

    async def add_server(self, group_id: int) -> RedisServer:
        port = free_ports(1)[0]
        arguments = self._redis_arguments
        self._redis_arguments = (*arguments, "--tls-port", str(port))
        try:
            server = await super().add_server(group_id)
        finally:
            self._redis_arguments = arguments
        self.groups[group_id][-1] = f"{HOST}:{port}"
        return server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def cluster(authority: Authority) -> AsyncIterator[TlsCluster]:
    issued = {name: authority.issue(name) for name in ("server", "inner", "proxy")}
    inner = {
        "redis_user": "slotferry",
        "redis_password": "inner",
        "redis_tls": True,
        "redis_tls_ca": authority.file,
        "redis_tls_certificate": issued["inner"].certificate,
        "redis_tls_key": issued["inner"].key,
    }
    async with AsyncExitStack() as stack:
        made = TlsCluster(
            groups=2,
            workers=2,
            slots_on=[1],
            redis_arguments=[
                *("--tls-cert-file", issued["server"].certificate, "--tls-key-file", issued["server"].key),
                *("--tls-ca-cert-file", authority.file, "--requirepass", "nobody's"),
                *("--user", "slotferry", "on", ">inner", "~*", "&*", "+@all"),
            ],
            topom_settings={**inner, "migration_parallel_slots": 64, "migration_keys_per_second": 1000},
            proxy_settings={
                **inner,
                "tls_listen": f"{HOST}:{free_ports(1)[0]}",
                "tls_certificate": issued["proxy"].certificate,
                "tls_key": issued["proxy"].key,
                "users": json.dumps(USERS),
            },
        )
        await stack.enter_async_context(made)
        yield await stack.enter_async_context(made.visit())


def as_user(authority: Authority, user: dict[str, Any]) -> dict[str, Any]:
    return {
        "ssl": True,
        "ssl_ca_certs": authority.file,
        "username": user["name"],
        "password": user["password"],
    }


@pytest.mark.long
async def test_slots_move_and_a_worker_dies_while_users_work_over_tls(
    cluster: TlsCluster, authority: Authority
) -> None:
    address = str(cluster._proxy_settings["tls_listen"])
    app, reports = (as_user(authority, user) for user in USERS)
    async with plain_client(address, **app) as client:
        for start in range(0, 4000, 500):
            await client.mset({f"ballast:{number}": number for number in range(start, start + 500)})
    async with Counting(address, **app) as counting:
        # The servers speak no TLS to each other, and need not.
        await cluster.api.move_slots("0-511", 2)
        await cluster.moving(50)
        # What the dead worker has left at the servers is ended there, by the proxy, as that user and over TLS.
        os.kill(cluster.worker_pids(0)[0], signal.SIGKILL)

        async def ended() -> list[str]:
            return [
                str(entry["server"])
                for entry in log_of(cluster.proxies[0])
                if entry["event"] == "leftover_connections_ended"
            ]

        await eventually(ended, lambda servers: set(cluster.groups[1]) <= set(servers), "the dead worker's servers")
        await cluster.at_rest({1: 512, 2: 512})
        await counting.progress()
        await counting.stop()
        await counting.check()
    async with plain_client(address, **reports) as client:
        values = await client.mget([f"ballast:{number}" for number in range(4000)])
        assert values == [str(number).encode() for number in range(4000)]
        with pytest.raises(redis.exceptions.NoPermissionError):
            await client.set("ballast:1", "x")
    sizes = []
    for group in (1, 2):
        plain = f"{HOST}:{cluster.servers[group][0].port}"
        async with plain_client(plain, password="nobody's") as direct:
            sizes.append(await direct.dbsize() - await direct.exists(*RESERVED_KEYS))
    assert sum(sizes) == 4000 + len(counting.keys)
    assert min(sizes) > 1000
    # Nobody gets in without a name.
    async with plain_client(cluster.proxy_addresses[0]) as stranger:
        with pytest.raises(redis.exceptions.AuthenticationError):
            await stranger.get("ballast:1")
