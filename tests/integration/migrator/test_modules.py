"""Keys of a module's own type, which only the module can take apart: they go whole, and the log says how long."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from migrator import bigkeys
from migrator.errors import TargetRefused
from slotferry.redis_server import start_redis
from slots import permits
from tests.integration.migrator.pairs import Pair, client_of, size
from tests.integration.migrator.steps import claims, take
from tests.modules.compiling import compiled

BIG = 5_000_000


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A module with a type of its own."""
    return compiled("pages", tmp_path_factory.mktemp("modules"))


@pytest.fixture
async def pair(pages: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two servers that have the module."""
    servers = [await start_redis(name, tmp_path, extra=["--loadmodule", pages]) for name in ("source", "target")]
    yield Pair(*servers)
    for server in servers:
        await server.stop()


async def test_small_and_large_ones(pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigkeys, "SLOW_SECONDS", 0.0)
    lengths = {"empty": 0, "small": 100, "large": BIG, "larger": 2 * BIG}
    sums = {name: await source.execute_command("PAGE.WRITE", name, length, 7) for name, length in lengths.items()}
    await source.pexpire("large", 3_600_000)
    deadline = await source.execute_command("PEXPIRETIME", "large")

    with capture_logs() as logs:
        await pair.migrate()

    assert {name: await target.execute_command("PAGE.SUM", name) for name in lengths} == sums
    assert await target.execute_command("PEXPIRETIME", "large") == deadline
    assert await target.ttl("larger") == -1
    assert await size(source) == 0
    whole = [entry for entry in logs if entry["event"] == "key_moved_whole"]
    assert len(whole) == 2
    assert all("is a demo-page" in entry["reason"] for entry in whole)
    assert all(entry["seconds"] >= 0 and entry["bytes"] > BIG for entry in whole)


async def test_a_target_without_the_module_refuses_them_and_the_source_keeps_them(
    pair: Pair, source: Redis, tmp_path: Path
) -> None:
    written = await source.execute_command("PAGE.WRITE", "page", 1000, 7)
    other = await start_redis("other", tmp_path)
    try:
        with pytest.raises(TargetRefused):
            await Pair(pair.source, other).migrate()
        async with client_of(other) as redis:
            with pytest.raises(ResponseError, match="unknown command"):
                await redis.execute_command("PAGE.SUM", "page")
    finally:
        await other.stop()
    assert await source.execute_command("PAGE.SUM", "page") == written


async def test_a_key_that_the_source_cannot_give_is_no_harm_to_those_that_are_taken_with_it(
    pages: str, target: Redis, tmp_path: Path
) -> None:
    """given a source that cannot tell how big a module's key is."""
    server = await start_redis("older", tmp_path, extra=["--loadmodule", pages, "--rename-command", "MEMORY", ""])
    try:
        async with client_of(server) as source:
            await source.execute_command("PAGE.WRITE", "page", 1000, 7)
            await source.mset({"first": "value", "second": "value"})
            permit = await permits.renew(source, target, "target")
            found = await take(source, permit, b"first", b"page", b"none", b"second")
            assert found is not None
            assert (found.looked_at, found.places, [*found.refused]) == (4, (0, 3), [1])
            assert {*await claims(source)} == {b"claim:0:first", b"claim:0:second"}
    finally:
        await server.stop()
