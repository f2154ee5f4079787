"""Messages of a RESP3 client that asks for large values meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]
LARGE = b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n"
VALUES = 150


async def test_in_order_messages_come_between_large_replies(start_worker: StartWorker) -> None:
    """Replies of which a part is out already, and replies that are owed behind them."""
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen, 3) as talk, worker.direct(1) as direct:
        await direct.set("large", b"x" * 1_000_000)
        assert (await talk.ask("SUBSCRIBE", "numbers")).startswith(b">3\r\n$9\r\nsubscribe\r\n")
        published = 0
        over = False

        async def publish() -> None:
            nonlocal published
            while not over:
                assert await direct.publish("numbers", str(published)) == 1
                published += 1

        publishing = asyncio.create_task(publish())
        heard: list[int] = []
        for _ in range(VALUES // 5):
            for _ in range(5):
                talk.send("GET", "large")
            values = 0
            while values < 5:
                reply = await talk.reply()
                if reply.startswith(b">"):
                    heard.append(int(reply.split(b"\r\n")[-2]))
                else:
                    assert reply == LARGE
                    values += 1
        over = True
        await publishing
        while len(heard) < published:
            heard.append(int((await talk.reply()).split(b"\r\n")[-2]))
        assert heard == list(range(published))
