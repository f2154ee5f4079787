"""**bounded**: clients that ask for much and read nothing cost the worker its limits at most, and the others little."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from proxy.engine.backend import command
from slots.slot import Slot
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.places import closed as ended
from tests.integration.worker.places import logged
from tests.integration.worker.replicated import eventually

LARGE_BYTES = 65536
STUCK = 40
REQUESTS = 2000
GET = b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n"
MEGABYTE = 2**20


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def stuck_client(worker: WorkerHarness, requests: int = REQUESTS) -> socket.socket:
    """A client that has asked for much, such as 125 MB, and reads none of it."""
    host, port = worker.settings.listen.split(":")
    client = socket.socket()
    # What the kernel keeps for it is not what is tested.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    try:
        async with asyncio.timeout(0.2):
            await loop.sock_sendall(client, GET * requests)
    except TimeoutError:
        # The worker has stopped reading from it.
        pass
    return client


async def closed(clients: list[socket.socket]) -> int:
    """How many of them the worker has closed. Reads what there is."""
    found = 0
    for client in clients:
        try:
            while client.recv(1 << 20):
                continue
            found += 1
        except BlockingIOError:
            continue
        except ConnectionResetError:
            found += 1
    return found


async def test_clients_that_read_nothing_are_served_no_further(worker: WorkerHarness) -> None:
    client = worker.client()
    await client.set("large", b"x" * LARGE_BYTES)
    before = resident(worker.process.pid)
    stuck = [await stuck_client(worker) for _ in range(STUCK)]
    async with asyncio.timeout(LIMIT):
        for number in range(100):
            await client.set(f"small:{number}", number)
            assert await client.get(f"small:{number}") == b"%d" % number
    listed = [entry for entry in await client.client_list() if int(entry["owed"]) or int(entry["omem"])]
    assert listed, "nobody is owed anything: the clients were not stuck"
    # Each has its window of replies, doubled by how buffers grow, and what it may send ahead.
    grown = resident(worker.process.pid) - before
    assert grown < STUCK * 2 * (worker.settings.session_output_pause_bytes * 2 + 2**18), grown
    for one in stuck:
        one.close()
    await client.aclose()


async def test_all_together_are_owed_no_more_than_the_limit(start_worker: StartWorker) -> None:
    worker = await start_worker(sessions_limit_bytes=4 * 2**20)
    client = worker.client()
    await client.set("large", b"x" * LARGE_BYTES)
    stuck = [await stuck_client(worker) for _ in range(STUCK)]
    gone = 0
    async with asyncio.timeout(LIMIT):
        while not gone:
            assert await client.ping()
            gone = await closed(stuck)
    assert await client.get("large") == b"x" * LARGE_BYTES
    log = (worker.directory / "worker.log").read_text()
    assert "sessions_limit_bytes" in log
    for one in stuck:
        one.close()
    await client.aclose()


async def number_of(talk: Talk) -> int:
    return int((await talk.ask("CLIENT", "ID"))[1:])


async def peers(worker: WorkerHarness) -> list[dict[str, Any]]:
    """All clients of the worker but the one that asks, oldest first."""
    async with worker.client() as client:
        own = await client.client_id()
        return [dict(entry) for entry in await client.client_list() if int(entry["id"]) != own]


async def test_bounded_only_those_go_for_whom_much_is_kept(start_worker: StartWorker) -> None:
    """When a client goes, the parts of replies to its split requests that have come are given up, too."""
    worker = await start_worker(sessions_limit_bytes=4 * MEGABYTE, backend_reply_seconds=60.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    here = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") < 512)
    there = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") >= 512)
    address = worker.settings.listen
    async with Talk(address) as greedy, Talk(address) as idle, Talk(address) as busy:
        assert await greedy.ask("MSET", here, "x" * MEGABYTE, there, "y") == b"+OK\r\n"
        assert await idle.ask("PING") == b"+PONG\r\n"
        number = await number_of(greedy)
        [name] = [entry["addr"] for entry in await peers(worker) if int(entry["id"]) == number]
        async with frozen(worker.servers[1]):
            # In one piece: by the time the first part comes, more than is allowed are under way.
            greedy.writer.write(command(("MGET", here, there)) * 40)
            assert await ended(greedy.reader) == b""
            for _ in range(3):
                assert await busy.ask("STRLEN", here) == b":%d\r\n" % MEGABYTE
                assert await idle.ask("PING") == b"+PONG\r\n"
        assert await idle.ask("GET", there) == b"$1\r\ny\r\n"
    gone = [entry["client"] for entry in logged(worker, "session_closed") if entry["reason"] == "sessions_limit_bytes"]
    assert gone == [name]


async def test_bounded_requests_that_are_not_complete_count_too(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, sessions_limit_bytes=4 * MEGABYTE)
    clients = [await worker.connect() for _ in range(8)]
    async with Talk(worker.settings.listen) as other:
        for _, writer in clients:
            writer.write(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % (2 * MEGABYTE) + b"x" * MEGABYTE)

        async def limited() -> bool:
            assert await other.ask("PING") == b"+PONG\r\n"
            return len(logged(worker, "session_closed")) > 0

        await eventually(limited, "a client to be closed")

        async def taken() -> bool:
            listed = [entry for entry in await peers(worker) if int(entry["qbuf"])]
            return all(int(entry["qbuf"]) > MEGABYTE for entry in listed)

        await eventually(taken, "the worker to have read what it was sent")
        left = [entry for entry in await peers(worker) if int(entry["qbuf"])]
        assert 0 < len(left) < len(clients)
        assert sum(int(entry["tot-mem"]) for entry in left) <= 4 * MEGABYTE
        assert all(entry["reason"] == "sessions_limit_bytes" for entry in logged(worker, "session_closed"))
    for _, writer in clients:
        writer.close()


async def test_bounded_what_was_taken_of_a_large_reply_is_not_kept(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    size = 32 * MEGABYTE
    async with worker.direct(1) as direct:
        await direct.set("large", b"x" * size)
    client = await stuck_client(worker, 1)
    received = 0

    async def kept() -> dict[str, int]:
        listed = await peers(worker)
        # Once the worker has accepted it, it is the only one.
        return {name: sum(int(entry[name]) for entry in listed) for name in ("omem", "tot-mem")}

    async def all_there() -> bool:
        # What the kernels take aside.
        return (await kept())["omem"] > size * 3 // 4

    async def rest_only() -> bool:
        # Memory is given back in halves.
        now = await kept()
        return 0 < now["omem"] < size - received and now["tot-mem"] <= 2 * now["omem"]

    await eventually(all_there, "the reply")
    while received < size * 3 // 5:
        async with asyncio.timeout(LIMIT):
            received += len(await asyncio.get_running_loop().sock_recv(client, MEGABYTE))
    await eventually(rest_only, "what was taken to be given up")
    client.close()


def peak(pid: int) -> int:
    """The most bytes of memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


