"""The client of topom's API against a topom that is played by a function."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from slotferry.calls import (
    READ_SECONDS,
    REQUEST_SECONDS,
    TopomAnswerInvalid,
    TopomError,
    TopomRefused,
    TopomUnauthorized,
    TopomUnreachable,
)
from slotferry.client import TopomClient
from topom.api.doctor import CLOCK_SECONDS
from topom.doctor import examining
from topom.term.peers import ANSWER_SECONDS

URL = "http://topom.test:8380"


def client_of(handler: Callable[[httpx.Request], httpx.Response], url: str = URL) -> TopomClient:
    return TopomClient(url, "very-secret", httpx.MockTransport(handler))


def answering(status: int, **options: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, **options)


REQUESTS: list[tuple[Callable[[TopomClient], Awaitable[Any]], str, str, Any]] = [
    (lambda topom: topom.status(), "GET", "/api/v1/status", None),
    (lambda topom: topom.add_group(1, ["h:1"]), "POST", "/api/v1/groups", {"id": 1, "servers": ["h:1"]}),
    (lambda topom: topom.remove_group(1), "DELETE", "/api/v1/groups/1", None),
    (
        lambda topom: topom.add_server(1, "h:1", wipe=True),
        "POST",
        "/api/v1/groups/1/servers",
        {"address": "h:1", "wipe": True},
    ),
    (lambda topom: topom.drain_server(1, "h:1", "old"), "POST", "/api/v1/groups/1/servers/h:1/drain?why=old", None),
    (lambda topom: topom.keep_server(1, "h:1"), "DELETE", "/api/v1/groups/1/servers/h:1/drain", None),
    (
        lambda topom: topom.drain_node("n1", "old", fewer_copies=True),
        "POST",
        "/api/v1/nodes/n1/drain?why=old&fewer_copies=true",
        None,
    ),
    (lambda topom: topom.keep_node("n1"), "DELETE", "/api/v1/nodes/n1/drain", None),
    (lambda topom: topom.drain_node("a?b"), "POST", "/api/v1/nodes/a%3Fb/drain", None),
    (lambda topom: topom.keep_node("a/b"), "DELETE", "/api/v1/nodes/a%2Fb/drain", None),
    (lambda topom: topom.drain_server(1, "h#1"), "POST", "/api/v1/groups/1/servers/h%231/drain", None),
    (lambda topom: topom.keep_server(1, "h?1"), "DELETE", "/api/v1/groups/1/servers/h%3F1/drain", None),
    (
        lambda topom: topom.add_group(1, ["h:1", "h:2"], wipe=True),
        "POST",
        "/api/v1/groups",
        {"id": 1, "servers": ["h:1", "h:2"], "wipe": True},
    ),
    (
        lambda topom: topom.add_group(1, ["h:1"], offline_ok=True),
        "POST",
        "/api/v1/groups",
        {"id": 1, "servers": ["h:1"], "offline_ok": True},
    ),
    (
        lambda topom: topom.add_server(1, "h:1", offline_ok=True),
        "POST",
        "/api/v1/groups/1/servers",
        {"address": "h:1", "offline_ok": True},
    ),
    (lambda topom: topom.add_server(1, "h:1"), "POST", "/api/v1/groups/1/servers", {"address": "h:1"}),
    (
        lambda topom: topom.add_group(1, ["h:1"], "paris"),
        "POST",
        "/api/v1/groups",
        {"id": 1, "servers": ["h:1"], "datacenter": "paris"},
    ),
    (
        lambda topom: topom.add_server(1, "h:1", "paris"),
        "POST",
        "/api/v1/groups/1/servers",
        {"address": "h:1", "datacenter": "paris"},
    ),
    (
        lambda topom: topom.set_datacenter(1, "h:1", ""),
        "PATCH",
        "/api/v1/groups/1/servers/h:1",
        {"datacenter": ""},
    ),
    (
        lambda topom: topom.set_place(1, "h:1", node="n1"),
        "PATCH",
        "/api/v1/groups/1/servers/h:1",
        {"node": "n1"},
    ),
    (lambda topom: topom.pool(), "GET", "/api/v1/pool", None),
    (lambda topom: topom.add_to_pool("h:1"), "POST", "/api/v1/pool", {"address": "h:1"}),
    (
        lambda topom: topom.add_to_pool("h:1", "paris", "n1", wipe=True),
        "POST",
        "/api/v1/pool",
        {"address": "h:1", "datacenter": "paris", "node": "n1", "wipe": True},
    ),
    (lambda topom: topom.placement(), "GET", "/api/v1/placement", None),
    (lambda topom: topom.apply_placement(), "POST", "/api/v1/placement/apply", {}),
    (lambda topom: topom.cancel_placement(), "POST", "/api/v1/placement/cancel", {}),
    (lambda topom: topom.set_auto_placement(True), "POST", "/api/v1/placement/auto", {"on": True}),
    (lambda topom: topom.remove_from_pool("h:1"), "DELETE", "/api/v1/pool/h:1", None),
    (lambda topom: topom.remove_server(1, "h:1"), "DELETE", "/api/v1/groups/1/servers/h:1", None),
    (lambda topom: topom.remove_server(1, "a/b:1"), "DELETE", "/api/v1/groups/1/servers/a%2Fb:1", None),
    (lambda topom: topom.remove_proxy(3), "DELETE", "/api/v1/proxies/3", None),
    (lambda topom: topom.remove_proxy(3, force=True), "DELETE", "/api/v1/proxies/3?force=true", None),
    (lambda topom: topom.slots(), "GET", "/api/v1/slots?biggest=0", None),
    (lambda topom: topom.slots(biggest=10), "GET", "/api/v1/slots?biggest=10", None),
    (lambda topom: topom.sizes(), "GET", "/api/v1/sizes", None),
    (lambda topom: topom.post_sizes({"taken_at": 1.5}), "POST", "/api/v1/sizes", {"taken_at": 1.5}),
    (
        lambda topom: topom.rebalance(
            "bytes", tolerance=0.1, most_slots=3, most_bytes=4, drain=[1, 2], capacity={3: 1.5, 4: 2.0}
        ),
        "POST",
        "/api/v1/rebalance?policy=bytes&dry_run=false&confirm=false&tolerance=0.1&most_slots=3&most_bytes=4&drain=1&drain=2"
        "&capacity=3%3D1.5&capacity=4%3D2.0",
        None,
    ),
    (lambda topom: topom.assign_slots("0-5", 2), "POST", "/api/v1/slots/assign", {"slots": "0-5", "group_id": 2}),
    (lambda topom: topom.move_slots("0-5", 2), "POST", "/api/v1/slots/move", {"slots": "0-5", "group_id": 2}),
    (lambda topom: topom.take_slots_offline("7"), "POST", "/api/v1/slots/offline", {"slots": "7"}),
    (lambda topom: topom.rebalance(), "POST", "/api/v1/rebalance?policy=codis&dry_run=false&confirm=false", None),
    (lambda topom: topom.rebalance("x", True), "POST", "/api/v1/rebalance?policy=x&dry_run=true&confirm=false", None),
    (lambda topom: topom.migration(), "GET", "/api/v1/migration", None),
    (lambda topom: topom.pause_migration(), "POST", "/api/v1/migration/pause", None),
    (lambda topom: topom.resume_migration(), "POST", "/api/v1/migration/resume", None),
    (lambda topom: topom.set_migration(min_replicas=9), "PATCH", "/api/v1/migration", {"min_replicas": 9}),
]


@pytest.mark.parametrize(("call", "method", "path", "body"), REQUESTS)
async def test_each_call_is_one_request_with_the_token(
    call: Callable[[TopomClient], Awaitable[Any]], method: str, path: str, body: Any
) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"epoch": 1})

    async with client_of(handler) as topom:
        assert await call(topom) == {"epoch": 1}
    [request] = seen
    assert (request.method, request.url.raw_path.decode()) == (method, path)
    assert request.headers["Authorization"] == "Bearer very-secret"
    assert (json.loads(request.content) if request.content else None) == body


async def test_lists_may_come_bare_or_in_an_object() -> None:
    async with client_of(answering(200, json={"proxies": [{"id": 1}]})) as topom:
        assert await topom.proxies() == [{"id": 1}]
    async with client_of(answering(200, json=[{"id": 1}])) as topom:
        assert await topom.groups() == [{"id": 1}]
    async with client_of(answering(200, json={})) as topom:
        with pytest.raises(TopomAnswerInvalid, match="without groups"):
            await topom.groups()


async def test_a_refusal_carries_topoms_own_sentence() -> None:
    refusal = answering(409, json={"error": "GroupInUse", "message": "group 1 owns slots; move them first"})
    async with client_of(refusal) as topom:
        with pytest.raises(TopomRefused, match="group 1 owns slots; move them first") as caught:
            await topom.remove_group(1)
    assert (caught.value.status, caught.value.error) == (409, "GroupInUse")


async def test_a_wrong_token_says_where_to_get_the_right_one() -> None:
    async with client_of(answering(401, json={"error": "x", "message": "y"})) as topom:
        with pytest.raises(TopomUnauthorized, match="SLOTFERRY_TOKEN") as caught:
            await topom.status()
    assert "very-secret" not in str(caught.value)


async def test_a_token_whose_role_is_too_small_says_which_is_needed() -> None:
    said = "this needs the role operator; the token grafana has the role viewer"
    async with client_of(answering(403, json={"error": "RoleRefused", "message": said})) as topom:
        with pytest.raises(TopomRefused, match=said):
            await topom.pause("x")


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.ReadError("")])
async def test_nobody_there(error: httpx.HTTPError) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    async with client_of(handler) as topom:
        with pytest.raises(TopomUnreachable, match=r"topom\.test"):
            await topom.status()
        assert not await topom.healthy()


@pytest.mark.parametrize("response", [{"text": "<html>"}, {"json": "a string"}])
async def test_something_else_answers(response: dict[str, Any]) -> None:
    async with client_of(answering(200, **response)) as topom:
        with pytest.raises(TopomAnswerInvalid, match="not topom"):
            await topom.status()


async def test_a_failure_without_a_sentence_still_says_something() -> None:
    async with client_of(answering(500, text="oops")) as topom:
        with pytest.raises(TopomRefused, match="HTTP status 500"):
            await topom.status()


@pytest.mark.parametrize("url", ["127.0.0.1:8380", "http://", "http://h:notaport"])
async def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TopomError, match="--topom"):
        async with TopomClient(url, "x") as topom:
            await topom.status()


async def test_an_address_without_http_is_said_with_it() -> None:
    async with TopomClient("10.0.0.1:8380", "x") as topom:
        with pytest.raises(TopomError, match=r"write http://10\.0\.0\.1:8380 in --topom"):
            await topom.status()


async def test_a_redis_server_or_a_proxy_taken_for_a_topom_is_said() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # As Redis does, which takes HTTP for an attack.
        await reader.readline()
        writer.close()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"-ERR unknown command\r\n")
        writer.close()

    for behaviour in (answer, reply):
        server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with TopomClient(url, "x") as topom:
                with pytest.raises(TopomUnreachable, match="is it a proxy or a Redis server"):
                    await topom.status()


async def test_a_connection_that_is_ended_at_once_may_be_by_a_topom_with_tls() -> None:
    """As such a topom ends one that begins in the clear: with the rest of the request unread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def end() -> None:
            with listening.accept()[0] as taken:
                taken.recv(1)

        ending = asyncio.create_task(asyncio.to_thread(end))
        async with TopomClient(f"http://127.0.0.1:{listening.getsockname()[1]}", "x") as topom:
            with pytest.raises(TopomUnreachable, match="if it is topom and serves TLS, write https:// in its URL"):
                await topom.status()
        await ending


