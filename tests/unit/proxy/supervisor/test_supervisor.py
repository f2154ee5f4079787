"""The supervisor between a played topom and fake workers, which are real processes."""

import asyncio
import contextlib
import math
import os
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
import redis
import structlog

from proxy.settings import ProxySettings
from proxy.supervisor import serverviews, supervisor, workforce
from proxy.supervisor.supervisor import Supervisor
from proxy.supervisor.workforce import SILENT_TICKS
from slots import dialing
from slots.connections import worker_prefix
from slots.group import Group
from slots.messages.message import MOST_TEXT
from tests.unit.proxy.proxy_fakes import SECONDS, DirectedWorker, Director, FakeTopom, TopomStream, table

LOCK = (1, "prepared", 2)
ENDED = {"all": 0.0, "groups": {}, "ended": True}
NO_TABLE = "this proxy has no slot table from topom yet"
STOOD_DOWN = "this proxy serves no group until topom or all replicas of a group answer it"
SHUT_OUT = "this proxy was shut out as lost or fenced off, and waits until topom takes it in again"


class Proxy:
    """A supervisor under test with what it talks to."""

    def __init__(self, topom: FakeTopom, director: Director, **settings: Any) -> None:
        fixed = {"listen": "127.0.0.1:0", "metrics": "127.0.0.1:0", "workers": 2, "token": "t", "drain_seconds": 5}
        self.supervisor = Supervisor(
            ProxySettings.load(**{**fixed, "topom": [topom.url], **settings}), director.command
        )
        self.topom = topom
        self.director = director
        self.task = asyncio.create_task(self.supervisor.serve())

    async def begin(self, **product: Any) -> tuple[TopomStream, list[DirectedWorker], list[dict[str, Any]]]:
        """Register; gives the stream, and the workers with their ``start`` messages, by index."""
        stream = await self.topom.stream()
        await stream.register(**product)
        found = [await self.director.worker() for _ in range(self.supervisor.settings.workers)]
        found.sort(key=lambda pair: pair[1]["index"])
        return stream, [worker for worker, _ in found], [start for _, start in found]

    async def ended(self) -> int:
        return await asyncio.wait_for(asyncio.shield(self.task), SECONDS)

    async def get(self, path: str) -> tuple[bool, str]:
        """Whether the answer is 200, and the answer."""
        host, _, port = self.supervisor.metrics_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head.startswith(b"HTTP/1.1 200"), body.decode()

    async def readiness(self) -> str:
        """The answer to ``/readyz``; the proxy lives, whatever it is."""
        assert await self.get("/livez") == (True, "ok\n")
        ready, body = await self.get("/readyz")
        assert ready == (body == "ok\n")
        return body.removesuffix("\n")

    async def figure(self, name: str) -> float:
        """A metric without labels."""
        _, body = await self.get("/metrics")
        return next(float(line.split()[1]) for line in body.splitlines() if line.startswith(f"slotferry_proxy_{name} "))


@contextlib.asynccontextmanager
async def running(topom: FakeTopom, director: Director, **settings: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy(topom, director, **settings)
    try:
        yield proxy
    finally:
        proxy.supervisor.stop()
        proxy.supervisor.stop()
        await asyncio.wait_for(asyncio.gather(proxy.task, return_exceptions=True), SECONDS)


@pytest.fixture
async def proxy(topom: FakeTopom, director: Director) -> AsyncIterator[Proxy]:
    async with running(topom, director) as started:
        yield started


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 0.005)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 0.02)
    monkeypatch.setattr(workforce, "RESTART_SECONDS_MIN", 0.005)
    monkeypatch.setattr(supervisor, "LEFTOVERS_SECONDS", 0.2)
    # The fake workers say nothing by themselves, however long a test takes.
    monkeypatch.setattr(workforce, "SILENT_TICKS", math.inf)


# Starting


async def test_workers_start_once_the_product_is_known_and_get_all_they_need(proxy: Proxy) -> None:
    stream = await proxy.topom.stream()
    registration = await stream.register(number_of_slots=2)
    assert registration["address"] == proxy.supervisor.address
    assert not registration["address"].endswith(":0")
    assert (registration["workers"], registration["epoch"]) == (2, 0)
    starts = sorted([(await proxy.director.worker())[1] for _ in range(2)], key=lambda start: start["index"])
    assert [start["index"] for start in starts] == [0, 1]
    assert len({start["incarnation"] for start in starts}) == 2
    for start in starts:
        assert start["instance"] == registration["instance"]
        product = {"name": "demo", "number_of_slots": 2, "slot_function": "crc32", "databases": 16}
        assert start["product"] == product
        settings = ProxySettings.from_wire(start["settings"])
        assert settings.listen == registration["address"]
        assert settings.token.get_secret_value() == "t"


