import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog.testing

from proxy.supervisor import control
from proxy.supervisor.control import Control
from slots import dialing
from slots.dialing import ControlError
from slots.messages.control import Ack, Heard, Heartbeat, News, Register, Registered, Table
from slots.messages.message import Product
from tests.unit.proxy.proxy_fakes import PRODUCT, REGISTERED, SECONDS, FakeTopom, fake_topom


class Recorder:
    """A handler that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.instance = 1
        self.problem: str | None = None

    def registration(self) -> Register:
        return Register(
            instance=f"{self.instance:032x}", address="a:1", hostname="h", pid=1, workers=1, version="0", epoch=0
        )

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(epoch=3, counters={"requests": 1})

    def registered(self, answer: Registered) -> None:
        if self.problem:
            raise ControlError(self.problem)
        self.heard.put_nowait(("registered", answer.product))

    def table(self, message: Table) -> None:
        self.heard.put_nowait(("table", message.table))

    def shut_out(self, reason: str) -> None:
        self.instance += 1
        self.heard.put_nowait(("shut_out", reason))

    async def next(self, kind: str) -> Any:
        async with asyncio.timeout(SECONDS):
            while True:
                heard, what = await self.heard.get()
                if heard == kind:
                    return what


class Dialled:
    def __init__(self, urls: list[str], token: str = "") -> None:
        self.handler = Recorder()
        self.control = Control(urls, token, None, self.handler)
        self.task = asyncio.create_task(self.control.run())


@contextlib.asynccontextmanager
async def dialled(*urls: str, token: str = "") -> AsyncIterator[Dialled]:
    running = Dialled(list(urls), token)
    try:
        yield running
    finally:
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 0.005)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 0.02)


async def test_registers_with_the_token_and_sends_heartbeats(topom: FakeTopom) -> None:
    async with dialled(topom.url, token="geheim") as proxy:
        stream = await topom.stream()
        registration = await stream.register(number_of_slots=1024)
        assert topom.headers == ["Bearer geheim"]
        assert registration == {"type": "register", **proxy.handler.registration().model_dump()}
        assert await proxy.handler.next("registered") == Product(**{**PRODUCT, "number_of_slots": 1024})
        for _ in range(3):
            heartbeat = await stream.next()
            assert heartbeat == proxy.handler.heartbeat().model_dump()
        assert proxy.control.connected


async def test_tables_are_passed_on_and_unknown_messages_are_not_minded(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.register()
        await stream.send({"type": "of another version"})
        await stream.send({"type": "table", "table": {"epoch": 1}, "more": "of another version"})
        assert await proxy.handler.next("table") == {"epoch": 1}


async def test_messages_are_sent_while_there_is_a_stream_and_not_kept_for_the_next(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        proxy.control.send(Ack(epoch=1))
        stream = await topom.stream()
        await stream.register()
        await proxy.handler.next("registered")
        proxy.control.send(Ack(epoch=2))
        assert await stream.next("ack") == {"type": "ack", "epoch": 2}


async def test_a_lost_stream_is_dialled_again(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        for _ in range(3):
            stream = await topom.stream()
            await stream.register()
            await proxy.handler.next("registered")
            await stream.close()


async def test_a_topom_that_does_not_answer_is_passed_over(topom: FakeTopom) -> None:
    async with fake_topom() as stopped:
        pass
    async with dialled(stopped.url, topom.url):
        await (await topom.stream()).register()


async def test_a_silent_topom_is_given_up(topom: FakeTopom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "REGISTER_SECONDS", 0.01)
    async with dialled(topom.url):
        for _ in range(2):
            await (await topom.stream()).end()


@pytest.mark.parametrize("reason", ["fenced", "removed"])
async def test_who_is_shut_out_comes_back_as_another(topom: FakeTopom, reason: str) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.next("register")
        await stream.send({"type": "refused", "reason": reason, "message": "You were gone."})
        assert await proxy.handler.next("shut_out") == reason
        assert (await (await topom.stream()).register())["instance"] == f"{2:032x}"


async def test_shut_out_in_the_middle_of_a_stream(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.register()
        await stream.send({"type": "refused", "reason": "removed", "message": "An operator removed you."})
        assert await proxy.handler.next("shut_out") == "removed"
        assert (await (await topom.stream()).register())["instance"] == f"{2:032x}"


async def test_an_invalid_registration_is_tried_again_and_said_once(topom: FakeTopom) -> None:
    with structlog.testing.capture_logs() as logs:
        async with dialled(topom.url):
            for _ in range(3):
                stream = await topom.stream()
                assert (await stream.next("register"))["instance"] == f"{1:032x}"
                await stream.send({"type": "refused", "reason": "invalid", "message": "The version is too old."})
            await topom.stream()
    assert [entry["reason"] for entry in logs if entry["event"] == "topom_unreachable"] == [
        "topom refuses the registration: The version is too old."
    ]


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "registered"},
        {**REGISTERED, "product": {**PRODUCT, "number_of_slots": "many"}},
        {**REGISTERED, "product": {**PRODUCT, "number_of_slots": 0}},
        {**REGISTERED, "proxy_id": 0},
        {"type": "table", "table": {"epoch": 1}},
        {"type": "of another version"},
    ],
)
async def test_an_answer_that_makes_no_sense_ends_the_stream(topom: FakeTopom, answer: dict[str, Any]) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.send(answer)
        await stream.end()
        assert not proxy.control.connected
        await (await topom.stream()).register()


@pytest.mark.parametrize(
    "text", ["not json", "[]", "{}", '{"type":"heard"}', json.dumps({**REGISTERED, "product": PRODUCT})]
)
async def test_what_is_no_message_ends_the_stream(topom: FakeTopom, text: str) -> None:
    async with dialled(topom.url):
        stream = await topom.stream()
        await stream.register()
        await stream.connection.send(text)
        await stream.end()
        await topom.stream()


class Hearing:
    """A listener for answers to heartbeats."""

    def __init__(self) -> None:
        self.heard_of: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def registered(self, answer: Registered) -> None:
        self.heard_of.put_nowait(("registered", answer.proxy_id))

    def heard(self, message: News) -> None:
        if isinstance(message, Heard):
            self.heard_of.put_nowait(("heard", message.number))

    def lost(self) -> None:
        self.heard_of.put_nowait(("lost", None))

    async def next(self) -> tuple[str, Any]:
        return await asyncio.wait_for(self.heard_of.get(), SECONDS)


async def test_a_listener_hears_what_the_handler_does_not_know(topom: FakeTopom) -> None:
    hearing = Hearing()
    tried = Control([topom.url], "", None, Recorder(), hearing)
    task = asyncio.create_task(tried.run())
    try:
        for _ in range(2):
            stream = await topom.stream()
            await stream.register()
            await stream.send({"type": "unknown"})
            await stream.send({"type": "proxies", "proxies": []})
            await stream.send({"type": "heard", "number": 1})
            # One that lacks something ends the stream, and nothing else.
            await stream.send({"type": "heard"})
            assert [await hearing.next() for _ in range(3)] == [("registered", 1), ("heard", 1), ("lost", None)]
            await stream.end()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_handler_that_cannot_go_along_ends_the_stream(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        proxy.handler.problem = "another product"
        stream = await topom.stream()
        await stream.register()
        await stream.end()
        proxy.handler.problem = None
        await (await topom.stream()).register()
        await proxy.handler.next("registered")


async def test_more_messages_than_may_wait_end_the_stream(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.register()
        await proxy.handler.next("registered")
        for epoch in range(control.QUEUE_LIMIT + 1):
            proxy.control.send(Ack(epoch=epoch))
        await stream.end()
        await topom.stream()


async def test_leaving_is_said_and_heard(topom: FakeTopom) -> None:
    async with dialled(topom.url) as proxy:
        stream = await topom.stream()
        await stream.register()
        await proxy.handler.next("registered")
        leaving = asyncio.create_task(proxy.control.leave())
        await stream.next("leave")
        await stream.send({"type": "left"})
        assert await leaving
        await asyncio.wait_for(proxy.task, SECONDS)
        assert topom.streams.empty()


async def test_leaving_does_not_wait_for_a_topom_that_is_gone(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LEAVE_SECONDS", 0.05)
    async with dialled(topom.url) as proxy:
        assert not await proxy.control.leave()
        stream = await topom.stream()
        await stream.register()
        await proxy.handler.next("registered")
        assert not await proxy.control.leave()


@pytest.mark.parametrize("seconds", ["soon", None, [1], 0, -1, float("nan"), float("inf")])
async def test_a_heartbeat_that_makes_no_sense_ends_the_stream_and_not_the_proxy(
    topom: FakeTopom, seconds: object
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with dialled(topom.url) as proxy:
            stream = await topom.stream()
            await stream.register(heartbeat_seconds=seconds)
            await stream.end()
            stream = await topom.stream()
            await stream.register()
            await proxy.handler.next("registered")
    (problem,) = [entry["reason"] for entry in logs if entry["event"] == "topom_unreachable"]
    assert problem.startswith(
        "topom sent a message that cannot be used: registered.heartbeat_seconds: Input should be "
    )


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden", b"429 Too Many Requests"])
async def test_a_refused_token_is_explained(status: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()
        refused.set()

    refused = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    with structlog.testing.capture_logs() as logs:
        async with dialled(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
            for _ in range(2):
                await asyncio.wait_for(refused.wait(), SECONDS)
                refused.clear()
    server.close()
    assert "topom refuses the token" in next(entry for entry in logs if entry["event"] == "topom_unreachable")["reason"]


def sending_away(leader: str) -> dict[str, Any]:
    return {"type": "refused", "reason": "follower", "message": "this topom does not lead", "leader": leader}


async def test_a_topom_that_does_not_lead_sends_the_proxy_to_the_one_that_does(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that the test would give up if this time was waited.
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 10 * SECONDS)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 10 * SECONDS)
    async with fake_topom() as follower, fake_topom() as passed_over:
        async with dialled(follower.url, passed_over.url, topom.url):
            stream = await follower.stream()
            await stream.next("register")
            await stream.send(sending_away(topom.url))
            await (await topom.stream()).register()
        assert passed_over.streams.empty()


async def test_what_a_topom_said_before_it_closed_is_heard_although_nothing_could_be_sent(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 10 * SECONDS)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 10 * SECONDS)
    send = control._send

    async def late(stream: Any, message: dict[str, Any]) -> None:
        if stream.request.headers["Host"] in follower.url:
            await stream.wait_closed()
        await send(stream, message)

    monkeypatch.setattr(control, "_send", late)
    async with fake_topom() as follower, fake_topom() as passed_over:
        async with dialled(follower.url, passed_over.url, topom.url):
            stream = await follower.stream()
            await stream.send(sending_away(topom.url))
            await stream.close()
            await (await topom.stream()).register()
        assert passed_over.streams.empty()


async def test_without_knowing_the_leader_the_next_address_is_tried_at_once(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 10 * SECONDS)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 10 * SECONDS)
    async with fake_topom() as follower, dialled(follower.url, topom.url):
        stream = await follower.stream()
        await stream.next("register")
        await stream.send(sending_away("http://elsewhere:1"))
        stream = await topom.stream()
        await stream.register()
        # It led before, but it no longer does.
        await stream.send(sending_away(follower.url))
        await (await follower.stream()).register()


async def test_a_leader_that_gives_its_place_up_is_no_failure_after_earlier_ones(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        # Not those between heartbeats and pings.
        if seconds <= dialing.RETRY_SECONDS_MAX:
            rests.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(dialing.asyncio, "sleep", rest)
    beat = 2 * dialing.RETRY_SECONDS_MAX
    async with dialled(topom.url):
        for _ in range(5):
            await (await topom.stream()).close()
        stream = await topom.stream()
        await stream.register(heartbeat_seconds=beat)
        for _ in range(2):
            await stream.next("heartbeat")
        before = len(rests)
        await stream.send(sending_away(""))
        for _ in range(2):
            stream = await topom.stream()
            await stream.next("register")
            await stream.send(sending_away(""))
        await topom.stream()
    assert max(rests[:before]) > dialing.RETRY_SECONDS_MIN >= rests[before]


async def test_topoms_that_send_a_proxy_to_and_fro_are_not_dialled_without_a_rest(topom: FakeTopom) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    control_sleep = pytest.MonkeyPatch()
    control_sleep.setattr(dialing.asyncio, "sleep", rest)
    try:
        async with dialled(topom.url):
            for _ in range(4):
                stream = await topom.stream()
                await stream.next("register")
                await stream.send(sending_away(topom.url))
                await stream.end()
            await topom.stream()
    finally:
        control_sleep.undo()
    assert len(rests) >= 2


@pytest.mark.parametrize("method", ["registration", "heartbeat"])
async def test_a_message_of_its_own_that_breaks_the_rules_ends_the_stream_and_not_the_proxy(
    topom: FakeTopom, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    made = getattr(Recorder, method)
    broken = [True]

    def once(handler: Recorder) -> object:
        if broken.pop() if broken else False:
            return Heartbeat(epoch=-1)
        return made(handler)

    monkeypatch.setattr(Recorder, method, once)
    with structlog.testing.capture_logs() as logs:
        async with dialled(topom.url) as proxy:
            if method == "heartbeat":
                await (await topom.stream()).register()
            else:
                await topom.stream()
            stream = await topom.stream()
            await stream.register()
            await stream.next("heartbeat")
            assert not proxy.task.done()
    (reason,) = [entry["reason"] for entry in logs if entry["event"] in ("topom_lost", "topom_unreachable")]
    assert "epoch: Input should be greater than or equal to 0" in reason