async def test_bounded_what_waits_for_a_server_counts(start_worker: StartWorker) -> None:
    """Many large requests to a server that has stopped: none is passed on before the one before it has gone."""
    limit = 64 * MEGABYTE
    worker = await start_worker(servers=2, sessions_limit_bytes=limit, backend_reply_seconds=60.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    here = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") < 512)
    there = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") >= 512)
    request = command(("SET", here, b"x" * (16 * MEGABYTE)))
    answers: list[bytes] = []

    async def send() -> asyncio.Task[None]:
        """Send one; what reads its answer."""
        reader, writer = await worker.connect()

        async def answered() -> None:
            with suppress(ConnectionError):
                answers.append(await reader.read(5))
            writer.close()

        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        return asyncio.create_task(answered())

    async with Talk(worker.settings.listen) as other:
        assert await other.ask("SET", here, "1") == await other.ask("SET", there, "1") == b"+OK\r\n"
        before = peak(worker.process.pid)
        async with frozen(worker.servers[0]):
            # One after another, so that each of them is whole.
            clients = [await send() for _ in range(60)]
            # A client that asks another server is served meanwhile.
            assert await other.ask("GET", there) == b"$1\r\n1\r\n"
        async with asyncio.timeout(3 * LIMIT):
            await asyncio.gather(*clients)
        grown = peak(worker.process.pid) - before
        # In theory 1.5: half the limit may wait for servers, and a buffer grows by a quarter.
        assert grown < 2 * limit, f"{grown / MEGABYTE:.0f} MiB"
        assert answers.count(b"+OK\r\n") >= 1
        assert await other.ask("STRLEN", here) == b":%d\r\n" % (16 * MEGABYTE)


async def test_bounded_what_is_queued_within_multi_counts(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, sessions_limit_bytes=8 * MEGABYTE)
    async with Talk(worker.settings.listen) as small, Talk(worker.settings.listen) as large:
        for talk in (small, large):
            assert await talk.ask("MULTI") == b"+OK\r\n"
            assert await talk.ask("SET", "key", "x" * 1000) == b"+QUEUED\r\n"
        large.writer.write(command(("SET", "key", b"x" * MEGABYTE)) * 20)
        assert (await ended(large.reader)).count(b"+QUEUED") < 10
        assert await small.ask("EXEC") == b"*1\r\n+OK\r\n"