async def test_a_proxy_is_ready_once_it_has_a_table_and_a_worker_listens(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    assert await proxy.readiness() == NO_TABLE
    await stream.send_table(table(1, 1))
    for worker in workers:
        await worker.apply()
    await stream.next("ack")
    assert await proxy.readiness() == "no worker of this proxy listens"
    for index, worker in enumerate(workers):
        worker.say("ready", address=proxy.supervisor.address)
        worker.say("ask", id=1, question={"what": "kill_clients", "filter": {}, "asker": index})
        while (await worker.next("ask"))["question"]["asker"] != index:
            pass  # once its own question comes back, what it said before was heard
        assert await proxy.readiness() == "ok"
        assert (await proxy.figure("epoch"), await proxy.figure("workers_ready")) == (1, index + 1)


async def test_a_proxy_that_has_stood_down_from_all_groups_with_slots_is_not_ready(proxy: Proxy) -> None:
    """Neither topom nor the replica of group 1 answers it. Group 2 has no replica, so it is served."""
    groups = {1: Group(1, ("127.0.0.1:1", "127.0.0.1:3")), 2: Group(2, ("127.0.0.1:2",))}
    stream, workers, _ = await proxy.begin(number_of_slots=2, stand_down_seconds=0.2)
    for epoch, owners, expected in ((1, (1, 1), STOOD_DOWN), (2, (1, 2), "ok"), (3, (1, 0), STOOD_DOWN)):
        await stream.send_table(replace(table(epoch, *owners), groups=groups))
        for worker in workers:
            await worker.apply()
            worker.say("ready", address=proxy.supervisor.address)
        await stream.next("ack")
        async with asyncio.timeout(SECONDS):
            while await proxy.readiness() != expected:
                await asyncio.sleep(0.01)


async def test_counters_are_summed_in_heartbeats(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin()
    for worker in workers:
        worker.say("counters", counters={"requests": 10, "clients": 1})
    summed = {"requests": 20, "errors": 0, "clients": 2, "held": 0}
    settings = {"settings_since", "settings_restart", "settings_refused"}
    while {
        name: value for name, value in (await stream.next("heartbeat"))["counters"].items() if name not in settings
    } != summed:
        pass


async def test_nothing_is_said_of_servers_that_never_answered_yet(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that starts while a server is dead has not heard it, however short its silence."""
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    # Nobody listens at ports 1 and 2.
    await stream.send_table(table(1, 1))
    for worker in workers:
        await worker.apply()
    while (heartbeat := await stream.next("heartbeat"))["epoch"] != 1:
        pass
    servers = {"127.0.0.1:1", "127.0.0.1:2"}
    assert (heartbeat["asked"], heartbeat["silent"], set(heartbeat["unanswered"])) == (1, {}, servers)
    monkeypatch.setattr(serverviews, "UNANSWERED_SECONDS", 0.01)
    while set((heartbeat := await stream.next("heartbeat"))["silent"]) != servers:
        pass


async def test_workers_ask_each_other(proxy: Proxy) -> None:
    _, workers, _ = await proxy.begin()
    workers[0].say("ask", id=5, question={"what": "client_counts"})
    for worker in workers:
        worker.say("answer", id=(await worker.next("ask"))["id"], answer=worker.pid)
    assert (await workers[0].next("answers"))["answers"] == [worker.pid for worker in workers]


# Tables


async def test_an_epoch_is_acknowledged_once_all_workers_apply_it(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    await workers[0].apply()
    assert (await stream.next("heartbeat"))["epoch"] == 0
    await workers[1].apply()
    assert await stream.next("ack") == {"type": "ack", "epoch": 3}


async def test_workers_get_changes_and_a_new_worker_the_whole_table(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    first, second = table(3, 1), table(4, 2)
    await stream.send_table(first)
    for worker in workers:
        assert await worker.apply() == {"type": "table", "table": first.to_wire()}
    await stream.send_table(second, since=first)
    for worker in workers:
        assert await worker.apply() == {"type": "table", "table": second.changes_since(first)}
    workers[1].order(do="exit", status=1)
    newcomer, _ = await proxy.director.worker()
    assert await newcomer.apply() == {"type": "table", "table": second.to_wire()}


async def test_a_worker_that_cannot_follow_gets_the_whole_table(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    await workers[0].next("table")
    workers[0].say("resync")
    assert await workers[0].next("table") == {"type": "table", "table": table(3, 1).to_wire()}


async def test_changes_to_an_unknown_table_are_answered_with_resync(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(9, 2), since=table(8, 1))
    await stream.next("resync")
    await stream.send_table(table(9, 2))
    assert (await workers[0].next("table"))["table"]["epoch"] == 9


async def test_an_older_epoch_is_refused(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    await stream.send_table(table(2, 2))
    await stream.send_table(table(3, 2))
    await stream.send_table(table(4, 1))
    for worker in workers:
        assert [(await worker.apply())["table"]["epoch"] for _ in range(2)] == [3, 4]


async def test_a_table_of_another_size_ends_the_stream(proxy: Proxy) -> None:
    stream, _, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1, 1))
    await stream.end()
    await (await proxy.topom.stream()).register(number_of_slots=1)


async def test_another_product_is_refused(proxy: Proxy) -> None:
    await (await proxy.begin(number_of_slots=1))[0].close()
    stream = await proxy.topom.stream()
    await stream.register(number_of_slots=2)
    await stream.end()


async def test_a_worker_that_cannot_drain_is_reported(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, LOCK))
    await workers[0].apply()
    workers[1].say("nack", epoch=3, reason="2 replies are outstanding")
    assert await stream.next("nack") == {"type": "nack", "epoch": 3, "reason": "worker 1: 2 replies are outstanding"}


async def test_a_reason_may_be_longer_than_a_message_takes(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, LOCK))
    workers[1].say("nack", epoch=3, reason="x" * MOST_TEXT)
    reason = (await stream.next("nack"))["reason"]
    assert (len(reason), reason[:11], reason[-4:]) == (MOST_TEXT, "worker 1: x", "x...")


async def test_what_was_acknowledged_is_said_again_on_a_new_stream(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    for worker in workers:
        await worker.apply()
    await stream.next("ack")
    await stream.close()
    again = await proxy.topom.stream()
    registration = await again.register(number_of_slots=1)
    assert registration["epoch"] == 3
    assert (await again.next("ack"))["epoch"] == 3


# Death of a worker


async def test_a_dead_worker_is_replaced_and_the_others_are_not_disturbed(proxy: Proxy) -> None:
    _, workers, starts = await proxy.begin(number_of_slots=1)
    os.kill(workers[0].pid, signal.SIGKILL)
    newcomer, start = await proxy.director.worker()
    assert start["index"] == 0
    assert start["incarnation"] > max(start["incarnation"] for start in starts)
    workers[1].say("ask", id=1, question={"what": "statistics"})
    assert {(await worker.next("ask"))["question"]["what"] for worker in (workers[1], newcomer)} == {"statistics"}


@pytest.mark.long
async def test_a_hung_worker_is_replaced(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, workers, _ = await proxy.begin()
    workers[1].order(do="chatter")
    while (await stream.next("heartbeat"))["counters"]["requests"] == 0:
        pass
    staff = proxy.supervisor.member.workforce
    tick, hung = staff.tick, staff.alive[0]

    def once_the_other_was_heard() -> None:
        # On a busy machine that may take any time, and so may the start of the newcomer, which says nothing.
        if staff.alive[1].silent_ticks == 0 and staff.alive.get(0) is hung:
            tick()

    monkeypatch.setattr(staff, "tick", once_the_other_was_heard)
    monkeypatch.setattr(workforce, "SILENT_TICKS", SILENT_TICKS)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.05)
    os.kill(workers[0].pid, signal.SIGSTOP)
    await workers[0].end()
    assert (await proxy.director.worker())[1]["index"] == 0
    workers[1].say("ask", id=1, question={"what": "statistics"})
    assert (await workers[1].next("ask"))["question"]["what"] == "statistics"


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("ack", {}, "ack.epoch: Field required"),
        ("ack", {"epoch": -1}, "ack.epoch: Input should be greater than or equal to 0"),
        ("limited", {"more": 1}, "limited.more: Extra inputs are not permitted"),
        ("of another version", {}, "message: Input tag 'of another version' found"),
    ],
)
async def test_a_worker_that_makes_no_sense_is_replaced(
    proxy: Proxy, kind: str, fields: dict[str, Any], reason: str
) -> None:
    _, workers, _ = await proxy.begin()
    with structlog.testing.capture_logs() as logs:
        workers[1].say(kind, **fields)
        await workers[1].end()
        assert (await proxy.director.worker())[1]["index"] == 1
    [entry] = [entry for entry in logs if entry["event"] == "worker_not_understood"]
    assert entry["reason"].startswith(f"a message came that cannot be used: {reason}")


async def served_from(proxy: Proxy, server: str) -> tuple[TopomStream, list[DirectedWorker], str]:
    """Table 3 is acknowledged; gives the name that a connection of worker 0 to ``server`` would have."""
    stream, workers, starts = await proxy.begin(number_of_slots=2)
    await stream.send_table(table(3, 1, 2, servers={1: server, 2: "127.0.0.1:1"}))
    for worker in workers:
        await worker.apply()
    await stream.next("ack")
    name = worker_prefix(starts[0]["instance"], starts[0]["incarnation"]) + "x"
    return stream, workers, name


async def test_connections_of_a_dead_worker_are_ended_before_a_lock_is_acknowledged(
    proxy: Proxy, redis_server: str
) -> None:
    stream, workers, name = await served_from(proxy, redis_server)
    with redis.Redis(port=int(redis_server.rpartition(":")[2]), client_name=name) as left, contextlib.closing(left):
        left.ping()
        os.kill(workers[0].pid, signal.SIGKILL)
        newcomer, _ = await proxy.director.worker()
        await stream.send_table(table(4, LOCK, 2, servers={1: redis_server, 2: "127.0.0.1:1"}))
        for worker in (workers[1], newcomer):
            while (await worker.apply())["table"]["epoch"] != 4:
                pass
        assert (await stream.next("ack", "nack")) == {"type": "ack", "epoch": 4}
        with redis.Redis(port=int(redis_server.rpartition(":")[2])) as admin:
            assert name not in {entry["name"] for entry in admin.client_list()}


async def test_only_servers_that_a_dead_worker_may_have_sent_to_have_leftovers(
    topom: FakeTopom, director: Director
) -> None:
    with socket.socket() as former, socket.socket() as present:  # bound, but nobody listens
        servers = []
        for closed in (former, present):
            closed.bind(("127.0.0.1", 0))
            servers.append(f"127.0.0.1:{closed.getsockname()[1]}")
        async with running(topom, director, workers=1) as proxy:
            stream, (worker,), _ = await proxy.begin(number_of_slots=1)
            for epoch, server in enumerate(servers, 3):
                await stream.send_table(table(epoch, 1, servers={1: server}))
                await worker.apply()
                await stream.next("ack")
            os.kill(worker.pid, signal.SIGKILL)
            await director.worker()
            assert proxy.supervisor.member.leftovers.servers == servers[1:]
            assert await proxy.figure("servers_with_leftover_connections") == 1


async def test_a_lock_is_refused_while_a_dead_worker_has_leftovers(topom: FakeTopom, director: Director) -> None:
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{closed.getsockname()[1]}"
        async with running(topom, director, lock_drain_seconds=0.01) as proxy:
            stream, workers, _ = await served_from(proxy, server)
            os.kill(workers[0].pid, signal.SIGKILL)
            newcomer, _ = await director.worker()
            servers = {1: server, 2: "127.0.0.1:1"}
            await stream.send_table(table(4, LOCK, 2, servers=servers))
            for worker in (workers[1], newcomer):
                while (await worker.apply())["table"]["epoch"] != 4:
                    pass
            refusal = await stream.next("ack", "nack")
            assert refusal["type"] == "nack"
            assert server in refusal["reason"]
            # A table that takes nothing from that group is still acknowledged.
            await stream.send_table(table(5, (1, "preparing", 2), 2, servers=servers))
            for worker in (workers[1], newcomer):
                await worker.apply()
            assert await stream.next("ack", "nack") == {"type": "ack", "epoch": 5}


# Identity


async def test_a_shut_out_proxy_gives_its_workers_identity_and_table_together(proxy: Proxy) -> None:
    stream, workers, starts = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    for worker in workers:
        await worker.apply()
    await stream.next("ack")
    await stream.send({"type": "refused", "reason": "fenced", "message": "You were silent for 5 seconds."})
    for worker, start in zip(workers, starts, strict=True):
        assert await worker.next("allowance") == {"type": "allowance", "instance": start["instance"], "grant": ENDED}
    again = await proxy.topom.stream()
    registration = await again.register(number_of_slots=1)
    assert registration["instance"] != starts[0]["instance"]
    assert (registration["epoch"], registration["registered_before"]) == (0, False)
    # Changes are of no use, because the workers have the table of the former identity.
    await again.send_table(table(4, 2), since=table(3, 1))
    await again.next("resync")
    await again.send_table(table(4, 2))
    for worker, start in zip(workers, starts, strict=True):
        received = await worker.next("table", "identity", "resync")
        assert received == {
            "type": "identity",
            "instance": registration["instance"],
            "incarnation": start["incarnation"],
            "table": table(4, 2).to_wire(),
            "allowance": {"all": None, "groups": {}, "ended": False},
            "known_servers": {"processes": {}, "until": ANY},
        }


async def test_what_was_said_under_a_former_identity_does_not_count(topom: FakeTopom, director: Director) -> None:
    async with running(topom, director, workers=1) as proxy:
        stream, (worker,), (start,) = await proxy.begin(number_of_slots=1)
        await stream.send_table(table(3, 1))
        await worker.apply()
        await stream.next("ack")
        await stream.send({"type": "refused", "reason": "fenced", "message": "You were silent."})
        again = await topom.stream()
        instance = (await again.register(number_of_slots=1))["instance"]
        await again.send_table(table(3, 1))
        await worker.next("identity")
        worker.say("ack", epoch=3, instance=start["instance"])
        worker.say("ask", id=1, question={"what": "statistics"})
        await worker.next("ask")
        assert await proxy.figure("epoch") == 0
        worker.say("ack", epoch=3, instance=instance)
        assert (await again.next("ack"))["epoch"] == 3


async def test_a_worker_started_between_identities_gets_no_stale_table(proxy: Proxy) -> None:
    stream, workers, starts = await proxy.begin(number_of_slots=1)
    await stream.send_table(table(3, 1))
    await stream.send({"type": "refused", "reason": "removed", "message": "An operator removed you."})
    again = await proxy.topom.stream()
    registration = await again.register(number_of_slots=1)
    workers[0].order(do="exit", status=1)
    newcomer, start = await proxy.director.worker()
    assert (start["instance"], start["allowance"]) == (starts[0]["instance"], ENDED)
    await again.send_table(table(3, 1))
    received = await newcomer.next("table", "identity")
    assert (received["type"], received["instance"]) == ("identity", registration["instance"])


async def test_former_connections_are_ended_before_a_slot_is_taken_from_their_group(
    proxy: Proxy, redis_server: str
) -> None:
    stream, workers, name = await served_from(proxy, redis_server)
    port = int(redis_server.rpartition(":")[2])
    with redis.Redis(port=port, client_name=name) as left, redis.Redis(port=port) as admin:
        left.ping()
        await stream.send({"type": "refused", "reason": "fenced", "message": "You were silent."})
        again = await proxy.topom.stream()
        await again.register(number_of_slots=2)
        await again.send_table(table(4, LOCK, 2, servers={1: redis_server, 2: "127.0.0.1:1"}))
        identities = [await worker.next("identity") for worker in workers]
        assert name in {entry["name"] for entry in admin.client_list()}  # workers have not yet said they closed theirs
        for worker in workers:
            worker.say("ack", epoch=4, instance=identities[0]["instance"])
        assert await again.next("ack", "nack") == {"type": "ack", "epoch": 4}
        assert name not in {entry["name"] for entry in admin.client_list()}


async def test_a_worker_that_finds_the_fence_makes_the_proxy_register_anew(proxy: Proxy) -> None:
    stream, workers, starts = await proxy.begin(number_of_slots=1)
    workers[0].say("fenced", server="h:1", instance=starts[0]["instance"])
    for worker in workers:
        assert (await worker.next("allowance"))["grant"]["ended"], "all are told, whoever has found it"
    assert await proxy.readiness() == SHUT_OUT
    workers[1].say("fenced", server="h:1", instance=starts[0]["instance"])
    await stream.end()
    assert (await (await proxy.topom.stream()).register())["instance"] != starts[0]["instance"]


# Ending


async def test_draining_lets_workers_finish_and_leaves_topom(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    proxy.supervisor.stop()
    for worker in workers:
        await worker.next("drain")
    assert await proxy.readiness() == "this proxy drains"
    await stream.send_table(table(3, 1))  # the barrier goes on meanwhile
    for worker in workers:
        await worker.apply()
    await stream.next("ack")
    for worker in workers:
        worker.order(do="exit", status=0)
    await stream.next("leave")
    await stream.send({"type": "left"})
    assert await proxy.ended() == 0


@pytest.mark.parametrize("heard", [False, True])
async def test_a_stream_that_is_lost_when_the_proxy_leaves_is_no_reason_to_go_without_a_word(
    topom: FakeTopom, director: Director, heard: bool
) -> None:
    async with running(topom, director, workers=1) as proxy:
        stream, workers, _ = await proxy.begin(number_of_slots=1)
        proxy.supervisor.stop()
        await workers[0].next("drain")
        # topom is down when all that is left to do is to say so, and once more while the proxy says so.
        await topom.stop()
        await stream.close()
        await stream.end()
        workers[0].order(do="exit", status=0)
        await workers[0].end()
        await topom.start(int(topom.url.rpartition(":")[2]))
        for _ in range(2):
            stream = await topom.stream()
            await stream.register(number_of_slots=1)
            await stream.next("leave")
            await stream.close()
        stream = await topom.stream()
        if heard:
            assert (await stream.next("register"))["registered_before"]
            await stream.send({"type": "refused", "reason": "fenced", "message": "It is no member any more."})
        else:
            await stream.register(number_of_slots=1)
            await stream.next("leave")
            await stream.send({"type": "left"})
        with structlog.testing.capture_logs() as logs:
            assert await proxy.ended() == 0
        assert "proxy_left" in [entry["event"] for entry in logs]


async def test_topom_may_have_it_drain_and_a_signal_then_is_the_first(proxy: Proxy) -> None:
    stream, workers, _ = await proxy.begin(number_of_slots=1)
    assert not (await stream.next("heartbeat"))["draining"]
    for _ in range(2):
        await stream.send({"type": "drain"})
    for worker in workers:
        await worker.next("drain")
    while not (await stream.next("heartbeat"))["draining"]:
        continue
    await stream.close()
    stream = await proxy.topom.stream()
    assert (await stream.register(number_of_slots=1))["draining"], "another topom is told"
    await stream.send({"type": "drain"})
    proxy.supervisor.stop()
    for worker in workers:
        worker.order(do="exit", status=0)
    await stream.next("leave")
    await stream.send({"type": "left"})
    assert await proxy.ended() == 0


async def test_a_worker_that_does_not_drain_is_killed(
    topom: FakeTopom, director: Director, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workforce, "DRAIN_MARGIN_SECONDS", 0.5)
    async with running(topom, director, drain_seconds=0.1, drain_last_seconds=0.1) as proxy:
        stream, workers, _ = await proxy.begin(number_of_slots=1)
        proxy.supervisor.stop()
        await workers[0].next("drain")
        workers[0].order(do="exit", status=0)
        await workers[1].end()
        await stream.next("leave")
        await stream.send({"type": "left"})
        assert await proxy.ended() == 0


async def test_who_leaves_connections_does_not_say_that_it_left(topom: FakeTopom, director: Director) -> None:
    async with running(topom, director, workers=1) as proxy:
        stream, workers, _ = await proxy.begin(number_of_slots=1)
        await stream.send_table(table(3, 1))
        await workers[0].apply()
        proxy.supervisor.stop()
        await workers[0].next("drain")
        workers[0].order(do="exit", status=1)
        with pytest.raises(EOFError):
            await stream.next("leave")
        assert await proxy.ended() == 0


async def test_a_second_stop_ends_at_once(proxy: Proxy) -> None:
    _, workers, _ = await proxy.begin()
    proxy.supervisor.stop()
    await workers[0].next("drain")
    proxy.supervisor.stop()
    assert await proxy.ended() == 1
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


@pytest.mark.long
async def test_stopping_before_topom_was_ever_reached(topom: FakeTopom, director: Director) -> None:
    await topom.stop()
    async with running(topom, director) as proxy:
        proxy.supervisor.stop()
        assert await proxy.ended() == 0
