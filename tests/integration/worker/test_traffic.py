"""What a worker tells of its traffic is what its clients did: by slot, server and user, and the hottest keys."""

import asyncio
import base64
import hashlib
import random
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.engine.backend import command
from slots.messages.channel import Load
from slots.messages.load import HotKey
from slots.messages.questions import WorkerCounters
from slots.reserved import RESERVED
from slots.slot import Slot
from tests.certificates import Authority
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.places import opened, tls_settings, trusting

StartWorker = Callable[..., Awaitable[WorkerHarness]]


class Told:
    """The sums of all that a worker has told."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}
        self.servers: dict[str, list[float]] = {}
        self.users: dict[str, list[int]] = {}
        self.hot_keys: list[HotKey] = []

    def take(self, load: Load) -> None:
        for slot, *counts in struct.iter_unpack("<HIIQQ", base64.b64decode(load.slots)):
            add(self.slots, slot, counts)
        for address, server in load.servers.items():
            add(self.servers, address, server)
        for name, user in load.users.items():
            add(self.users, name, user)
        self.hot_keys = load.hot_keys


def add(sums: dict[Any, list[Any]], name: Any, counts: Any) -> None:
    sums[name] = [one + more for one, more in zip(sums.get(name, [0] * len(counts)), counts, strict=True)]


async def told(worker: WorkerHarness) -> Told:
    """All that it has counted and the test has not taken yet. Clients have all of their replies."""
    await worker.asked(WorkerCounters())
    # Those that have come may have been made before the last count; the next one is not.
    arrived = sum(isinstance(message, Load) for message in worker.messages)
    sums = Told()
    for _ in range(arrived + 1):
        sums.take(await worker.next(lambda message: isinstance(message, Load)))
    return sums


def size(*requests: tuple[Any, ...]) -> int:
    return sum(len(command(request)) for request in requests)


def keys_of(group: int, count: int) -> list[str]:
    """Keys of different slots at a group's server: those below slot 512 are at the first one."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        slot = slot_of(f"key{number}")
        if (slot < 512) == (group == 1):
            found.setdefault(slot, f"key{number}")
        number += 1
    return list(found.values())


@pytest.mark.long
@pytest.mark.parametrize("tls", [False, True])
async def test_all_that_clients_do_is_counted_exactly(start_worker: StartWorker, tmp_path: Path, tls: bool) -> None:
    """given GETs, SETs and errors, one by one and in a pipeline, and an MGET of keys of two servers."""
    authority = Authority(tmp_path)
    worker = await start_worker(**(tls_settings(authority.issue("proxy")) if tls else {}))
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    await told(worker)
    here, there = keys_of(1, 3), keys_of(2, 3)
    value, wrong = b"$10\r\nvvvvvvvvvv\r\n", b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    mget = ("MGET", *here, *there)

    def of_key(key: str) -> list[tuple[str, ...]]:
        return [("SET", key, "v" * 10), *[("GET", key)] * 5, ("LPUSH", key, "x")]

    replies = b"+OK\r\n" + value * 5 + wrong
    address, context = (worker.settings.tls_listen, trusting(authority)) if tls else (worker.settings.listen, None)
    async with opened(address, context) as (reader, writer):
        for request, reply in zip(of_key(here[0]), [b"+OK\r\n", *[value] * 5, wrong], strict=True):
            writer.write(command(request))
            assert await reader.readexactly(len(reply)) == reply
        writer.write(b"".join(command(request) for key in [*here[1:], *there] for request in of_key(key)))
        assert await reader.readexactly(5 * len(replies)) == 5 * replies
        writer.write(command(mget))
        assert await reader.readexactly(4 + 6 * len(value)) == b"*6\r\n" + 6 * value

    sums = await told(worker)
    expected = {}
    part = 4 + 3 * len(value)
    for keys in (here, there):
        for place, key in enumerate(keys):
            bytes_in = size(*of_key(key)) + len(f"${len(key)}\r\n{key}\r\n")
            bytes_out = len(replies) + part // 3
            if place == 0:
                # What is no key's own is the first key's.
                bytes_in += len(b"*4\r\n$4\r\nMGET\r\n")
                bytes_out += part % 3
            expected[slot_of(key)] = [8, 1, bytes_in, bytes_out]
    assert sums.slots == expected
    for keys, server in zip((here, there), worker.addresses, strict=True):
        requests, *counts, microseconds, timed = sums.servers[server]
        # The server saw one MGET, and its slots have one request each.
        assert requests == timed == 3 * 7 + 1
        assert counts == [sum(expected[slot_of(key)][place] for key in keys) for place in (1, 2, 3)]
        assert 0 < microseconds < LIMIT * 1e6
    sent = size(*(request for key in (*here, *there) for request in of_key(key)), mget)
    assert sums.users == {"default": [6 * 7 + 1, 6, sent, 6 * len(replies) + 4 + 6 * len(value)]}


