"""A running topom reads its settings anew: tokens are rotated, and a file that cannot be used changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.reserved import RESERVED
from tests.integration.reloading.processes import (
    LIMIT_SECONDS,
    NEW,
    OLD,
    OWN,
    File,
    client_of,
    events,
    filed_topom,
    hang_up,
)
from tests.integration.topom_process import HandProxy, TopomProcess, address_of, redis_server
from topom.api.sessions import COOKIE


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "topom.toml", token=OWN)


@pytest.fixture
async def topom(tmp_path: Path, file: File) -> AsyncIterator[TopomProcess]:
    file.write(tokens=[f"proxy:fleet:{OLD}-proxy", f"operator:ada:{OLD}", f"viewer:eve:{OLD}-viewer"])
    async with filed_topom(tmp_path / "data", file) as one:
        yield one
        said = one.log()
    assert not any(secret in said for secret in (OWN, OLD, NEW))
    assert "Traceback" not in said


async def until_event(client: httpx.AsyncClient, what: str, number: int = 1) -> list[tuple[str, str]]:
    """Wait for so many events of a kind; who and text of each."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(found := [one for one in await events(client) if one[0] == what]) < number:
            await asyncio.sleep(0.02)
    return [(who, text) for _, who, text in found]


class Traffic:
    """An operator who asks one thing after another, by the token of the moment."""

    def __init__(self, topom: TopomProcess, token: str) -> None:
        self.token = token
        self.answers: list[int] = []
        self._client = client_of(topom, None)
        self._task = asyncio.create_task(self._ask())

    async def more(self) -> None:
        """Wait for some more answers, each asked for after now."""
        enough = len(self.answers) + 5
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(self.answers) < enough:
                assert not self._task.done(), self._task.exception()
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._client.aclose()

    async def _ask(self) -> None:
        while True:
            answer = await self._client.get("/api/v1/status", headers={"Authorization": f"Bearer {self.token}"})
            self.answers.append(answer.status_code)


async def test_tokens_are_rotated_and_no_request_is_refused(topom: TopomProcess, file: File) -> None:
    old = [f"proxy:fleet:{OLD}-proxy", f"operator:ada:{OLD}"]
    new = [f"proxy:fleet:{NEW}-proxy", f"operator:ada:{NEW}"]
    topom.token = f"{OLD}-proxy"
    traffic = Traffic(topom, OLD)
    try:
        async with client_of(topom) as client, HandProxy(topom) as former, AsyncExitStack() as later:
            await traffic.more()
            file.write(tokens=old + new)
            shown = await hang_up(topom, client)
            assert (shown["file"], shown["restart"], shown["refused"]) == (str(file.path), [], "")
            await traffic.more()
            traffic.token, topom.token = NEW, f"{NEW}-proxy"
            proxy = await later.enter_async_context(HandProxy(topom))
            await traffic.more()
            former_stream = former._socket
            assert former_stream is not None
            assert former.attempts == 1, "nothing ends the stream of a token that still counts"
            file.write(tokens=new)
            await hang_up(topom, client)
            async with asyncio.timeout(LIMIT_SECONDS):
                await former_stream.wait_closed()
            await traffic.more()
            assert set(traffic.answers) == {200}, traffic.answers
            assert (former.attempts, proxy.attempts) == (1, 1), "the former one is not let in again"
            said = await until_event(client, "settings_reloaded", 2)
            assert {text for _, text in said} == {"settings were read anew: tokens changed"}
        async with client_of(topom, OLD) as late:
            assert (await late.get("/api/v1/status")).status_code == 401
    finally:
        await traffic.end()


