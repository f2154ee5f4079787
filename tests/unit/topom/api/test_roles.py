"""Every endpoint says which role it needs, and each role gets that and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api.callers import Callers
from topom.api.roles import ANYBODY, EXCEPTIONS, READS, needed, needed_for_stream
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Role, Token, Tokens

TOKENS = Tokens(
    "operator", *(Token(role, role.value, role.value.encode()) for role in Role if role is not Role.OPERATOR)
)
ENDPOINTS = sorted(
    (method, re.sub(r"\{\w+\}", "1", route.path_format))
    for resource in api.RESOURCES
    for route in resource.router.routes
    if isinstance(route, Route)
    for method in route.methods or ()
)
STREAM = "/api/v1/events/stream"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    topom = Topom(settings, MemoryStore(), FakeMover())
    await topom.start()
    running = asyncio.create_task(topom.run())
    app = api.build(topom, Callers(TOKENS))
    app.state.event_streams.closed = True  # a stream ends once it has sent what there is
    app.state.viewers.close()  # as does one for a page
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://topom") as one:
        yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await topom.close()


def test_there_are_endpoints() -> None:
    assert len(ENDPOINTS) > 50
    assert {method for method, _ in ENDPOINTS} == {"GET", "HEAD", "POST", "PATCH", "DELETE"}


async def test_each_role_gets_what_it_may_and_nothing_else(client: httpx.AsyncClient) -> None:
    for method, path in [*ENDPOINTS, ("GET", "/openapi.json"), ("PUT", "/api/v1/groups/1")]:
        role = needed(method, path)
        for shown in ("", *Role):
            headers = {"Authorization": f"Bearer {shown}"} if shown else {}
            query = "?last_event_id=0" if path == STREAM else ""
            # What this asks for is nonsense, so that whoever is let in changes nothing.
            body = None if method in READS else 7
            answer = await client.request(method, path + query, headers=headers, json=body)
            refused = answer.status_code in (401, 403) and path != "/login"
            may = role is None or (shown != "" and Role(shown).may(role))
            assert refused == (not may), (method, path, shown, answer.text)
            if refused:
                assert answer.status_code == (403 if shown else 401)
                assert not shown or f"this needs the role {role}; " in answer.json()["message"]


async def test_the_document_says_the_role_of_each_endpoint(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json", headers={"Authorization": "Bearer viewer"})
    said = {
        (method.upper(), re.sub(r"\{\w+\}", "1", path)): endpoint["x-role"]
        for path, endpoints in answer.json()["paths"].items()
        for method, endpoint in endpoints.items()
    }
    # HEAD is as GET, and not told again.
    told = [(method, path) for method, path in ENDPOINTS if path != "/docs" and method != "HEAD"]
    assert said == {(method, path): needed(method, path) or ANYBODY for method, path in told}
    assert said["POST", "/api/v1/groups"] == "operator"
    assert said["GET", "/api/v1/groups"] == said["GET", "/metrics"] == said["POST", "/logout"] == "viewer"
    assert [endpoint for endpoint, role in said.items() if role == "anybody"] == [
        ("POST", "/login"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
    ]


def test_a_stream_is_for_one_role_and_operators() -> None:
    for path, role in (
        ("/api/v1/control", Role.PROXY),
        ("/api/v1/migrators/control", Role.MIGRATOR),
        ("/", Role.PROXY),
    ):
        assert needed_for_stream(path) is role
        assert [one for one in Role if one.may(role)] == [Role.OPERATOR, role]


def test_an_exception_is_for_one_method_and_one_path() -> None:
    assert all(needed(method, path) == role for (method, path), role in EXCEPTIONS.items())
    for path in ("/livez", "/readyz", "/", "/assets/x"):
        assert needed("HEAD", path) is None
        assert needed("POST", path) is needed("OPTIONS", path) is needed("get", path) is Role.OPERATOR
    for path in ("/login", "/login/", "//", "/readyz/", "/assets", "/Assets/x", "/api/v1/assets/x", ""):
        assert needed("GET", path) is Role.VIEWER
    assert needed("POST", "/login/") is Role.OPERATOR
