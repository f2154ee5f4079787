"""The live picture over a follower: the leader's, with a session; it ends with the leader, and comes from the next."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.integration.stores.test_roles_of_followers import (  # noqa: F401 (a fixture)
    ADA,
    LIMIT_SECONDS,
    PAGE,
    client_of,
    topoms,
)
from tests.integration.topom_process import TopomProcess

Said = tuple[str, dict[str, Any]]


async def messages(answer: httpx.Response) -> AsyncIterator[Said]:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def watching(browser: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[Said]]:
    async with browser.stream("GET", "/api/v1/live") as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield messages(answer)


@pytest.mark.long
async def test_a_follower_shows_what_the_leader_sees_and_then_leads(
    topoms: tuple[TopomProcess, TopomProcess],  # noqa: F811
) -> None:
    leader, follower = topoms
    async with asyncio.timeout(4 * LIMIT_SECONDS), client_of(follower) as browser:
        await browser.post("/login", json={"token": ADA})
        async with watching(browser) as said:
            name, picture = await anext(said)
            assert name == "picture"
            assert picture["cluster"]["topoms"][0]["url"] == leader.url
            # Only a leader knows this.
            assert picture["cluster"]["protection"]["members"] == 0
            assert (await browser.post("/api/v1/groups", json={"id": 7}, headers=PAGE)).status_code == 201
            while "7" not in (await anext(said))[1].get("groups", {}):
                pass
            leader.kill()
            try:
                async for _ in said:
                    pass
            except httpx.TransportError:
                pass  # the follower ends the connection with the answer
        while True:
            async with watching(browser) as said:
                name, picture = await anext(said)
                cluster = picture["cluster"]
                if cluster["reason"] is None and cluster["topoms"][0]["url"] == follower.url:
                    break
                # Without a leader the follower shows what is stored, says so, and ends it once somebody leads.
                assert "7" in picture["groups"]
                try:
                    async for name, _ in said:
                        assert name in ("changes", "leader")
                except httpx.TransportError:
                    pass
        assert picture["cluster"]["protection"]["members"] == 0
        assert list(picture["groups"]) == ["7"]