@pytest.mark.long
async def test_sessions_and_streams_end_with_their_token_and_others_go_on(topom: TopomProcess, file: File) -> None:
    async with client_of(topom, None) as viewer, client_of(topom, None) as operator, client_of(topom) as client:
        for browser, secret in ((viewer, f"{OLD}-viewer"), (operator, OLD)):
            answer = await browser.post("/login", json={"token": secret})
            assert answer.status_code == 200
            assert browser.cookies[COOKIE]
        async with (
            viewer.stream("GET", "/api/v1/events/stream?since=0") as ends,
            operator.stream("GET", "/api/v1/events/stream?since=0") as goes_on,
        ):
            ending, going = ends.aiter_lines(), goes_on.aiter_lines()
            assert await anext(ending) == await anext(going) == ": events of topom"
            file.write(tokens=[f"operator:ada:{OLD}"])
            await hang_up(topom, client)
            assert (await viewer.get("/api/v1/me")).status_code == 401
            async with asyncio.timeout(LIMIT_SECONDS):
                with suppress(httpx.TransportError):  # it is cut off
                    async for _ in ending:
                        pass
            await client.post("/api/v1/groups", json={"id": 7})
            async with asyncio.timeout(LIMIT_SECONDS):
                async for line in going:
                    if "group_added" in line:
                        break
            assert (await operator.get("/api/v1/me")).status_code == 200


async def test_topoms_own_token_is_read_anew_from_its_file(tmp_path: Path, file: File) -> None:
    file.path.write_text("")
    async with filed_topom(tmp_path / "data", file) as topom:
        kept = tmp_path / "data" / "token"
        first = kept.read_text().strip()
        async with client_of(topom, first) as client:
            kept.rename(kept.with_name("away"))
            answer = await client.post("/api/v1/settings/reload")
            assert (answer.status_code, answer.json()["error"]) == (409, "SettingsRefused")
            assert not kept.exists()
            kept.write_text(NEW + "\n")
            assert (await client.post("/api/v1/settings/reload")).json()["changed"] == ["token"]
            assert (await client.get("/api/v1/settings")).status_code == 401
        async with client_of(topom, NEW) as client:
            assert (await client.get("/api/v1/settings")).status_code == 200


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"migration_keys_per_second": -1}, "migration_keys_per_second"),
        ({"tokens": ["operator:ada:short"]}, "16 to 256 characters"),
        ({"tokens": [f"operator:ada:{OWN}"]}, "the same secret as the setting token"),
        ({"loglevel": "debug"}, "did you mean log_level?"),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing_and_says_so(
    topom: TopomProcess, file: File, change: dict[str, Any], says: str
) -> None:
    async with client_of(topom) as client:
        before = (await client.get("/api/v1/settings")).json()
        file.write(waiters=1, migration_parallel_slots=7, token=f"{OWN}-other", **change)
        if "the same" in says:
            file.write(waiters=1, migration_parallel_slots=7, **change)
        answer = await client.post("/api/v1/settings/reload", headers={"X-Slotferry-User": "ada"})
        assert (answer.status_code, answer.json()["error"]) == (409, "SettingsRefused")
        assert says in answer.json()["message"]
        assert (await client.get("/api/v1/migration")).json()["settings"]["parallel_slots"] == 512
        status = (await client.get("/api/v1/status")).json()["settings"]
        assert status == {**before, "refused": status["refused"]}
        assert says in status["refused"]
        ((who, text),) = await until_event(client, "settings_refused")
        assert who == "ada (by operator)"
        assert says in text
        assert "settings_refused" in topom.log()
    async with client_of(topom, OLD) as client:
        assert (await client.get("/api/v1/settings")).status_code == 200, "its tokens still hold"


async def test_a_setting_that_needs_a_restart_is_named_and_keeps_its_value(topom: TopomProcess, file: File) -> None:
    async with client_of(topom) as client:
        file.write(log_level="warning", server_fail_seconds=20.0, events_kept=64, heartbeat_seconds=3.0)
        answer = (await client.post("/api/v1/settings/reload")).json()
        assert (answer["changed"], answer["restart"]) == (
            ["tokens", "log_level"],
            ["server_fail_seconds", "events_kept"],
        )
        assert (await client.get("/api/v1/status")).json()["settings"]["restart"] == answer["restart"]
        hidden = answer.pop("hidden")
        assert "heartbeat_seconds" not in str(answer), "the environment wins over the file, as at the start"
        assert hidden == ["heartbeat_seconds"]


