"""CLIENT LIST and INFO: which clients they show, and in which order."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis.asyncio

from tests.integration.worker.conversations import Request, Talk, converse
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]


def numbers(listed: bytes) -> list[bytes]:
    return [line.split(b" ")[0].removeprefix(b"id=") for line in listed.split(b"\n") if line.startswith(b"id=")]


async def number(talk: Talk) -> bytes:
    return (await talk.ask("CLIENT", "ID"))[1:-2]


@pytest.mark.parametrize("side", ["proxy", "server"])
async def test_clients_come_in_the_order_that_was_asked_for(start_worker: StartWorker, side: str) -> None:
    worker = await start_worker(servers=1)
    address = worker.settings.listen if side == "proxy" else worker.servers[0].address
    async with Talk(address) as first, Talk(address) as second, Talk(address) as third:
        one, two, three = [await number(talk) for talk in (first, second, third)]
        wanted = [two, three, b"99999", one, two]
        listed = (await first.ask("CLIENT", "LIST", "ID", *wanted)).replace(b"\r\n", b"\n")
        assert numbers(listed) == [two, three, one, two]
        listed = (await first.ask("CLIENT", "LIST")).replace(b"\r\n", b"\n")
        assert [found for found in numbers(listed) if found in wanted] == sorted({one, two, three}, key=int)


async def test_a_library_stays_what_it_is_after_reset(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("CLIENT", "SETINFO", "LIB-NAME", "tests")
        await talk.ask("CLIENT", "SETINFO", "LIB-VER", "1.2")
        await talk.ask("CLIENT", "SETNAME", "me")
        assert await talk.ask("RESET") == b"+RESET\r\n"
        line = await talk.ask("CLIENT", "INFO")
        assert b" lib-name=tests lib-ver=1.2 " in line
        assert b" name= " in line


async def test_a_client_on_a_unix_socket_has_its_flag(start_worker: StartWorker, tmp_path: Path) -> None:
    path = str(tmp_path / "proxy.sock")
    await start_worker(servers=1, unix_socket=path)
    async with redis.asyncio.Redis(unix_socket_path=path) as client:
        [own] = await client.client_list()
        assert (own["flags"], own["addr"]) == ("U", f"{path}:0")


ODD: list[Request] = [
    ("CLIENT", "LIST", "TYPE", b"\xff\xfe"),
    ("CLIENT", "LIST", "TYPE", b"a\0b"),
    ("CLIENT", "KILL", "TYPE", b"\xe9"),
    ("CLIENT", "KILL", "USER", b"\xe9t\xe9"),
    ("CLIENT", "KILL", "USER", b"no\r\none"),
    ("CLIENT", "KILL", b"\xff:1"),
    ("HELLO", "3", b"\xff\0x"),
    ("LATENCY", "GRAPH", b"\xffvent"),
    ("slowlog", "Get", "1", "2"),
]


async def test_arguments_are_repeated_as_redis_repeats_them(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    ours = await converse(worker.settings.listen, ODD)
    theirs = await converse(worker.servers[0].address, ODD)
    for pair in zip(ODD, ours, theirs, strict=True):
        assert pair[1] == pair[2], pair[0]


async def test_the_last_command_is_shown_whichever_way_it_went(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as talk, worker.client() as other:

        async def shown() -> str:
            [command] = [one["cmd"] for one in await other.client_list() if one["name"] == "me"]
            return str(command)

        await talk.ask("CLIENT", "SETNAME", "me")
        assert await shown() == "client|setname"
        await talk.ask("SET", "k", "1")
        assert await shown() == "set"
        await talk.ask("CONFIG", "GET", "maxmemory")
        assert await shown() == "config|get"
        await talk.ask("MGET", "a", "b")
        assert await shown() == "mget"
        assert b" cmd=client|info " in await talk.ask("CLIENT", "INFO")
