"""**bounded**: clients that ask for much and read nothing cost the worker its limits at most, and the others little."""

import asyncio
import socket
from pathlib import Path

from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness

LARGE_BYTES = 65536
STUCK = 40
REQUESTS = 2000
GET = b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n"


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def stuck_client(worker: WorkerHarness) -> socket.socket:
    """A client that has asked for 125 MB and reads none of it."""
    host, port = worker.settings.listen.split(":")
    client = socket.socket()
    # What the kernel keeps for it is not what is tested.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    try:
        async with asyncio.timeout(0.2):
            await loop.sock_sendall(client, GET * REQUESTS)
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
    worker = await start_worker(output_limit_bytes=4 * 2**20)
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
    assert "output_limit_bytes" in log
    for one in stuck:
        one.close()
    await client.aclose()
