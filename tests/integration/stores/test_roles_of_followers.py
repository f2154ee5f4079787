"""A follower passes on who asks: the leader checks the token, or the session, and its role again."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import UNENCRYPTED
from tests.integration.stores.servers import EtcdServer
from tests.integration.topom_process import TopomProcess

LIMIT_SECONDS = 30.0
VIEWER = "secret-of-the-dashboard"
ADA = "secret-of-ada-the-operator"
TOKENS = f"viewer:grafana:{VIEWER},operator:ada:{ADA}"
PAGE = {"X-Slotferry-Request": "1", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def topoms(tmp_path: Path, etcd: EtcdServer) -> AsyncIterator[tuple[TopomProcess, TopomProcess]]:
    """The leader and a follower."""
    shared = {
        "store": "etcd",
        "store_servers": etcd.address,
        "store_prefix": f"/test/{secrets.token_hex(8)}",
        "tokens": TOKENS,
    }
    both = [TopomProcess(tmp_path / name, **shared) for name in ("a", "b")]
    try:
        for one in both:
            await one.start()
        leading = [await well(one) for one in both]
        while True not in leading:
            leading = [await well(one) for one in both]
        yield (both[0], both[1]) if leading[0] else (both[1], both[0])
    finally:
        for one in both:
            one.kill()


async def well(topom: TopomProcess) -> bool:
    """Wait until changes are possible through it; whether it leads."""
    async with asyncio.timeout(LIMIT_SECONDS), client_of(topom, ADA) as client:
        while True:
            if (await client.get("/readyz")).is_success:
                return "\nslotferry_topom_leads 1.0\n" in (await client.get("/metrics")).text
            await asyncio.sleep(0.05)


def client_of(topom: TopomProcess, token: str | None = None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.AsyncClient(base_url=topom.url, headers=headers, timeout=LIMIT_SECONDS, verify=UNENCRYPTED)


async def test_roles_and_sessions_hold_at_every_topom(topoms: tuple[TopomProcess, TopomProcess]) -> None:
    leader, follower = topoms
    async with client_of(follower, VIEWER) as viewer, client_of(follower, ADA) as ada:
        assert (await viewer.get("/api/v1/placement")).status_code == 200
        refused = await viewer.post("/api/v1/groups", json={"id": 1})
        assert (refused.status_code, refused.json()["error"]) == (403, "RoleRefused")
        made = await ada.post("/api/v1/groups", json={"id": 1}, headers={"X-Slotferry-User": "root"})
        assert made.status_code == 201, made.text
    async with client_of(leader) as browser:
        session = (await browser.post("/login", json={"token": ADA})).json()
        cookies = browser.cookies
    async with client_of(follower) as browser:
        # A browser sends it to every port of the host, with the cookies of others.
        browser.cookies = cookies
        browser.cookies.set("other", "x")
        assert (await browser.get("/api/v1/me")).json() == session
        assert (await browser.get("/api/v1/placement")).status_code == 200
        assert (await browser.post("/api/v1/groups", json={"id": 2})).status_code == 403
        host = {"Origin": follower.url}
        made = await browser.post("/api/v1/groups", json={"id": 2}, headers=PAGE | host)
        assert made.status_code == 201, made.text
        async with asyncio.timeout(LIMIT_SECONDS):
            who: dict[str, str] = {}
            while len(who) < 2:
                events = (await browser.get("/api/v1/events")).json()["events"]
                who = {event["text"]: event["who"] for event in events if event["what"] == "group_added"}
                await asyncio.sleep(0.05)
    assert list(who.values()) == ["root (by ada)", "ada"]


async def test_a_follower_alone_gives_nobody_a_role(topoms: tuple[TopomProcess, TopomProcess], tmp_path: Path) -> None:
    """One whose tokens say more than the leader's."""
    _, follower = topoms
    follower.kill()
    follower._settings["tokens"] = f"operator:grafana:{VIEWER},operator:eve:secret-of-nobody-else"
    await follower.start()
    async with client_of(follower, VIEWER) as viewer, client_of(follower, "secret-of-nobody-else") as eve:
        assert not await well(follower)
        refused = await viewer.post("/api/v1/groups", json={"id": 1})
        assert (refused.status_code, refused.json()["error"]) == (403, "RoleRefused")
        refused = await eve.post("/api/v1/groups", json={"id": 1})
        assert (refused.status_code, refused.json()["error"]) == (503, "TokensDiffer")
        await viewer.post("/login", json={"token": VIEWER})
        del viewer.headers["Authorization"]
        refused = await viewer.post("/api/v1/groups", json={"id": 1}, headers=PAGE)
        assert (refused.status_code, refused.json()["error"]) == (503, "TokensDiffer")
        assert (await follower.call("GET", "/groups"))["groups"] == []
