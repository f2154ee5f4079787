"""topom's own connections to the servers never cost their callers more than an answer that says why."""

from typing import Any

import pytest
from redis.asyncio import Redis

from slots.access import ServerAccess
from topom.redis_servers import DOWN, RedisServers

ADDRESS = "127.0.0.1:1"


@pytest.mark.parametrize(
    "error", [RuntimeError("the handler is closed"), ConnectionResetError("reset"), TimeoutError()]
)
async def test_a_connection_that_ends_at_any_moment_is_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """given uvloop, writing to a connection that was reset just now raises RuntimeError."""

    async def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(Redis, "execute_command", fail)
    servers = RedisServers(ServerAccess(), 1.0)
    assert await servers.status([ADDRESS]) == {ADDRESS: DOWN}
    (reason,) = (await servers.fence("1" * 32, [ADDRESS])).values()
    assert reason
    assert set(await servers.unreachable([ADDRESS])) == {ADDRESS}
    await servers.close()
