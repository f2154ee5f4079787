"""Logging in by a browser, and what the session may do."""

import asyncio
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api.callers import Callers
from topom.api.login import WRONG_A_SECOND, Failures
from topom.api.sessions import SESSION_SECONDS
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Role, Token, Tokens

TOKENS = Tokens("geheim", Token(Role.VIEWER, "grafana", b"viewer"), Token(Role.PROXY, "fleet", b"proxy"))
PAGE = {"X-Slotferry-Request": "1"}


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    running = asyncio.create_task(one.run())
    yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await one.close()


def client_of(topom: Topom, url: str = "http://topom") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(api.build(topom, Callers(TOKENS)), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=url)


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        yield one


@pytest.mark.parametrize("body", [{"json": {"token": "viewer"}}, {"data": {"token": "viewer"}}])
async def test_a_session_from_its_beginning_to_its_end(client: httpx.AsyncClient, body: Any) -> None:
    answer = await client.post("/login", **body)
    assert answer.status_code == 200
    me = answer.json()
    assert (me["name"], me["role"]) == ("grafana", "viewer")
    cookie = SimpleCookie(answer.headers["set-cookie"])["slotferry_session"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"], cookie["secure"]) == ("/", True, "strict", "")
    assert (cookie["max-age"], cookie["domain"]) == (str(SESSION_SECONDS), "")
    assert "viewer:grafana:" in cookie.value
    assert (await client.get("/api/v1/me")).json() == me
    assert (await client.get("/metrics")).status_code == 200
    refused = await client.post("/api/v1/migration/pause", headers=PAGE)
    assert (refused.status_code, refused.json()["error"]) == (403, "RoleRefused")
    gone = await client.post("/logout", headers=PAGE)
    assert gone.status_code == 204
    assert SimpleCookie(gone.headers["set-cookie"])["slotferry_session"].value == ""
    assert (await client.get("/api/v1/me")).status_code == 401


async def test_over_tls_the_cookie_stays_with_tls(topom: Topom) -> None:
    async with client_of(topom, "https://topom") as client:
        answer = await client.post("/login", json={"token": "viewer"})
        assert SimpleCookie(answer.headers["set-cookie"])["slotferry_session"]["secure"] is True


async def test_whom_a_stranger_claims_to_stand_behind_makes_no_difference(client: httpx.AsyncClient) -> None:
    answer = await client.post("/login", json={"token": "viewer"}, headers={"X-Forwarded-Proto": "https"})
    assert SimpleCookie(answer.headers["set-cookie"])["slotferry_session"]["secure"] == ""


async def test_what_a_session_changes_is_told_by_the_tokens_name(client: httpx.AsyncClient, topom: Topom) -> None:
    await client.post("/login", json={"token": "geheim"})
    refused = await client.post("/api/v1/migration/pause")
    assert (refused.status_code, refused.json()["error"]) == (403, "ForeignPage")
    for foreign in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil"}):
        refused = await client.post("/api/v1/migration/pause", headers=PAGE | foreign)
        assert (refused.status_code, refused.json()["error"]) == (403, "ForeignPage")
    assert topom.ledger.state.events[-1].what != "migration_set"
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://topom"}
    assert (await client.post("/api/v1/migration/pause", headers=PAGE | own)).status_code == 200
    assert topom.ledger.state.events[-1].who == "operator"
    with_name = PAGE | {"X-Slotferry-User": "ada"}
    assert (await client.post("/api/v1/migration/resume", headers=with_name)).status_code == 200
    assert topom.ledger.state.events[-1].who == "ada (by operator)"


async def test_a_bearer_token_has_no_end(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/me", headers={"Authorization": "Bearer viewer"})
    assert answer.json() == {"name": "grafana", "role": "viewer", "expires": None}


async def test_a_proxys_token_begins_no_session(client: httpx.AsyncClient) -> None:
    answer = await client.post("/login", json={"token": "proxy"})
    assert (answer.status_code, answer.json()["error"]) == (403, "RoleRefused")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("header", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil"}])
async def test_a_page_of_another_logs_nobody_in(client: httpx.AsyncClient, header: dict[str, str]) -> None:
    answer = await client.post("/login", json={"token": "viewer"}, headers=header)
    assert (answer.status_code, answer.json()["error"]) == (403, "ForeignPage")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"{}",
            b"null",
            b"[]",
            b'"viewer"',
            b"viewer",
            b'{"token": ["viewer"]}',
            *(b'{"token": null}', b'{"token": 7}'),
        ),
        *(b'{"token": ""}', b"token=", b"token=geheim1", b"token=&token=viewer", b'{"token": "gehei\xcc"}'),
        *(b'{"token": "\\ud800"}', "token=gehöim".encode(), b"\xff" * 100, b"{" * 4000, b"[" * 4000, b"&" * 4000),
        *(b'{"token": "geheim\\u0000"}', b'{"token": " geheim"}', b'{"token": "GEHEIM"}', b'{"a":' * 800),
    ],
)
async def test_what_is_no_token(client: httpx.AsyncClient, body: bytes) -> None:
    with capture_logs() as said:
        answer = await client.post("/login", content=body)
    assert (answer.status_code, answer.json()["error"]) == (401, "LoginRefused")
    assert "set-cookie" not in answer.headers
    assert [entry["event"] for entry in said] == ["login_refused"]
    assert "gehe" not in str(said)


async def test_wrong_tokens_lock_nobody_out(client: httpx.AsyncClient) -> None:
    wrong = [(await client.post("/login", json={"token": "wrong"})).status_code for _ in range(WRONG_A_SECOND * 3)]
    assert wrong[:WRONG_A_SECOND] == [401] * WRONG_A_SECOND
    assert 429 in wrong
    assert (await client.post("/login", json={"token": "geheim"})).status_code == 200
    headers = {"Authorization": "Bearer geheim"}
    assert (await client.get("/api/v1/status", headers=headers)).status_code == 200


def test_wrong_tokens_are_counted_by_the_second() -> None:
    now = 0.0
    failures = Failures(lambda: now)
    assert [failures.another() for _ in range(WRONG_A_SECOND + 1)] == [False] * WRONG_A_SECOND + [True]
    now = 0.9
    assert failures.another()
    now = 1.0
    assert not failures.another()
