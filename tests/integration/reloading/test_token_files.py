"""Tokens in files are changed by the steps of ``docs/changing-tokens.md``, with its commands, under traffic."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.reloading.processes import LIMIT_SECONDS, File, client_of, filed_topom
from tests.integration.reloading.proxies import Proxy, Traffic
from tests.integration.topom_process import address_of, redis_server

FLEET, FLEET_NEXT = "the-secret-of-the-fleet", "the-next-secret-of-the-fleet"
OPERATOR, OPERATOR_NEXT = "the-secret-of-operators", "the-next-secret-of-operators"
VIEWER = "viewer:eve:the-secret-of-eve-the-viewer"


class Commands:
    """The command line, with its token in a file."""

    def __init__(self, url: str, token: Path) -> None:
        self.url = url
        self._token = token

    async def __call__(self, *words: str, succeeds: bool = True) -> dict[str, Any]:
        known = {name: value for name, value in os.environ.items() if name != "SLOTFERRY_TOKEN"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slotferry", *words, "--output", "json"),
            env={**known, "SLOTFERRY_TOPOM": self.url, "SLOTFERRY_TOKEN_FILE": str(self._token)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LIMIT_SECONDS):
            said, problem = await process.communicate()
        assert (process.returncode == 0) == succeeds, (said, problem)
        return dict(json.loads(said)) if said else {"problem": problem.decode()}

    async def topom_reads(self) -> list[str]:
        one = await self("settings", "reload")
        assert one["refused"] == ""
        return list(one["changed"])

    async def proxies_read(self) -> list[list[str]]:
        return [one["changed"] for one in (await self("proxy", "reload"))["proxies"]]


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_tokens_are_changed_under_traffic_and_no_proxy_is_lost(tmp_path: Path) -> None:
    token, tokens, proxys, mine = (tmp_path / name for name in ("token", "tokens", "proxy-token", "mine"))
    token.write_text(OPERATOR + "\n")
    mine.write_text(OPERATOR + "\n")
    tokens.write_text(f"{VIEWER}\nproxy:fleet:{FLEET}\n")
    proxys.write_text(FLEET + "\n")
    named = {"SLOTFERRY_TOPOM_TOKEN_FILE": str(token), "SLOTFERRY_TOPOM_TOKENS_FILE": str(tokens)}
    file = File(tmp_path / "topom.toml", proxy_lease_seconds=60.0)
    with redis_server(tmp_path / "1") as server:
        async with filed_topom(tmp_path / "data", file, named) as topom, client_of(topom, OPERATOR) as client:
            await client.post("/api/v1/groups", json={"id": 1, "servers": [address_of(server)]})
            await client.post("/api/v1/slots/assign", json={"slots": "0-15", "group_id": 1})
            proxy = Proxy(tmp_path / "proxy", topom, {"SLOTFERRY_PROXY_TOKEN_FILE": str(proxys)})
            proxy.process.start()
            try:
                await proxy.until(lambda: bool(proxy.said("proxy_ready")))
                await change(proxy, Commands(topom.url, mine), token, tokens, proxys, mine)
            finally:
                await proxy.process.stop()
            said = proxy.process.log.read_text() + topom.log()
    assert not any(secret in said for secret in (FLEET, FLEET_NEXT, OPERATOR, OPERATOR_NEXT))
    assert "Traceback" not in said


def write(file: Path, *lines: str) -> None:
    file.write_text("".join(f"{line}\n" for line in lines))


async def change(proxy: Proxy, command: Commands, token: Path, tokens: Path, proxys: Path, mine: Path) -> None:
    """The proxies' token first, then topom's own."""

    async def instances() -> list[tuple[str, str]]:
        return [(one["instance"], one["state"]) for one in (await command("proxy", "list"))["proxies"]]

    known = await instances()
    traffic = Traffic(proxy)
    try:
        await traffic.more()
        write(tokens, VIEWER, f"proxy:fleet:{FLEET}", f"proxy:fleet:{FLEET_NEXT}")
        assert await command.topom_reads() == ["tokens"]
        write(proxys, FLEET_NEXT)
        assert await command.proxies_read() == [["token"]]
        assert len(proxy.said("registered")) == 1, "its stream goes on"
        write(tokens, VIEWER, f"proxy:fleet:{FLEET_NEXT}")
        assert await command.topom_reads() == ["tokens"]
        await proxy.until(lambda: len(proxy.said("registered")) == 2)
        await traffic.more()

        write(tokens, VIEWER, f"proxy:fleet:{FLEET_NEXT}", f"operator:next:{OPERATOR_NEXT}")
        assert await command.topom_reads() == ["tokens"]
        write(mine, OPERATOR_NEXT)
        assert await command.topom_reads() == [], "both are accepted"
        write(token, OPERATOR_NEXT)
        half = (await command("settings", "reload", succeeds=False))["problem"]
        assert "the same secret" in " ".join(half.split()), "in both places it is refused, and changes nothing"
        assert OPERATOR_NEXT not in str(half)
        write(tokens, VIEWER, f"proxy:fleet:{FLEET_NEXT}")
        assert await command.topom_reads() == ["token", "tokens"]
        write(mine, OPERATOR)
        assert "does not accept the token" in (await command("status", succeeds=False))["problem"]
        write(mine, OPERATOR_NEXT)
        await traffic.more()
        assert await instances() == known
        assert len(proxy.said("registered")) == 2, "its token was not changed, and its stream goes on"
    finally:
        await traffic.end()


async def test_a_file_of_a_token_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(OPERATOR)
    file = File(tmp_path / "topom.toml")
    named = {"SLOTFERRY_TOPOM_TOKEN_FILE": str(token)}
    async with filed_topom(tmp_path / "data", file, named) as topom, client_of(topom, OPERATOR) as client:
        for spoil in (token.unlink, lambda: os.mkfifo(token), lambda: (token.unlink(), token.write_text("short"))):
            spoil()
            answer = await client.post("/api/v1/settings/reload")
            assert (answer.status_code, answer.json()["error"]) == (409, "SettingsRefused")
            assert (await client.get("/api/v1/status")).status_code == 200
        token.write_text("")
        answer = await client.post("/api/v1/settings/reload")
        assert answer.status_code == 409, "an emptied file does not have topom make a token of its own"
        assert not (tmp_path / "data" / "token").exists()
        assert (await client.get("/api/v1/status")).status_code == 200
