"""A table that cannot be used ends the stream, and not the proxy."""

import asyncio
from typing import Any

import pytest
import structlog.testing

from tests.unit.proxy.proxy_fakes import Director, FakeTopom
from tests.unit.proxy.supervisor.test_supervisor import running

SLOTS = [{"ids": "0", "group_id": 1}]


@pytest.mark.parametrize(
    "table",
    [
        {"epoch": 1, "slots": [{"ids": 5, "group_id": 1}], "groups": [{"id": 1, "servers": ["127.0.0.1:1"]}]},
        {"epoch": 2**70, "slots": SLOTS, "groups": [{"id": 1, "servers": ["127.0.0.1:1"]}]},
        {"epoch": 1, "slots": SLOTS, "groups": [{"id": 1, "servers": ["a:b"]}]},
        {"epoch": 1, "slots": SLOTS, "groups": [{"id": 1, "servers": ["h" * 400 + ":1"]}]},
        {"epoch": 1, "slots": SLOTS * 2, "groups": [{"id": 1, "servers": ["127.0.0.1:1"]}]},
    ],
    ids=["ids", "epoch", "server", "long server", "slots"],
)
async def test_a_table_that_cannot_be_used(topom: FakeTopom, director: Director, table: dict[str, Any]) -> None:
    async with running(topom, director) as proxy:
        stream, _, _ = await proxy.begin(number_of_slots=1)
        with structlog.testing.capture_logs() as logs:
            await stream.send({"type": "table", "table": table})
            async with asyncio.timeout(60):
                again = await topom.stream()
        await again.register(number_of_slots=1)
        assert (await again.next("heartbeat"))["epoch"] == 0
    reasons = [entry["reason"] for entry in logs if entry["event"] == "topom_lost"]
    assert len(reasons) == 1
    assert "topom sent a table that cannot be used" in reasons[0]
