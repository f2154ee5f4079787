"""A topom that lays out the slots by itself, over real servers that come one by one."""

import asyncio
from pathlib import Path

import pytest

from slots import ranges
from tests.integration.topom_process import TopomProcess, address_of, redis_server


async def said(topom: TopomProcess, text: str) -> None:
    """Wait until topom has logged this."""
    async with asyncio.timeout(60):
        while text not in topom.log():
            await asyncio.sleep(0.02)


@pytest.mark.long
async def test_slots_are_laid_out_when_enough_empty_masters_are_there(tmp_path: Path) -> None:
    topom = TopomProcess(tmp_path / "topom", min_groups=2)
    with redis_server(tmp_path / "a") as first, redis_server(tmp_path / "b") as second:
        second.set("left", "over")
        await topom.start()
        try:
            await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(first)]})
            await said(topom, "1 of min_groups = 2")
            await topom.call("POST", "/groups", {"id": 2, "servers": [address_of(second)]})
            await said(topom, f"{address_of(second)} of group 2 holds keys")
            assert (await topom.call("GET", "/status"))["slots"]["assigned"] == 0
            second.flushall()
            await topom.until(lambda status: status["slots"]["assigned"] == 16)
            slots = (await topom.call("GET", "/slots"))["slots"]
            owned = {group: ranges.show(slot["id"] for slot in slots if slot["group_id"] == group) for group in (1, 2)}
            assert owned == {1: "0-7", 2: "8-15"}
            told = [event["what"] for event in (await topom.call("GET", "/events"))["events"]]
            assert told[-3:] == ["first_layout", "slots_assigned", "slots_assigned"]
        finally:
            topom.kill()
