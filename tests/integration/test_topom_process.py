"""topom as a process, against real Redis servers, with a proxy that speaks the control stream over a WebSocket."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from slots.connections import fence_user, proxy_prefix
from slots.functions import slot
from slots.messages.copies import PATH, RegisterMigrator
from slots.messages.message import encode
from slots.messages.protocol import SPOKEN
from slots.table import SlotTable
from tests.integration.topom_process import TOKEN, HandProxy, TopomProcess, address_of, redis_server, topom_process

KEYS = 600


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(folder / "1") as first, redis_server(folder / "2") as second:
        yield first, second


def fence_users(server: redis.Redis) -> list[str]:
    users = [name.decode() for name in server.execute_command("ACL", "USERS")]
    return [name for name in users if name.startswith("slotferry-fenced")]


@pytest.fixture
def pair(servers: tuple[redis.Redis, redis.Redis]) -> tuple[redis.Redis, redis.Redis]:
    """Two empty servers; the first holds :data:`KEYS` keys, some of them in database 3."""
    first, second = servers
    for server in servers:
        server.flushall()
        for user in fence_users(server):
            server.execute_command("ACL", "DELUSER", user)
    first.mset({f"key:{number}": f"value {number}" for number in range(KEYS)})
    first.execute_command("SELECT", 0)
    other = redis.Redis(port=first.connection_pool.connection_kwargs["port"], db=3, protocol=2)
    other.set("key:0", "in database 3")
    other.close()
    return first, second


@pytest.fixture
async def topom(tmp_path: Path, pair: tuple[redis.Redis, redis.Redis]) -> AsyncIterator[TopomProcess]:
    """All slots in group 1 of the first server, group 2 of the second."""
    async with topom_process(
        tmp_path / "data", heartbeat_seconds=0.1, proxy_lease_seconds=4.0, barrier_seconds=30
    ) as one:
        for group_id, server in enumerate(pair, 1):
            await one.call("POST", "/groups", {"id": group_id, "servers": [address_of(server)]})
        await one.call("POST", "/slots/assign", {"slots": "0-15", "group_id": 1})
        yield one


def check_all_moved(pair: tuple[redis.Redis, redis.Redis], slots: set[int]) -> None:
    """Keys of ``slots`` are at the second server, the others at the first, each with its value."""
    for number in range(KEYS):
        key = f"key:{number}"
        at = 1 if slot("crc32", key.encode(), 16) in slots else 0
        assert pair[at].get(key) == f"value {number}".encode(), key
        assert pair[1 - at].get(key) is None, key


def in_state(state: str) -> Any:
    def withhold(table: SlotTable) -> bool:
        action = table.slots[0].action
        return (str(action.state) if action else "rest") == state

    return withhold


async def test_slots_and_their_keys_move(topom: TopomProcess, pair: tuple[redis.Redis, redis.Redis]) -> None:
    async with HandProxy(topom) as proxy, HandProxy(topom) as other:
        assert proxy.registered["product"]["number_of_slots"] == 16
        assert proxy.registered["product"]["slot_function"] == "crc32"
        assert proxy.registered["heartbeat_seconds"] == 0.1
        moves = (await topom.call("POST", "/rebalance"))["moves"]
        assert [move["slot"] for move in moves] == list(range(8, 16))
        await topom.call("POST", "/slots/move", {"slots": "0", "group_id": 2})
        status = await topom.at_rest(9)
        check_all_moved(pair, {0, *range(8, 16)})
        assert status["migration"]["keys_moved"] >= 300
        assert [group["slots"] for group in status["groups"]] == [7, 9]
        assert [server["role"] for group in status["groups"] for server in group["servers"]] == ["master", "master"]

        def all_counted(status: dict[str, Any]) -> bool:
            return sum(group["servers"][0]["keys"] for group in status["groups"]) == KEYS + 1

        # topom asks the servers now and then.
        await topom.until(all_counted)
        assert [entry["state"] for entry in status["proxies"]] == ["online", "online"]
        status = await topom.until(lambda s: {entry["epoch"] for entry in s["proxies"]} == {s["epoch"]})
        assert status["proxies"][0]["counters"] == {"requests": 1}
        for one in (proxy, other):
            assert one.table is not None
            assert one.table.epoch == status["epoch"]
            in_order = ["group 1", "pending", "preparing", "prepared", "migrating", "finished", "group 2"]
            # States may be passed over, for only the newest table matters; but not the lock.
            assert [state for state in in_order if state in one.states] == one.states
            assert "prepared" in one.states
        assert "since" in proxy.frames[-1]["table"], "changes, not the whole table"


@pytest.mark.long
async def test_what_moves_is_held_when_its_hours_are_over(
    topom: TopomProcess, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    """given hours that begin in two hours from now, nothing moves, and topom says when it will."""
    now = datetime.now(UTC)
    hours = f"{now + timedelta(hours=2):%H:00}-{now + timedelta(hours=3):%H:00}"
    async with HandProxy(topom):
        await topom.call("PATCH", "/migration", {"keys_per_second": 20, "time_zone": "UTC"})
        await topom.call("POST", "/slots/move", {"slots": "0-7", "group_id": 2})
        await topom.until(lambda status: status["migration"]["keys_moved"] >= 10)
        shown = await topom.call("PATCH", "/migration", {"hours": hours})
        assert shown["halted"]["what"].startswith(f"migration is outside its hours, {hours}; it goes on at ")
        begins = datetime.fromisoformat(shown["halted_until"])
        assert begins == (now + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
        await topom.call("POST", "/slots/move", {"slots": "8", "group_id": 2})
        async with asyncio.timeout(60):
            held = -1
            while pair[1].dbsize() != held:  # a batch that was under way
                held = pair[1].dbsize()
                await asyncio.sleep(1.0)
        assert pair[0].dbsize() > 0, "it is held, and not over"
        assert (await topom.call("GET", "/migration"))["slots_pending"] == 1
        await topom.call("PATCH", "/migration", {"hours": f"{hours}, 00:00-24:00", "keys_per_second": 0})
        await topom.at_rest(9)
        check_all_moved(pair, set(range(9)))


@pytest.mark.parametrize("state", ["preparing", "prepared", "migrating", "finished", "pending"])
async def test_topom_killed_in_each_state(
    topom: TopomProcess, pair: tuple[redis.Redis, redis.Redis], state: str
) -> None:
    async with HandProxy(topom, in_state(state)) as proxy:
        if state == "migrating":
            await topom.call("PATCH", "/migration", {"keys_per_second": 40})
        if state == "pending":
            await topom.call("POST", "/migration/pause")
        await topom.call("POST", "/slots/move", {"slots": "0-7", "group_id": 2})
        await topom.until(lambda status: state in proxy.states)
        if state == "migrating":
            await topom.until(lambda status: status["migration"]["keys_moved"] >= 10)
        slots = (await topom.call("GET", "/slots"))["slots"]
        assert slots[0]["action"]["state"] == state
        topom.kill()
        before = list(proxy.states)
        proxy.withhold = lambda table: False
        await topom.start()
        if state == "pending":
            assert (await topom.call("GET", "/migration"))["paused"]
            await topom.call("POST", "/migration/resume")
        if state == "migrating":
            await topom.call("PATCH", "/migration", {"keys_per_second": 0})
        await topom.at_rest(8)
        check_all_moved(pair, set(range(8)))
        later = proxy.states[len(before) :]
        if state == "prepared":
            assert later[0] == "preparing", "unlocked, then locked again"
        if state in ("migrating", "finished"):
            assert "preparing" not in later, "there is no way back from here"


@pytest.mark.long
async def test_a_lost_proxy_is_fenced_at_the_servers(
    topom: TopomProcess, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    async with HandProxy(topom) as proxy, HandProxy(topom):
        port = pair[0].connection_pool.connection_kwargs["port"]
        name = f"{proxy_prefix(proxy.instance)}1.0"
        backend = redis.Redis(port=port, client_name=name, protocol=2)
        backend.ping()
        proxy.silent = True
        await topom.until(lambda status: any(entry["state"] == "lost" for entry in status["proxies"]))
        await topom.call("POST", "/slots/move", {"slots": "0-7", "group_id": 2})
        status = await topom.at_rest(8)
        assert len(status["proxies"]) == 1
        for server in pair:
            assert fence_user(proxy.instance) in fence_users(server)
            assert name not in [entry["name"] for entry in server.client_list()]
        backend.close()
        assert [refusal["reason"] for refusal in proxy.refusals] == ["fenced"]
        check_all_moved(pair, set(range(8)))
        back = HandProxy(topom)
        back.instance, back.was_registered = proxy.instance, True
        async with back:
            assert back.refusals[0]["reason"] == "fenced"


@pytest.mark.long
async def test_many_proxies_lost_at_once_hold_up_no_failover(tmp_path: Path) -> None:
    """More of them than topom has connections to one server: their marks are set and looked for together."""
    allowance = 1.0
    with redis_server(tmp_path / "master") as master, redis_server(tmp_path / "replica") as replica:
        port = master.connection_pool.connection_kwargs["port"]
        replica.replicaof("127.0.0.1", port)
        settings = {
            "heartbeat_seconds": 0.2,
            "proxy_lease_seconds": 3.0,
            "ha": "topom",
            "stand_down_seconds": allowance,
            "protection_share": 1.0,
            "server_suspect_seconds": 2.0,
            "server_fail_seconds": 3.0,
        }
        async with topom_process(tmp_path / "data", **settings) as topom, AsyncExitStack() as stack:
            servers = [address_of(master), address_of(replica)]
            await topom.call("POST", "/groups", {"id": 1, "servers": servers})
            proxies = [HandProxy(topom) for _ in range(31)]
            for proxy in proxies:
                proxy.says = {"stands_down": allowance}
                await stack.enter_async_context(proxy)

            def ready(status: dict[str, Any]) -> bool:
                return all(
                    proxy["epoch"] == status["epoch"] and proxy["stand_down_seconds"] == allowance
                    for proxy in status["proxies"]
                )

            await topom.until(ready)
            for proxy in proxies:
                assert proxy.table is not None
                proxy.says["asked"] = proxy.table.epoch
            master.set("key", "value")
            master.wait(1, 0)
            # Before topom would choose the replica, it has to know how far the replica is.
            await topom.until(lambda status: not status["failing"])
            # When: only one proxy is left that says that it hears the master.
            for proxy in proxies[1:]:
                proxy.silent = True
            await topom.until(lambda status: sum(proxy["state"] == "lost" for proxy in status["proxies"]) == 30)
            with suppress(redis.ConnectionError):
                master.execute_command("SHUTDOWN", "NOSAVE")
            proxies[0].says["silent"] = {servers[0]: 60.0}

            def replaced(status: dict[str, Any]) -> bool:
                return [one["address"] for one in status["groups"][0]["servers"]] == servers[::-1]

            await topom.until(replaced)
            assert len(fence_users(replica)) == 30
            assert replica.info("replication")["role"] == "master"


async def test_a_proxy_leaves(topom: TopomProcess) -> None:
    async with HandProxy(topom) as proxy:
        # It acknowledges what it gets. It could not do that on a connection that topom has closed after `left`.
        await topom.until(lambda status: status["proxies"][0]["epoch"] == status["epoch"])
        await proxy.send(type="leave")
        await topom.until(lambda status: not status["proxies"])
        async with asyncio.timeout(60):
            while {"type": "left"} not in proxy.frames:
                await asyncio.sleep(0.01)


async def test_an_operator_removes_a_proxy(topom: TopomProcess, pair: tuple[redis.Redis, redis.Redis]) -> None:
    async with HandProxy(topom) as proxy:
        proxy_id = proxy.registered["proxy_id"]
        assert await topom.call("DELETE", f"/proxies/{proxy_id}") == {"id": proxy_id, "not_fenced": {}}
        assert fence_user(proxy.instance) in fence_users(pair[0])
        async with asyncio.timeout(60):
            while not proxy.refusals:
                await asyncio.sleep(0.01)
        assert proxy.refusals[0]["reason"] == "removed"


async def test_a_proxy_asks_for_the_whole_table(topom: TopomProcess) -> None:
    async with HandProxy(topom) as proxy:
        await proxy.send(type="resync")
        async with asyncio.timeout(60):
            while [frame["type"] for frame in proxy.frames] != ["registered", "table", "table"]:
                await asyncio.sleep(0.01)
        assert "since" not in proxy.frames[-1]["table"]
        assert len(SlotTable.from_wire(proxy.frames[-1]["table"]).slots) == 16


ODD_FRAMES: tuple[str | bytes, ...] = (
    b"\x00\xff", "", "7", "[" * 10_000, '{"type": "' + "x" * 2_000 + '"}',
    '{"type": "ack"}', '{"type": "ack", "epoch": -1}',
    '{"type": "heartbeat", "epoch": 1, "counters": {"requests": NaN}}',
    '{"type": "heartbeat", "epoch": 1, "silent": {"a:1": Infinity}}',
    '{"type": "heartbeat", "epoch": 1e400}', '{"type": "nack", "epoch": 1, "reason": {}}',
)  # fmt: skip


async def test_an_odd_frame_ends_the_stream_that_it_came_over_and_nothing_else(topom: TopomProcess) -> None:
    async with HandProxy(topom) as other:
        for odd in ODD_FRAMES:
            async with HandProxy(topom) as proxy:
                assert proxy._socket is not None
                await proxy._socket.send(odd)
                async with asyncio.timeout(60):
                    while not proxy.refusals:
                        await asyncio.sleep(0.01)
                assert proxy.refusals[0]["reason"] == "invalid"
        assert (other.refusals, other.attempts) == ([], 1)
        assert (await topom.call("GET", "/status"))["failing"] == {}
    assert "Traceback" not in topom.log()
    assert "exception" not in topom.log()


UNREADABLE_REPORTS = (
    {"copies": [], "disk": -1}, {"copies": [], "disk": 1e400}, {"copies": "none"}, {},
    {"copies": [{"copy_id": "c0ffee" + "0" * 26, "keys": -1, "size": 0}]},
    {"copies": [{"copy_id": "nobody's", "keys": 0, "size": 0}]},
)  # fmt: skip
ODD_OF_MIGRATORS = (
    "nonsense", "{}", '{"type": "nope"}', '{"type": "done"}', '{"type": "done", "number": -1}',
    '{"type": "failed", "number": 1, "kind": "data", "what": "void", "passing": 1}',
    encode(RegisterMigrator(instance="2" * 32, hostname="h", pid=1, version="1")),
)  # fmt: skip


@asynccontextmanager
async def registered(topom: TopomProcess) -> AsyncIterator[ClientConnection]:
    """A stream of a migrator."""
    headers = {"Authorization": f"Bearer {topom.token}"}
    async with connect(topom.url.replace("http", "ws") + PATH, additional_headers=headers) as stream:
        await stream.send(encode(RegisterMigrator(instance="1" * 32, hostname="h", pid=1, version="1")))
        while json.loads(await stream.recv())["type"] != "registered":
            pass
        yield stream


async def refusal(stream: ClientConnection) -> str:
    """Why topom ends the stream."""
    said: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        with suppress(ConnectionClosed):
            while True:
                said.append(json.loads(await stream.recv()))
    assert said[-1]["type"] == "refused"
    return str(said[-1]["message"])


async def test_a_report_that_cannot_be_read_is_passed_over_and_other_odd_frames_end_a_migrators_stream(
    topom: TopomProcess,
) -> None:
    async with registered(topom) as stream:
        for report in UNREADABLE_REPORTS:
            await stream.send(json.dumps({"type": "report", **report}))
        await stream.send("the end")
        assert "Invalid JSON" in await refusal(stream), "all before that was passed over"
    assert topom.log().count("report_passed_over") == 1, "it is not said each time"
    for odd in ODD_OF_MIGRATORS:
        async with registered(topom) as stream:
            await stream.send(odd)
            assert await refusal(stream)
    assert "Traceback" not in topom.log()


@pytest.mark.long
async def test_topom_keeps_a_connection_for_longer_than_its_clients_do(topom: TopomProcess) -> None:
    """Else a change that a follower passes on could meet the end of a connection, and nobody would know of it."""
    host, _, port = topom.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /api/v1/me HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert b"200 OK" in await reader.readline()
    began = time.monotonic()
    async with asyncio.timeout(60):
        await reader.read(-1)
    writer.close()
    clients_keep_it = httpx.Limits().keepalive_expiry
    assert clients_keep_it is not None
    assert time.monotonic() - began > clients_keep_it + 1


async def test_who_may_not_speak(topom: TopomProcess) -> None:
    url = topom.url.replace("http", "ws") + "/api/v1/control"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(InvalidStatus, match="403"):
            await connect(url, additional_headers=headers)
    register = {
        "type": "register",
        "protocol": SPOKEN,
        "instance": "a" * 32,
        "address": "a:1",
        "hostname": "h",
        "pid": 1,
        "workers": 1,
        "version": "0",
        "epoch": 0,
    }
    for frame in (
        "nonsense",
        "[]",
        '{"type":"heartbeat","epoch":0}',
        json.dumps({**register, "instance": "short"}),
        json.dumps({**register, "epoch": 10**9}),
        json.dumps({"type": "unknown"}),
    ):
        async with connect(url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
            await socket.send(frame)
            answer = json.loads(await socket.recv())
            assert (answer["type"], answer["reason"]) == ("refused", "invalid")
            with pytest.raises(ConnectionClosed):
                await socket.recv()


@pytest.mark.parametrize(("said", "speaks"), [({"protocol": 2}, "protocol 2"), ({}, "a protocol without a number")])
async def test_who_speaks_another_protocol_is_told_so(topom: TopomProcess, said: dict[str, int], speaks: str) -> None:
    """given frames of which nothing else can be read."""
    for peer, path, kind in (("proxy", "/api/v1/control", "register"), ("migrator", PATH, "register_migrator")):
        url, headers = topom.url.replace("http", "ws") + path, {"Authorization": f"Bearer {topom.token}"}
        async with connect(url, additional_headers=headers) as stream:
            await stream.send(json.dumps({"type": kind, "version": "9.9", **said}))
            assert (await refusal(stream)).startswith(f"the {peer} (version 9.9) speaks {speaks}, and this topom (")
    assert (await topom.call("GET", "/status"))["proxies"] == []


async def test_topom_stops_in_order_and_starts_again(topom: TopomProcess) -> None:
    async with HandProxy(topom) as proxy:
        epoch = (await topom.call("GET", "/status"))["epoch"]
        assert topom.stop() == 0
        await topom.start()
        status = await topom.until(lambda status: status["proxies"][0]["epoch"] == status["epoch"])
        assert status["epoch"] > epoch
        assert status["proxies"][0]["id"] == proxy.registered["proxy_id"]
        assert status["slots"]["assigned"] == 16


@pytest.mark.long
async def test_a_proxy_that_is_to_drain_is_told_so_by_the_next_topom_too(topom: TopomProcess) -> None:
    async with HandProxy(topom) as proxy:
        proxy_id = proxy.registered["proxy_id"]
        assert not (await topom.call("GET", "/proxies"))["proxies"][0]["draining"]
        assert (await topom.call("POST", f"/proxies/{proxy_id}/drain"))["draining"]

        async def told(times: int) -> None:
            async with asyncio.timeout(60):
                while sum(frame["type"] == "drain" for frame in proxy.frames) < times:
                    await asyncio.sleep(0.01)

        await told(1)
        assert topom.stop() == 0
        await topom.start()
        await told(2)
        assert (await topom.call("GET", "/status"))["proxies"][0]["draining"]


async def test_a_data_folder_is_used_by_one_topom(topom: TopomProcess) -> None:
    other = TopomProcess(topom.data)
    address = (topom.data / "address").read_text()
    with pytest.raises(AssertionError, match="another topom uses the data folder"):
        await other.start()
    (topom.data / "address").write_text(address)
    await topom.call("GET", "/status")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
async def test_a_log_that_cannot_be_written_costs_nothing_but_the_log(tmp_path: Path) -> None:
    topom = TopomProcess(tmp_path / "data")
    topom.log_file = Path("/dev/full")
    await topom.start()
    try:
        await topom.call("POST", "/groups", {"id": 1, "servers": []})
        assert (await topom.call("GET", "/status"))["groups"]
    finally:
        assert topom.stop() == 0


@pytest.mark.long
async def test_a_token_is_changed_while_everything_runs(tmp_path: Path) -> None:
    """Proxies with the old token and with the new one are members side by side; then the old one is refused."""
    following = "the-next-token-of-the-test"
    tokens = f"operator:next:{following}"
    async with topom_process(tmp_path / "data", tokens=tokens) as topom, HandProxy(topom) as old:
        topom.token = following
        async with HandProxy(topom) as new:
            assert old.attempts == new.attempts == 1
            status = await topom.call("GET", "/status")
            assert [proxy["state"] for proxy in status["proxies"]] == ["online", "online"]
    topom = TopomProcess(tmp_path / "data", token=following)
    await topom.start()
    try:
        await topom.call("GET", "/status", status=401)
        topom.token = following
        async with HandProxy(topom) as new:
            assert new.registered
    finally:
        assert topom.stop() == 0
