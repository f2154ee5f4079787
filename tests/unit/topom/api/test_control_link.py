"""What goes to a proxy at once, and what waits until its connection takes more."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from slots.messages.control import Heard, Left
from slots.table import SlotTable
from topom.api.control import SocketLink
from topom.api.wire import Wire, framed
from topom.cluster.lineage import Start
from topom.proxies.tableframes import TableFrames


class FakeWire:
    def __init__(self, sent: list[Any]) -> None:
        self.sent = sent
        self.writable = asyncio.Event()
        self.writable.set()

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set()

    def write(self, frame: bytes) -> None:
        assert self.is_writable
        self.sent.append(("at once", json.loads(frame[frame.index(b"{") :])))

    async def drained(self) -> None:
        await self.writable.wait()


async def test_what_is_new_goes_at_once_and_waits_for_a_proxy_that_does_not_read() -> None:
    sent: list[Any] = []

    async def send_text(text: str) -> None:
        sent.append(("later", json.loads(text)))

    first = SlotTable.empty(16).changed(1)
    state = SimpleNamespace(seal_key="key", starts=[Start("writer", 1)], table=first)
    ledger = SimpleNamespace(table=first, state=state)
    frames = TableFrames(cast(Any, ledger))
    proxies = SimpleNamespace(frame=lambda version: None)
    newest = 0
    users = SimpleNamespace(frame=lambda sent: (newest, f'{{"type":"users","of":{newest}}}') if newest > sent else None)
    link = SocketLink(
        cast(Any, SimpleNamespace(scope={}, send_text=send_text)), frames, cast(Any, proxies), cast(Any, users)
    )
    wire = FakeWire(sent)
    link._wire = cast(Wire, wire)
    link.wake()
    assert sent == [], "nothing goes before the proxy is told that it is registered"
    sending = asyncio.create_task(link.send_news())
    async with asyncio.timeout(20):
        while not link._idle:
            await asyncio.sleep(0)
    assert [(how, frame["table"]["epoch"]) for how, frame in sent] == [("later", 1)]
    sent.clear()
    ledger.table = ledger.table.changed(2)
    link.wake()
    link.say(Heard(number=7))
    assert [(how, frame["type"]) for how, frame in sent] == [("at once", "table"), ("at once", "heard")]
    # When: it does not read. Then: once it does, only the newest table is sent.
    sent.clear()
    wire.writable.clear()
    for epoch in (3, 4):
        ledger.table = ledger.table.changed(epoch)
        link.wake()
    link.say(Heard(number=8))
    newest = 3
    link.wake()
    newest = 4
    link.wake()
    await asyncio.sleep(0)
    assert sent == []
    wire.writable.set()
    while len(sent) < 3:
        await asyncio.sleep(0)
    assert [frame["type"] for _, frame in sent] == ["table", "users", "heard"]
    assert sent[1][1]["of"] == 4
    assert (sent[0][1]["table"]["since"], sent[0][1]["table"]["epoch"]) == (2, 4)
    link.end(Left())
    await sending
    assert sent[-1] == ("later", {"type": "left"})


def test_a_frame_says_its_length() -> None:
    for length, head in (
        (5, b"\x81\x05"),
        (200, b"\x81\x7e\x00\xc8"),
        (70_000, b"\x81\x7f" + (70_000).to_bytes(8, "big")),
    ):
        assert framed("x" * length) == head + b"x" * length