async def test_the_log_level(topom: TopomProcess, file: File) -> None:
    async with client_of(topom) as client:

        async def log_in() -> int:
            """Log in, which an event of level info tells; how often that was told."""
            assert (await client.post("/login", json={"token": OWN})).status_code == 200
            return topom.log().count('"event": "login"')

        assert await log_in() == 1
        file.write(log_level="warning")
        assert "log_level" in (await client.post("/api/v1/settings/reload")).json()["changed"]
        assert await log_in() == 1
        file.write()
        await client.post("/api/v1/settings/reload")
        assert await log_in() == 2


async def test_only_operators_have_settings_read_anew(topom: TopomProcess) -> None:
    async with client_of(topom, f"{OLD}-viewer") as viewer:
        assert (await viewer.post("/api/v1/settings/reload")).status_code == 403
        assert (await viewer.get("/api/v1/settings")).status_code == 200


async def test_a_limit(topom: TopomProcess, file: File) -> None:
    async with client_of(topom) as client:
        path = f"/api/v1/slots?epoch={(await client.get('/api/v1/status')).json()['epoch']}&wait=20"

        async def waits() -> int:
            return (await client.get(path)).status_code

        first = asyncio.create_task(waits())
        file.write(waiters=1)
        await client.post("/api/v1/settings/reload")
        # One more is refused, once the first waits.
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                second = asyncio.create_task(waits())
                done, _ = await asyncio.wait([second], timeout=0.2)
                if done and second.result() == 503:
                    break
                second.cancel()
        file.write(waiters=5)
        await client.post("/api/v1/settings/reload")
        third = asyncio.create_task(waits())
        await asyncio.wait([third], timeout=0.2)
        assert not third.done()
        for task in (first, third):
            task.cancel()


@pytest.mark.long
async def test_a_hangup_while_slots_move_sets_another_pace_and_no_key_is_lost(
    tmp_path: Path, topom: TopomProcess, file: File
) -> None:
    keys = {f"key:{number}": f"value {number}" for number in range(2000)}
    with redis_server(tmp_path / "1") as source, redis_server(tmp_path / "2") as target:
        source.mset(keys)
        async with client_of(topom) as client, HandProxy(topom):
            file.write(tokens=[f"proxy:fleet:{OLD}-proxy"], migration_keys_per_second=1)
            await hang_up(topom, client)
            for group_id, server in enumerate((source, target), 1):
                await client.post("/api/v1/groups", json={"id": group_id, "servers": [address_of(server)]})
            await client.post("/api/v1/slots/assign", json={"slots": "0-15", "group_id": 1})
            await client.post("/api/v1/slots/move", json={"slots": "0-15", "group_id": 2})
            async with asyncio.timeout(LIMIT_SECONDS):
                while not (moved := target.dbsize()):
                    await asyncio.sleep(0.02)
            assert moved < len(keys)  # the rest would take half an hour
            file.write(tokens=[f"proxy:fleet:{OLD}-proxy"])
            await hang_up(topom, client)
            async with asyncio.timeout(LIMIT_SECONDS):
                while (await client.get("/api/v1/status")).json()["slots"]["moving"]:
                    await asyncio.sleep(0.02)
            assert [key for key in source.scan_iter() if not key.startswith(RESERVED)] == []
            assert target.mget(list(keys)) == [value.encode() for value in keys.values()]


async def test_what_an_operator_has_set_stays(topom: TopomProcess, file: File) -> None:
    async with client_of(topom) as client:
        await client.patch("/api/v1/migration", json={"keys_per_second": 5})
        file.write(migration_keys_per_second=7, migration_bytes_per_second=1000)
        await client.post("/api/v1/settings/reload")
        settings = (await client.get("/api/v1/migration")).json()["settings"]
        assert (settings["keys_per_second"], settings["bytes_per_second"]) == (5, 1000)
