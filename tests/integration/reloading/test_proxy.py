"""A running proxy reads its settings anew, and so do its workers, while clients work over it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from tests.integration.reloading.processes import (
    LIMIT_SECONDS,
    NEW,
    OLD,
    OWN,
    File,
    client_of,
    filed_topom,
    hang_up,
)
from tests.integration.reloading.proxies import NEXT, NOW, WORKERS, Proxy, Traffic
from tests.integration.topom_process import address_of, redis_server


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "topom.toml", token=OWN, proxy_lease_seconds=60.0)


@pytest.fixture
async def proxy(tmp_path: Path, file: File) -> AsyncIterator[Proxy]:
    """It serves two groups; the first has all slots."""
    file.write(tokens=[NOW])
    with redis_server(tmp_path / "1") as first, redis_server(tmp_path / "2") as second:
        async with filed_topom(tmp_path / "data", file) as topom, client_of(topom) as client:
            for group_id, server in enumerate((first, second), 1):
                await client.post("/api/v1/groups", json={"id": group_id, "servers": [address_of(server)]})
            await client.post("/api/v1/slots/assign", json={"slots": "0-15", "group_id": 1})
            one = Proxy(tmp_path, topom)
            one.process.start()
            try:
                await one.until(lambda: bool(one.said("proxy_ready")))
                yield one
            finally:
                await one.process.stop()
    said = one.process.log.read_text()
    assert not any(secret in said for secret in (OWN, OLD, NEW))
    assert "Traceback" not in said


@pytest.mark.long
async def test_topoms_token_is_rotated_under_traffic(proxy: Proxy, file: File) -> None:
    async with client_of(proxy.topom) as client:
        known = (await client.get("/api/v1/status")).json()["proxies"]
        traffic = Traffic(proxy)
        try:
            await traffic.more()
            file.write(tokens=[NOW, NEXT])
            await hang_up(proxy.topom, client)
            proxy.file.write(token=f"{NEW}-proxy")
            assert (await proxy.hang_up())["changed"] == ["token"]
            await traffic.more()
            assert len(proxy.said("registered")) == 1, "its stream goes on"
            file.write(tokens=[NEXT])
            await hang_up(proxy.topom, client)
            await proxy.until(lambda: len(proxy.said("registered")) == 2)
            await traffic.more()
            now = (await client.get("/api/v1/status")).json()["proxies"]
            assert [one["instance"] for one in now] == [one["instance"] for one in known]
            assert now[0]["state"] == "online"
        finally:
            await traffic.end()


@pytest.mark.long
async def test_users_change_and_sessions_of_the_others_go_on(proxy: Proxy) -> None:
    def users(**change: str) -> list[dict[str, Any]]:
        passwords = {"ada": "one", "eve": "two", "bob": "three"}
        return [{"name": name, "password": change.get(name, password)} for name, password in passwords.items()]

    anonymous = await proxy.each_worker()
    proxy.file.write(users=users())
    assert (await proxy.hang_up())["changed"] == ["users"]
    await proxy.until(lambda: len(proxy.said("users_changed")) == WORKERS)
    for client in anonymous.values():  # nobody is let in without a password any more
        with pytest.raises((redis.AuthenticationError, redis.ConnectionError)):
            await client.get("key")
        await client.aclose()
    ada, eve, bob = [
        await proxy.each_worker(username=name, password=password)
        for name, password in (("ada", "one"), ("eve", "two"), ("bob", "three"))
    ]
    traffic = Traffic(proxy, username="ada", password="one")
    try:
        await traffic.more()
        changed = users(ada="another")
        changed[1]["read_only"] = True
        proxy.file.write(users=changed[:2])
        await proxy.hang_up()
        await proxy.until(lambda: len(proxy.said("users_changed")) == 2 * WORKERS)
        await traffic.more()
        for client in ada.values():
            assert await client.set("key", "value")
        for gone in (*eve.values(), *bob.values()):
            assert await gone.connection._reader.read() == b"", "it is closed"
        async with proxy.client(username="eve", password="two") as reader:
            assert await reader.get("key") == b"value"
            with pytest.raises(redis.exceptions.NoPermissionError):
                await reader.set("key", "other")
        async with proxy.client(username="ada", password="one") as late:
            with pytest.raises(redis.AuthenticationError):
                await late.ping()
    finally:
        await traffic.end()
        for one in (*ada.values(), *eve.values(), *bob.values()):
            await one.aclose()


@pytest.mark.long
async def test_a_file_that_cannot_be_used_changes_nothing(proxy: Proxy) -> None:
    traffic = Traffic(proxy)
    try:
        proxy.file.write(password="of-everybody", max_clients=0)
        assert "max_clients" in (await proxy.hang_up())["reason"]
        proxy.file.write(password="of-everybody", users=[{"name": "default", "password": "another"}])
        assert "password" in (await proxy.hang_up())["reason"]
        proxy.file.path.unlink()
        assert "cannot be read" in (await proxy.hang_up())["reason"]
        await traffic.more()
        async with proxy.client() as client:
            assert await client.ping()
    finally:
        await traffic.end()
    assert "of-everybody" not in proxy.process.log.read_text()


@pytest.mark.long
async def test_what_needs_a_restart_is_named_and_the_rest_changes(proxy: Proxy) -> None:
    workers = await proxy.each_worker()
    try:
        proxy.file.write(backend_connections=4, max_clients=77, slow_log_microseconds=0.001, log_level="warning")
        os.kill(proxy.process.pid, signal.SIGHUP)

        async def clients() -> int:
            return int((await next(iter(workers.values())).info("clients"))["maxclients"])

        async with asyncio.timeout(LIMIT_SECONDS):
            while await clients() != 77 * WORKERS:
                await asyncio.sleep(0.02)
        for pid, client in workers.items():
            os.kill(pid, signal.SIGHUP)  # as who sends it to all processes of a name
            await client.set("key", "value")
            await client.get("key")
        assert await next(iter(workers.values())).slowlog_len()
        assert {*await proxy.each_worker()} == {*workers}, "a hangup ends no worker"
        assert [one["changed"] for one in proxy.said("settings_reloaded")] == [
            ["log_level", "slow_log_microseconds", "max_clients"]
        ], "an operator sees it at level warning, too"
        proxy.file.write(backend_connections=4)
        said = await proxy.hang_up()
        assert (said["changed"], said["restart"]) == (
            ["log_level", "slow_log_microseconds", "max_clients"],
            ["backend_connections"],
        )
        async with asyncio.timeout(LIMIT_SECONDS):
            while await clients() != 10_000 * WORKERS:
                await asyncio.sleep(0.02)
    finally:
        for client in workers.values():
            await client.aclose()


@pytest.mark.long
async def test_a_lower_limit_than_what_is_in_use_ends_nothing_and_one_that_cannot_be_had_is_told(proxy: Proxy) -> None:
    workers = await proxy.each_worker()

    async def lacking(number: bool) -> None:
        async with client_of(proxy.topom) as client, asyncio.timeout(LIMIT_SECONDS):
            while True:
                [one] = (await client.get("/api/v1/proxies")).json()["proxies"]
                if bool(one["counters"]["max_clients_lacking"]) == number:
                    return
                await asyncio.sleep(0.05)

    try:
        proxy.file.write(max_clients=100_000_000)
        await proxy.hang_up()
        await lacking(True)
        proxy.file.write(max_clients=1)
        await proxy.hang_up()
        await lacking(False)
        for client in workers.values():
            assert await client.set("key", "value"), "those that are there stay"
        with pytest.raises(redis.ConnectionError, match="max number of clients"):
            async with proxy.client() as late:
                await late.ping()
    finally:
        for client in workers.values():
            await client.aclose()


@pytest.mark.long
async def test_a_worker_that_starts_later_has_the_settings_of_now(proxy: Proxy) -> None:
    workers = await proxy.each_worker()
    for client in workers.values():
        await client.aclose()
    proxy.file.write(password="of-everybody")
    await proxy.hang_up()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    await proxy.until(lambda: len(proxy.said("worker_died")) == WORKERS)
    await proxy.until(lambda: len(proxy.said("worker_started")) == 2 * WORKERS)
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            with suppress(redis.ConnectionError):
                async with proxy.client() as client:
                    with pytest.raises(redis.AuthenticationError):
                        await client.get("key")
                break
    new = await proxy.each_worker(password="of-everybody")
    assert not new.keys() & workers.keys()
    for client in new.values():
        await client.aclose()


@pytest.mark.long
async def test_hangups_while_slots_move_and_no_request_fails(proxy: Proxy, file: File) -> None:
    traffic = Traffic(proxy)
    async with client_of(proxy.topom) as client, proxy.client() as writer:
        await writer.mset({f"key:{number}": number for number in range(1000)})
        try:
            file.write(tokens=[NOW], migration_keys_per_second=10)
            await hang_up(proxy.topom, client)
            answer = await client.post("/api/v1/slots/move", json={"slots": "0-15", "group_id": 2})
            assert answer.is_success
            for limit in (5000, 6000, 7000):
                proxy.file.write(max_clients=limit)
                await proxy.hang_up()
                await traffic.more()
                assert (await client.get("/api/v1/status")).json()["slots"]["moving"]
            file.write(tokens=[NOW])
            await hang_up(proxy.topom, client)
            async with asyncio.timeout(LIMIT_SECONDS):
                while (await client.get("/api/v1/status")).json()["slots"]["moving"]:
                    await asyncio.sleep(0.02)
            await traffic.more()
        finally:
            await traffic.end()
        assert await writer.mget([f"key:{number}" for number in range(1000)]) == [
            str(number).encode() for number in range(1000)
        ]
