"""Sinks hear of every event that is stored, once; a webhook would be one of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import httpx
import pytest

from tests.unit.topom.topom_fakes import PRODUCT, MemoryStore
from topom.cluster import topology
from topom.cluster.event_sinks import EventSinks, newest_event
from topom.cluster.events import Event, What
from topom.cluster.ledger import Ledger
from topom.store import StoreError

URL = "http://pager/events"
MOST_KEPT = 6


class Webhook:
    """A sink that posts each event to a URL. It keeps so many until they are sent, and drops newer ones."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.dropped = 0
        self._http = http
        self._kept: asyncio.Queue[Event] = asyncio.Queue(MOST_KEPT)
        self._sending = asyncio.create_task(self._send())

    def stored(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._kept.put_nowait(event)
            except asyncio.QueueFull:
                self.dropped += 1

    def close(self) -> None:
        self._sending.cancel()

    async def sent(self) -> None:
        await self._kept.join()

    async def _send(self) -> None:
        while True:
            event = await self._kept.get()
            await self._http.post(URL, json={"id": event.id, "what": event.what})
            self._kept.task_done()


class Receiver(httpx.AsyncBaseTransport):
    """What is at the URL; it takes requests and answers while ``answers`` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.got: list[tuple[int, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self.answers.wait()
        said = httpx.Response(200, content=await request.aread()).json()
        self.got.append((said["id"], said["what"]))
        return httpx.Response(204)


class Broken:
    def stored(self, events: Sequence[Event]) -> None:
        raise ValueError("a mistake of ours")

    def close(self) -> None: ...


async def started(store: MemoryStore, sinks: EventSinks, writer: str = "this process") -> Ledger:
    """As a topom's process starts one."""
    ledger = Ledger(store, writer)
    ledger.listen(sinks.changed)
    await ledger.start(PRODUCT)
    sinks.show(ledger.state, ledger.began_after)
    return ledger


async def add_group(ledger: Ledger, group_id: int) -> None:
    await ledger.change(lambda state, epoch: replace(state, table=topology.add_group(state.table, epoch, group_id)))


@pytest.fixture
async def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
async def webhook(receiver: Receiver) -> AsyncIterator[Webhook]:
    async with httpx.AsyncClient(transport=receiver) as http:
        one = Webhook(http)
        yield one
        one.close()


async def test_a_webhook_is_sent_each_event_that_is_stored_once(webhook: Webhook, receiver: Receiver) -> None:
    store, sinks = MemoryStore(), EventSinks()
    await started(store, EventSinks(), "an earlier process")
    sinks.add(Broken())
    sinks.add(webhook)
    ledger = await started(store, sinks)
    await add_group(ledger, 1)
    # An event that is not stored is not told. An event that turns out to be stored is told once that is known.
    store.fail_before = 1
    with pytest.raises(StoreError):
        await add_group(ledger, 2)
    store.fail_after = 1
    with pytest.raises(StoreError):
        await add_group(ledger, 3)
    await add_group(ledger, 4)
    # The same process reads what it has stored, as it does when it begins to follow.
    sinks.show(ledger.state, 0)
    await webhook.sent()
    assert receiver.got == [
        (2, What.TOPOM_STARTED),
        (3, What.GROUP_ADDED),
        (4, What.GROUP_ADDED),
        (5, What.GROUP_ADDED),
    ]
    assert sorted(ledger.table.groups) == [1, 3, 4]


async def test_a_follower_tells_what_it_reads_from_when_it_began(webhook: Webhook, receiver: Receiver) -> None:
    store, sinks = MemoryStore(), EventSinks()
    leader = await started(store, EventSinks())
    await add_group(leader, 1)
    sinks.add(webhook)
    follower = Ledger(MemoryStore(), "f")
    follower.listen(sinks.changed)
    follower.show(leader.state)
    sinks.show(leader.state, newest_event(leader.state))
    for group_id in (2, 3):
        await add_group(leader, group_id)
    follower.show(leader.state)
    await webhook.sent()
    assert [number for number, _ in receiver.got] == [3, 4]
    # Events that the leader has dropped cannot be read.
    for group_id in (4, 5):
        await add_group(leader, group_id)
    follower.show(replace(leader.state, events=leader.state.events[-1:]))
    await webhook.sent()
    assert [number for number, _ in receiver.got] == [3, 4, 6]


async def test_a_sink_whose_receiver_hangs_holds_nobody_up(webhook: Webhook, receiver: Receiver) -> None:
    receiver.answers.clear()
    sinks = EventSinks()
    sinks.add(webhook)
    ledger = await started(MemoryStore(), sinks)
    for group_id in range(1, 10):
        await add_group(ledger, group_id)
    assert webhook.dropped == 10 - 1 - MOST_KEPT
    receiver.answers.set()
    await webhook.sent()
    assert [number for number, _ in receiver.got] == list(range(1, 2 + MOST_KEPT))