@pytest.mark.parametrize("token", ["gehe\u00efm\u2028very-secret", "very-secret\n", "very-secret\r", "a very-secret"])
async def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(TopomError, match=r"printable ASCII characters.*--token") as caught:
        async with TopomClient(URL, token) as topom:
            await topom.status()
    assert "very-secret" not in str(caught.value)


class Several:
    """Three topoms: what each answers, also whether it is ready, and what else it was asked."""

    def __init__(self, **answers: Callable[[httpx.Request], httpx.Response] | None) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        answer = self.answers[host]
        if answer is None:
            raise httpx.ConnectError("refused")
        if request.url.path != "/readyz":
            self.asked.append(host)
        return answer(request)

    def client(self) -> TopomClient:
        return client_of(self, ",".join(f"http://{name}:1" for name in self.answers))


def well(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"epoch": 1})


def cut_off(request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json={"error": "NotLeading", "message": "the store does not answer"})


async def test_of_several_topoms_one_that_is_well_is_asked() -> None:
    several = Several(a=None, b=cut_off, c=well)
    async with several.client() as topom:
        assert await topom.move_slots("0-5", 2) == {"epoch": 1}
        assert await topom.move_slots("0-5", 2) == {"epoch": 1}
        assert topom.url == "http://c:1"
    assert several.asked == ["c", "c"]


