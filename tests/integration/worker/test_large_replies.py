"""Which connections to a server the clients of a worker share."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]
LARGE = 50_000


async def used(worker: WorkerHarness, command: str) -> int:
    """Connections to the first server over which a command was the last."""
    return len(await over(worker, command))


async def over(worker: WorkerHarness, command: str) -> set[str]:
    """Ids of these connections."""
    async with worker.direct(1) as direct:
        return {str(entry["id"]) for entry in await direct.client_list() if entry["cmd"] == command}


async def test_clients_are_spread_over_all_connections_whatever_the_workers(start_worker: StartWorker) -> None:
    for workers in (1, 2):
        worker = await start_worker(servers=1, workers=workers, backend_connections=2)
        async with AsyncExitStack() as stack:
            talks = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(8)]
            for talk in talks:
                assert await talk.ask("GET", "key") == b"$-1\r\n"
            assert await used(worker, "get") == 2


async def test_large_replies_go_over_another_connection_than_small_ones(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as much, Talk(worker.settings.listen) as little:
        assert await much.ask("SET", "large", "x" * LARGE) == b"+OK\r\n"
        for _ in range(3):
            assert len(await much.ask("GET", "large")) > LARGE
            assert await little.ask("STRLEN", "large") == b":%d\r\n" % LARGE
        assert (await used(worker, "get"), await used(worker, "strlen")) == (1, 1)


async def test_in_order_replies_and_writes_while_the_sizes_of_replies_change(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("SET", "large", "x" * LARGE) == b"+OK\r\n"
        count = 0
        over_which = set[str]()
        for _ in range(5):
            # What is large on average after the one phase is small after the other.
            for key, times in (("large", 10), ("count", 200)):
                for _ in range(times):
                    talk.send("INCR", "count")
                    talk.send("GET", key)
                for _ in range(times):
                    count += 1
                    assert await talk.reply() == b":%d\r\n" % count
                    shown = str(count) if key == "count" else "x" * LARGE
                    assert await talk.reply() == f"${len(shown)}\r\n{shown}\r\n".encode()
                # Now that nothing is owed, the connection is chosen by what has come.
                await talk.ask("GET", key)
                over_which |= await over(worker, "get")
        assert len(over_which) == 2
