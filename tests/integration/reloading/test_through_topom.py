"""Proxies read their settings anew because an operator asks topom: all or one, and each answers for itself."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.reloading.processes import LIMIT_SECONDS, NEW, OLD, OWN, File, client_of, events, filed_topom
from tests.integration.reloading.proxies import NOW, WORKERS, Proxy
from tests.integration.topom_process import HandProxy, TopomProcess
from topom.proxies.reloads import ANSWER_SECONDS

VIEWER = "viewer:eve:the-secret-of-eve-the-viewer"


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "topom.toml", token=OWN, proxy_lease_seconds=60.0)


@pytest.fixture
async def proxies(tmp_path: Path, file: File) -> AsyncIterator[list[Proxy]]:
    """Two of them, by their id."""
    file.write(tokens=[NOW, VIEWER])
    async with filed_topom(tmp_path / "data", file) as topom, AsyncExitStack() as ending:
        found = []
        for name in ("one", "two"):
            proxy = Proxy(tmp_path / name, topom)
            proxy.process.start()
            ending.push_async_callback(proxy.process.stop)
            await proxy.until(lambda proxy=proxy: bool(proxy.said("proxy_ready")))
            found.append(proxy)
        yield found
    for proxy in found:
        said = proxy.process.log.read_text() + topom.log()
        assert not any(secret in said for secret in (OWN, OLD, NEW, "of-everybody"))
        assert "Traceback" not in said


async def reload(topom: TopomProcess, *words: str, token: str = OWN) -> tuple[int | None, dict[str, Any]]:
    """Run ``slotferry proxy reload``; the exit status, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slotferry", "proxy", "reload", *words, "--output", "json", "--topom", topom.url),
        env={**os.environ, "SLOTFERRY_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        said, problem = await process.communicate()
    return process.returncode, json.loads(said) if said else {"problem": problem.decode()}


async def reloaded(proxy: Proxy) -> dict[str, Any]:
    """What the first proxy answers."""
    async with client_of(proxy.topom) as client:
        answer: dict[str, Any] = (await client.post("/api/v1/proxies/1/reload")).json()
        return answer


async def needs_password(proxy: Proxy) -> bool:
    """Whether every worker that a client reaches asks for a password."""
    answers = set()
    for _ in range(8):
        async with proxy.client() as client:
            with suppress(redis.AuthenticationError):
                await client.ping()
                answers.add(False)
                continue
            answers.add(True)
    return answers == {True}


@pytest.mark.long
async def test_all_proxies_or_one_read_their_own_files_and_say_what_came_of_it(proxies: list[Proxy]) -> None:
    one, two = proxies
    one.file.write(max_clients=77, listen="127.0.0.1:1")
    two.file.write(password="of-everybody")
    before = time.time()
    status, said = await reload(one.topom, "2")
    assert (status, said["id"], said["changed"]) == (0, 2, ["password"])
    assert await needs_password(two)
    assert not one.said("settings_reloaded"), "nobody asked it"
    status, said = await reload(one.topom)
    assert status == 0
    first, second = said["proxies"]
    assert first.pop("since") >= before
    assert second["since"] >= before
    assert first == {
        "id": 1,
        "address": f"127.0.0.1:{one.port}",
        "silent": "",
        "file": str(one.file.path),
        "changed": ["max_clients"],
        "restart": ["listen"],
        "hidden": [],
        "refused": "",
        "workers": WORKERS,
        "following": WORKERS,
    }
    assert (second["file"], second["changed"]) == (str(two.file.path), [])
    async with client_of(one.topom) as client, asyncio.timeout(LIMIT_SECONDS):
        while len(found := [event for event in await events(client) if event[0] == "settings_reloaded"]) < 2:
            await asyncio.sleep(0.02)
    assert sorted(text for *_, text in found) == ["settings of proxies: read by 1-2", "settings of proxies: read by 2"]
    assert all("operator" in who for _, who, _ in found)


@pytest.mark.long
async def test_one_that_refuses_its_file_and_one_that_does_not_answer_are_told(proxies: list[Proxy]) -> None:
    one, two = proxies
    one.file.write(password="of-everybody", max_clients=0)
    two.file.write(password="of-everybody")
    async with AsyncExitStack() as ending:
        older = HandProxy(one.topom)  # it does not know the question
        one.topom.token = f"{OLD}-proxy"
        await ending.enter_async_context(older)
        began = time.monotonic()
        status, said = await reload(one.topom)
        assert time.monotonic() - began < 2 * ANSWER_SECONDS + 5, "all are asked at the same time"
        assert status == 1
        refuses, reads, silent = said["proxies"]
        assert "max_clients" in refuses["refused"]
        assert (refuses["changed"], refuses["following"]) == ([], WORKERS)
        assert (reads["changed"], reads["refused"]) == (["password"], "")
        assert "did not answer" in silent["silent"]
        assert older.attempts == 1, "its stream goes on"
    assert not await needs_password(one)
    assert await needs_password(two)


@pytest.mark.long
async def test_only_operators_may_and_a_proxy_has_to_be_there(proxies: list[Proxy]) -> None:
    proxies[0].file.write(password="of-everybody")
    for token in (VIEWER.rpartition(":")[2], f"{OLD}-proxy"):
        status, said = await reload(proxies[0].topom, token=token)
        assert (status, "role" in said["problem"]) == (1, True)
    status, said = await reload(proxies[0].topom, "7")
    assert (status, "there is no proxy 7" in said["problem"]) == (1, True)
    assert not await needs_password(proxies[0])


@pytest.mark.long
async def test_a_worker_that_is_paused_or_just_starts_follows(proxies: list[Proxy]) -> None:
    proxy = proxies[0]
    pids = list(await proxy.each_worker())
    os.kill(pids[0], signal.SIGSTOP)
    try:
        proxy.file.write(password="of-everybody")
        said = await reloaded(proxy)
        assert (said["following"], said["workers"]) == (1, WORKERS)
    finally:
        os.kill(pids[0], signal.SIGCONT)
    assert (await reloaded(proxy))["following"] == WORKERS
    assert await needs_password(proxy)
    died = len(proxy.said("worker_died"))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await proxy.until(lambda: len(proxy.said("worker_died")) == died + WORKERS)
    proxy.file.write(users=[{"name": "ada", "password": "another"}])
    async with asyncio.timeout(LIMIT_SECONDS):
        # A worker that starts takes longer than the answer waits; it has the settings when it lets clients in.
        while (said := await reloaded(proxy))["following"] < said["workers"]:
            pass
        while len(proxy.said("worker_ready")) < 2 * WORKERS:
            await asyncio.sleep(0.02)
    for client in (await proxy.each_worker(username="ada", password="another")).values():
        await client.aclose()
    async with proxy.client(password="of-everybody") as client:
        with pytest.raises(redis.AuthenticationError):
            await client.ping()


@pytest.mark.long
async def test_a_proxy_that_is_paused_or_gone_is_told_and_nothing_waits_for_it_longer(proxies: list[Proxy]) -> None:
    one, two = proxies
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        async with client_of(one.topom) as client:
            answers = await asyncio.gather(*(client.post("/api/v1/proxies/reload") for _ in range(12)))
        assert time.monotonic() - began < ANSWER_SECONDS + 5
        told = [answer.json() for answer in answers if answer.status_code == 200]
        assert 0 < len(told) < 12, "so many may ask at once"
        assert {answer.json()["error"] for answer in answers if answer.status_code != 200} == {"TooMany"}
        for said in told:
            assert said["proxies"][0]["silent"]
            assert said["proxies"][1]["silent"] == ""
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    await two.process.kill()
    async with client_of(one.topom) as client, asyncio.timeout(LIMIT_SECONDS):
        while "not connected" not in (await client.post("/api/v1/proxies/2/reload")).json()["silent"]:
            pass


@pytest.mark.long
async def test_a_token_of_the_environment_that_hides_the_one_in_the_file_is_told(tmp_path: Path) -> None:
    async with filed_topom(tmp_path / "data", File(tmp_path / "topom.toml", token=OWN, tokens=[NOW])) as topom:
        proxy = Proxy(tmp_path / "proxy", topom, {"SLOTFERRY_PROXY_TOKEN": f"{OLD}-proxy"})
        proxy.process.start()
        try:
            await proxy.until(lambda: bool(proxy.said("registered")))
            proxy.file.write(token=f"{NEW}-proxy", max_clients=77)
            status, said = await reload(topom, "1")
            assert (status, said["changed"], said["hidden"]) == (0, ["max_clients"], ["token"])
            assert [one["hidden"] for one in proxy.said("settings_reloaded")] == [["token"]]
        finally:
            await proxy.process.stop()
        assert not any(secret in proxy.process.log.read_text() for secret in (OLD, NEW))