async def test_another_topom_is_asked_when_the_one_in_use_has_gone_or_does_not_lead() -> None:
    several = Several(a=well, b=well, c=well)
    async with several.client() as topom:
        await topom.status()
        for gone, other in ((None, "b"), (cut_off, "a")):
            several.answers[topom.url[7]] = gone
            several.answers[other] = well
            assert await topom.move_slots("0-5", 2) == {"epoch": 1}
            assert topom.url == f"http://{other}:1"


async def test_what_may_have_been_done_is_not_asked_of_another_topom() -> None:
    def lost(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/readyz":
            return httpx.Response(200, json={"ok": True})
        raise httpx.ReadError("reset")

    several = Several(a=lost, b=well)
    async with several.client() as topom:
        with pytest.raises(TopomUnreachable):
            await topom.move_slots("0-5", 2)
    assert several.asked == ["a"]


async def test_when_no_topom_is_well_its_reason_is_heard() -> None:
    several = Several(a=None, b=cut_off, c=None)
    async with several.client() as topom:
        assert not await topom.healthy()
        with pytest.raises(TopomRefused, match="the store does not answer"):
            await topom.move_slots("0-5", 2)


async def test_when_nobody_answers_at_any_address() -> None:
    several = Several(a=None, b=None)
    async with several.client() as topom:
        with pytest.raises(TopomUnreachable, match="http://a:1"):
            await topom.status()
        with pytest.raises(TopomUnreachable, match=r"topom does not answer at any of http://a:1, http://b:1 .refused"):
            await topom.move_slots("0-5", 2)


async def test_one_of_several_topoms_has_as_long_for_the_doctor_as_the_only_one() -> None:
    """It asks all servers, for longer than other reads may take."""
    waited: dict[str, float] = {}

    def look(request: httpx.Request) -> httpx.Response:
        waited[request.url.path] = request.extensions["timeout"]["read"]
        return well(request)

    several = Several(a=look, b=look)
    async with several.client() as topom:
        await topom.doctor()
        await topom.status()
    assert (waited["/api/v1/doctor"], waited["/api/v1/status"]) == (REQUEST_SECONDS, READ_SECONDS)


def test_whoever_waits_for_the_doctor_waits_longer_than_it_may_take() -> None:
    """Ten seconds are left for looking at the answers of thousands of servers."""
    assert examining.SECONDS + CLOCK_SECONDS + 10 < ANSWER_SECONDS < REQUEST_SECONDS
