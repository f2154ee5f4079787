"""What topom says of addresses at which no Redis server answers, or none that lets it in."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from slotferry.processes import ManagedProcess, free_ports, until
from slotferry.redis_server import ask, find_binary, start_redis
from tests.integration.topom_process import topom_process
from topom.term.settings import TopomSettings


@asynccontextmanager
async def sentinel(directory: Path) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    config = directory / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\n")
    process = ManagedProcess("sentinel", [str(find_binary()), str(config), "--sentinel"], directory / "sentinel.log")
    address = f"127.0.0.1:{port}"

    async def answers() -> bool:
        return (await ask(address, "PING")).startswith("+PONG")

    process.start()
    try:
        await until(answers, "the Sentinel", 60.0, [process])
        yield address
    finally:
        await process.kill()


@asynccontextmanager
async def web_server() -> AsyncIterator[str]:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_what_is_no_redis_server_is_refused_whatever_is_said(tmp_path: Path) -> None:
    async with (
        topom_process(tmp_path / "data", redis_timeout_seconds=20.0) as topom,
        sentinel(tmp_path) as a_sentinel,
        web_server() as a_web_server,
    ):
        for address, why in ((a_sentinel, "is a Redis Sentinel"), (a_web_server, "is not a Redis server")):
            for offline_ok in (False, True):
                body = {"id": 1, "servers": [address], "offline_ok": offline_ok}
                refused = await topom.call("POST", "/groups", body, 409)
                assert refused["error"] == "NoRedisServer", refused
                assert why in refused["message"]
                assert address in refused["message"]
            refused = await topom.call("POST", "/pool", {"address": address}, 409)
            assert refused["error"] == "NoRedisServer", refused
        assert (await topom.call("GET", "/groups"))["groups"] == []


async def test_a_server_that_wants_a_password_is_added_only_if_that_is_said(tmp_path: Path) -> None:
    server = await start_redis("locked", tmp_path, extra=("--requirepass", "not told"))
    try:
        async with topom_process(tmp_path / "data", redis_timeout_seconds=20.0) as topom:
            refused = await topom.call("POST", "/groups", {"id": 1, "servers": [server.address]}, 409)
            assert refused["error"] == "ServersUnreachable", refused
            assert f"{server.address} does not let topom in" in refused["message"]
            named = set(re.findall(r"redis_\w+", refused["message"]))
            assert "redis_password" in named <= TopomSettings.model_fields.keys()
            assert "not told" not in json.dumps(refused)
            body = {"id": 1, "servers": [server.address], "offline_ok": True}
            assert (await topom.call("POST", "/groups", body))["silent"] == [server.address]
    finally:
        await server.stop()
