"""Tokens with roles, and sessions of browsers, at a real topom."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from slots.messages.copies import RegisterMigrator
from slots.messages.message import encode
from tests.certificates import UNENCRYPTED
from tests.integration.topom_process import TOKEN, HandProxy, TopomProcess, topom_process
from topom.api.sessions import COOKIE, SESSION_SECONDS, Sessions
from topom.term.tokens import Role, Token, Tokens

SECRETS = {
    "viewer": "secret-of-the-dashboard",
    "operator": "secret-of-ada-the-operator",
    "proxy": "secret-of-all-the-proxies",
    "migrator": "secret-of-all-the-migrators",
}
TOKENS = ",".join(f"{role}:{role}s:{secret}" for role, secret in SECRETS.items())
PAGE = {"X-Slotferry-Request": "1", "Sec-Fetch-Site": "same-origin"}
LIMIT_SECONDS = 30.0


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[TopomProcess]:
    async with topom_process(tmp_path / "data", tokens=TOKENS) as one:
        yield one
        said = one.log()
    assert not any(secret in said for secret in (TOKEN, *SECRETS.values()))
    assert "Traceback" not in said


def client_of(topom: TopomProcess, token: str | None = None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.AsyncClient(base_url=topom.url, headers=headers, timeout=LIMIT_SECONDS, verify=UNENCRYPTED)


async def logged_in(client: httpx.AsyncClient, secret: str) -> Any:
    answer = await client.post("/login", json={"token": secret})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def exchange(topom: TopomProcess, sent: bytes) -> bytes:
    """Send this over a connection of its own; give all that topom sends until it closes the connection."""
    host, _, port = topom.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        async with asyncio.timeout(LIMIT_SECONDS):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.long
async def test_each_role_at_each_endpoint(topom: TopomProcess) -> None:
    async with client_of(topom, SECRETS["viewer"]) as viewer:
        document = (await viewer.get("/openapi.json")).json()
    endpoints = {
        (method.upper(), re.sub(r"\{\w+\}", "1", path)): endpoint["x-role"]
        for path, methods in document["paths"].items()
        for method, endpoint in methods.items()
    }
    assert len(endpoints) > 50
    for shown in (None, *SECRETS):
        async with client_of(topom, None if shown is None else SECRETS[shown]) as client:
            for (method, path), needed in {**endpoints, ("GET", "/docs"): "viewer"}.items():
                # What this asks for is nonsense, so that whoever is let in changes nothing of interest.
                body = None if method == "GET" else 7
                async with client.stream(method, path, json=body) as answer:  # the stream of events does not end
                    status = answer.status_code
                if path == "/login":
                    assert status == 401, "7 is no token"
                    continue
                may = needed == "anybody" or shown in (needed, "operator")
                refused = status == (401 if shown is None else 403)
                assert refused == (not may), (shown, method, path, status)


async def test_a_browser(topom: TopomProcess) -> None:
    async with client_of(topom) as browser:
        assert (await browser.get("/api/v1/status")).status_code == 401
        # Whoever asks may claim this; were it believed, the browser would send no cookie by HTTP.
        browser.headers["X-Forwarded-Proto"] = "https"
        me = await logged_in(browser, SECRETS["operator"])
        assert (me["name"], me["role"]) == ("operators", "operator")
        assert (await browser.get("/api/v1/me")).json() == me
        refused = [
            await browser.post("/api/v1/groups", json={"id": 1}, headers=headers)
            for headers in (
                {},
                {"X-Slotferry-Request": "1", "Sec-Fetch-Site": "cross-site"},
                {"X-Slotferry-Request": "1", "Sec-Fetch-Site": "same-site"},
                {"X-Slotferry-Request": "1", "Origin": "http://127.0.0.1:1"},
            )
        ]
        assert [answer.status_code for answer in refused] == [403] * 4
        assert (await browser.get("/api/v1/groups")).json()["groups"] == []
        assert (await browser.post("/api/v1/groups", json={"id": 1}, headers=PAGE)).status_code == 201
        event = (await browser.get("/api/v1/events")).json()["events"][-1]
        assert (event["what"], event["who"]) == ("group_added", "operators")
        cookie = browser.cookies["slotferry_session"]
        url = topom.url.replace("http", "ws") + "/api/v1/control"
        with pytest.raises(InvalidStatus, match="403"):
            await connect(url, additional_headers={"Cookie": f"slotferry_session={cookie}"})
        assert (await browser.post("/logout", headers=PAGE)).status_code == 204
        assert (await browser.get("/api/v1/me")).status_code == 401


async def test_a_session_ends_with_its_token_and_not_with_another(tmp_path: Path) -> None:
    topom = TopomProcess(tmp_path / "data", tokens=TOKENS)
    await topom.start()
    async with client_of(topom) as viewer, client_of(topom) as operator:
        me = await logged_in(viewer, SECRETS["viewer"])
        await logged_in(operator, SECRETS["operator"])
        assert topom.stop() == 0
        topom = TopomProcess(tmp_path / "data", tokens=TOKENS.replace("of-ada", "of-eve"), listen=topom.url[7:])
        await topom.start()
        try:
            assert (await viewer.get("/api/v1/me")).json() == me
            assert (await operator.get("/api/v1/me")).status_code == 401
            assert (await operator.post("/login", json={"token": SECRETS["operator"]})).status_code == 401
        finally:
            assert topom.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("path", ["/api/v1/live", "/api/v1/events/stream?since=0"])
async def test_a_stream_ends_with_its_session(topom: TopomProcess, path: str) -> None:
    token = Token(Role.VIEWER, "viewers", SECRETS["viewer"].encode())
    sessions = Sessions(Tokens(TOKEN, token), "slotferry", lambda: time.time() - SESSION_SECONDS + 2)
    value, _ = sessions.begin(token)
    async with client_of(topom) as browser, asyncio.timeout(LIMIT_SECONDS):
        browser.cookies.set(COOKIE, value)
        answer = await browser.get(path)
        assert (answer.status_code, "topom_started" in answer.text) == (200, True)
        assert (await browser.get(path)).status_code == 401


async def test_proxies_and_no_viewers_open_streams(topom: TopomProcess) -> None:
    topom.token = SECRETS["proxy"]
    async with HandProxy(topom) as proxy:
        assert proxy.registered
    url = topom.url.replace("http", "ws") + "/api/v1/control"
    with pytest.raises(InvalidStatus, match="403"):
        await connect(url, additional_headers={"Authorization": f"Bearer {SECRETS['viewer']}"})


@pytest.mark.long
async def test_a_migrator_opens_a_stream_of_its_own_and_no_other(topom: TopomProcess) -> None:
    base = topom.url.replace("http", "ws") + "/api/v1"
    for path, role in (("/migrators/control", "proxy"), ("/migrators/control", "viewer"), ("/control", "migrator")):
        with pytest.raises(InvalidStatus, match="403"):
            await connect(base + path, additional_headers={"Authorization": f"Bearer {SECRETS[role]}"})
    headers = {"Authorization": f"Bearer {SECRETS['migrator']}"}
    async with asyncio.timeout(LIMIT_SECONDS):
        async with connect(f"{base}/migrators/control", additional_headers=headers) as stream:
            await stream.send(encode(RegisterMigrator(instance="1" * 32, hostname="h", pid=1, version="0")))
            assert json.loads(await stream.recv())["type"] == "registered"
            await stream.send('{"type": "done", "number": 17}')
            # No slot moves by what a report says, but a copy may wait for this answer.
            await stream.send('{"type": "report", "copies": -1}')
            await stream.send('{"type": "done", "number": -1}')
            said = [json.loads(await stream.recv()) for _ in range(2)]
        assert [message["type"] for message in said] == ["set_pace", "refused"]
        async with connect(f"{base}/migrators/control", additional_headers=headers) as stream:
            await stream.send('{"type": "done", "number": 17}')
            assert "has to be of type register_migrator" in str(await stream.recv())
        async with connect(f"{base}/migrators/control", additional_headers=headers) as stream:
            await stream.send(encode(RegisterMigrator(instance="1" * 32, hostname="h", pid=1, version="0")))
            # It says nothing more, and is given up.
            await stream.wait_closed()


HEAD = "{method} {path} HTTP/1.1\r\nHost: topom\r\nConnection: close\r\n{more}\r\n"


ODD_HEADS = [
    ("GET", "/api/v1/status", "", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer {token}\r\n", b"", 200),
    ("GET", "/api/v1/status", "Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer x\r\nauthorization: Bearer {token}\r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer {token}\r\nAUTHORIZATION: Bearer x\r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer {token}, Bearer {token}\r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization:\r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer \r\n", b"", 401),
    ("GET", "/api/v1/status", "Authorization: Bearer \xfc\xff\r\n", b"", 401),
    ("GET", "/api/v1/status", "Cookie: slotferry_session=" + "x" * 50_000 + "\r\n", b"", 401),
    ("GET", "/api/v1/status", "Cookie: slotferry_session=\xfc\xff:\x80\r\n", b"", 401),
    ("GET", "/assets/../api/v1/status", "", b"", 404),
    ("GET", "/assets/%2e%2e/api/v1/status", "", b"", 404),
    ("GET", "//api/v1/status", "", b"", 401),
    ("POST", "/login", "Content-Length: 35\r\n", b'{"token": "secret-of-the-dashboard"}'[:35], 401),
    ("POST", "/login", "Content-Length: 36\r\n", b'{"token": "secret-of-the-dashboard"}', 200),
    ("POST", "/login", "Content-Length: 29\r\n", b"token=secret-of-the-dashboard", 200),
    ("POST", "/login", "Content-Length: 4097\r\n", b"token=secret-of-the-dashboard" + b" " * 4068, 413),
    ("POST", "/login", "Transfer-Encoding: chunked\r\n", b"1d\r\ntoken=secret-of-the-dashboard\r\n0\r\n\r\n", 401),
    ("POST", "/%6cogin", "Content-Length: 29\r\n", b"token=secret-of-the-dashboard", 401),
    ("POST", "/login", "Content-Length: 2\r\nUpgrade: websocket\r\nConnection: upgrade\r\n", b"{}", 403),
]
"""Method, path, more of the head, the body, and the status of the answer."""


async def test_odd_heads(topom: TopomProcess) -> None:
    for method, path, more, body, status in ODD_HEADS:
        head = HEAD.format(method=method, path=path, more=more.format(token=SECRETS["operator"]))
        answer = await exchange(topom, head.encode("latin-1") + body)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (method, path, more[:100], answer[:300])
    async with client_of(topom, TOKEN) as client:
        assert (await client.get("/api/v1/status")).status_code == 200


@pytest.mark.long
async def test_a_login_whose_body_does_not_come_is_cut_off(topom: TopomProcess) -> None:
    answer = await exchange(topom, HEAD.format(method="POST", path="/login", more="Content-Length: 30\r\n").encode())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


async def test_a_token_that_stands_there_twice_keeps_topom_from_starting(tmp_path: Path) -> None:
    topom = TopomProcess(tmp_path / "data", token="", tokens="viewer:grafana:" + SECRETS["viewer"])
    topom.data.mkdir()
    (topom.data / "token").write_text(SECRETS["viewer"])
    await topom.ends_at_start()
    assert "entry 1 has the same secret as the setting token" in topom.log()
    assert SECRETS["viewer"] not in topom.log()