@pytest.mark.long
async def test_a_server_that_is_killed_has_an_error_for_each_request(worker: WorkerHarness) -> None:
    key = keys_of(2, 1)[0]
    async with worker.client(retry=Retry(NoBackoff(), 0)) as client:
        await client.get(key)
        await told(worker)
        await worker.servers[1].stop()
        for _ in range(20):
            with pytest.raises(redis.exceptions.ResponseError, match="server"):
                await client.get(key)
    sums = await told(worker)
    requests, errors, *_ = sums.servers[worker.addresses[1]]
    assert requests == errors
    # The connection was lost, or was opened and failed, with some of them under way; the others were refused.
    assert sums.slots[slot_of(key)][:2] == [20, 20]
    assert sums.users["default"][:2] == [20, 20]


@pytest.mark.long
async def test_each_user_has_what_its_clients_did(start_worker: StartWorker) -> None:
    users = [{"name": name, "password": "p"} for name in ("one", "two")]
    worker = await start_worker(users=users)
    await told(worker)
    for name, count in (("one", 3), ("two", 5)):
        async with worker.client(username=name, password="p", protocol=2, driver_info=None) as client:
            for number in range(count):
                await client.set(f"key{number}", "value")
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(command(("GET", "a")))
        refused = await reader.readline()
    sums = await told(worker)
    assert sums.users.pop("not logged in") == [1, 1, size(("GET", "a")), len(refused)]
    assert set(sums.users) == {"one", "two"}
    one, two = sums.users["one"], sums.users["two"]
    # Both greet the proxy in the same way.
    assert two[0] - one[0] == 2
    assert two[2] - one[2] == 2 * size(("SET", "key0", "value"))
    assert two[3] - one[3] == 2 * len(b"+OK\r\n")


async def ask_for(worker: WorkerHarness, keys: list[str], seconds: float) -> None:
    """Ask for keys, again and again."""
    reader, writer = await worker.connect()
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        random.shuffle(keys)
        writer.write(b"".join(command(("GET", key)) for key in keys))
        for _ in keys:
            await reader.readline()
    writer.close()


@pytest.mark.parametrize("hashed", [False, True])
async def test_a_key_with_one_of_twenty_requests_is_found(start_worker: StartWorker, hashed: bool) -> None:
    """given as many others as it takes. With hash_hot_keys, its name is in nothing that leaves the worker."""
    worker = await start_worker(servers=1, hash_hot_keys=hashed)
    heard: list[str] = []
    name = "a-hot-key"
    shown = hashlib.sha256(name.encode()).hexdigest()[:16] if hashed else name
    encoded = base64.b64encode(shown.encode()).decode()
    keys = [name] * 50 + [f"other:{number}" for number in range(950)]
    asking = asyncio.create_task(ask_for(worker, keys, 5.0))
    found: HotKey | None = None
    while found is None and not asking.done():
        load: Load = await worker.next(lambda message: isinstance(message, Load))
        heard.append(load.model_dump_json())
        found = next((key for key in load.hot_keys if key.key == encoded), None)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert found is not None
    assert (found.database, found.slot, found.length) == (0, slot_of(name), len(shown))
    assert found.rate > found.excess
    if hashed:
        plain = base64.b64encode(name.encode()).decode().rstrip("=")
        assert not any(name in text or plain in text for text in heard)


@pytest.mark.parametrize("request_of", [("GET",), ("MGET", "other"), ("BLPOP",)], ids=lambda words: words[0])
async def test_keys_of_the_proxys_own_are_no_hot_keys(start_worker: StartWorker, request_of: tuple[str, ...]) -> None:
    """however often a client names one: they have no slot, and topom ends the stream of a proxy that tells of one."""
    worker = await start_worker(servers=1)
    own = RESERVED.decode() + "mine"
    asked = (*request_of, own, "0") if request_of == ("BLPOP",) else (*request_of, own)
    async with opened(worker.settings.listen, None) as (reader, writer):
        for _ in range(20):
            writer.write(command(asked) * 50)
            for _ in range(50):
                assert (await reader.readline()).startswith(b"-ERR")
    for _ in range(2):
        load = await worker.next(lambda message: isinstance(message, Load))
        assert own.encode() not in [base64.b64decode(key.key) for key in load.hot_keys]
        assert all(key.slot < 1024 for key in load.hot_keys)


@pytest.mark.long
async def test_the_time_that_a_command_waits_at_its_server_is_not_the_servers(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    await told(worker)
    async with opened(worker.settings.listen) as (reader, writer):
        writer.write(command(("BLPOP", "nothing", "2")))
        assert await reader.readline() == b"*-1\r\n"
        await told(worker)
        # When: half of the requests wait there, and the others do not.
        for _ in range(3):
            writer.write(command(("BLPOP", "nothing", "0.5")))
            assert await reader.readline() == b"*-1\r\n"
            writer.write(command(("GET", "nothing")))
            assert await reader.readline() == b"$-1\r\n"
    requests, errors, *_, microseconds, timed = (await told(worker)).servers[worker.addresses[0]]
    assert requests > 6, "the element is asked for first, and then waited for over a connection of its own"
    assert errors == 0
    assert timed == requests - 3
    assert 0 < microseconds < 1.4e6
