"""What a topom says to an orchestrator, without a token: it lives while its store is away, and is not ready."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.certificates import UNENCRYPTED
from tests.integration.stores.servers import EtcdServer, need_etcd, start_etcd, stop
from tests.integration.topom_process import TopomProcess, topom_process
from topom.api.probes import MISPLACED, REFUSED, SAME_URL, STORE, UNHEARD

LIMIT_SECONDS = 90.0
"""Against hanging only."""
OK = (200, "ok\n")


async def ask(topom: TopomProcess, path: str, seconds: float = LIMIT_SECONDS) -> tuple[int, str]:
    """Status and text of the answer."""
    async with httpx.AsyncClient(timeout=seconds, trust_env=False, verify=UNENCRYPTED) as client:
        answer = await client.get(f"{topom.url}{path}")
        return answer.status_code, answer.text


async def head(topom: TopomProcess, path: str) -> tuple[int, bytes]:
    """The status of the answer to HEAD, and every byte behind its headers."""
    host, _, port = topom.url.removeprefix("http://").partition(":")
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: topom\r\nConnection: close\r\n\r\n".encode())
        headers, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(headers.split()[1]), body


async def becomes(topom: TopomProcess, expected: tuple[int, str]) -> None:
    """Wait for this answer to ``/readyz``; topom lives all the time."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            assert await ask(topom, "/livez") == OK
            if await ask(topom, "/readyz") == expected:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    """One that a test may stop."""
    need_etcd()
    servers = await start_etcd(tmp_path)
    yield servers[0]
    servers[0].resume()
    await stop(servers)


def over(etcd: EtcdServer, data: Path, **settings: str) -> TopomProcess:
    shared = {"store": "etcd", "store_servers": etcd.address, "store_prefix": f"/test/{secrets.token_hex(8)}"}
    return TopomProcess(data, **{**shared, **settings})


@pytest.mark.long
async def test_topoms_that_lost_their_store_live_on_and_are_ready_again_with_it(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        both = [over(etcd, tmp_path / name, store_prefix="/both") for name in ("a", "b")]
        for one in both:
            await one.start()
            stack.callback(one.kill)
            await becomes(one, OK)
        pids = [one.pid for one in both]
        etcd.pause()
        for one in both:
            await becomes(one, (503, STORE + "\n"))
            assert (await head(one, "/livez"), await head(one, "/readyz")) == ((200, b""), (503, b""))
        etcd.resume()
        for one in both:
            await becomes(one, OK)
            assert (await head(one, "/livez"), await head(one, "/readyz")) == ((200, b""), (200, b""))
        assert [one.pid for one in both] == pids
        for pid in pids:
            os.kill(pid, 0)


@pytest.mark.long
async def test_a_topom_that_finds_no_store_lives_from_its_start(etcd: EtcdServer, tmp_path: Path) -> None:
    etcd.pause()
    topom = over(etcd, tmp_path / "a")
    await topom.start()
    try:
        await becomes(topom, (503, STORE + "\n"))
        etcd.resume()
        await becomes(topom, OK)
    finally:
        topom.kill()


@pytest.mark.long
async def test_a_topom_with_another_token_or_the_url_of_another_is_not_ready(etcd: EtcdServer, tmp_path: Path) -> None:
    """And the reason has neither a token nor an address."""
    async with AsyncExitStack() as stack:
        first = over(etcd, tmp_path / "a", store_prefix="/these")
        await first.start()
        stack.callback(first.kill)
        await becomes(first, OK)
        for name, settings, reason in (
            ("b", {"token": "quite-another-token"}, REFUSED),
            ("c", {"url": first.url}, MISPLACED),
        ):
            other = over(etcd, tmp_path / name, store_prefix="/these", **settings)
            await other.start()
            stack.callback(other.kill)
            await becomes(other, (503, reason + "\n"))


async def test_nobody_answers_for_a_topom_that_hangs(tmp_path: Path) -> None:
    async with topom_process(tmp_path / "alone") as topom:
        await becomes(topom, OK)
        os.kill(topom.pid, signal.SIGSTOP)
        try:
            with pytest.raises(httpx.ReadTimeout):
                await ask(topom, "/livez", 1.0)
        finally:
            os.kill(topom.pid, signal.SIGCONT)
        assert await ask(topom, "/livez") == OK


@pytest.mark.long
async def test_a_lease_of_a_topom_that_is_gone_makes_nobody_ready(etcd: EtcdServer, tmp_path: Path) -> None:
    """Neither one that follows it, nor one that starts only then, also at the url that the lease names."""
    async with AsyncExitStack() as stack:
        leader, follower, late = (
            over(etcd, tmp_path / name, store_prefix="/gone", leader_lease_seconds="20") for name in ("a", "b", "c")
        )
        for one in (leader, follower):
            await one.start()
            stack.callback(one.kill)
            await becomes(one, OK)
        leader.kill()
        await late.start()
        stack.callback(late.kill)
        await leader.start()
        for one, reason in ((follower, UNHEARD), (late, UNHEARD), (leader, SAME_URL)):
            await becomes(one, (503, reason + "\n"))
        for one in (leader, follower, late):
            await becomes(one, OK)
