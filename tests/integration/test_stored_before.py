"""What a topom of the version before has stored is taken over: every kind of record, slots in every state but one.

Slots whose keys are on two servers are refused: that version did not store which processes those were. So that version
has to see them to their end first.

``stored_before.sql`` is such a store, written by that version: one with something of everything in it, whose servers do
not answer. A later version that takes nothing over any more has to refuse it with a sentence, and this file to say so.
"""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.topom_process import TopomProcess, topom_process
from topom.term.stores import STORE_FILE

BEFORE = Path(__file__).with_name("stored_before.sql")
VERSION, EPOCH = 41, 40


def ended(action: dict[str, Any]) -> dict[str, Any]:
    """An action of which keys had moved once all have; any other as it is."""
    if action.get("state") == "migrating" or action.get("course") == "back":
        return {"state": "finished", "target_id": action["target_id"]}
    return action


def server(port: int) -> str:
    return f"127.0.0.1:{port}"


async def test_a_store_of_the_version_before_is_taken_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with sqlite3.connect(data / STORE_FILE) as connection:
        connection.executescript(BEFORE.read_text(encoding="utf-8"))
    connection.close()
    refused = TopomProcess(data, product="shop", redis_timeout_seconds=0.5)
    await refused.ends_at_start()
    assert "slots 4-8 are on their way" in refused.log()
    assert "Start that version again" in refused.log()
    with sqlite3.connect(data / STORE_FILE) as connection:
        # That version ends them.
        ((slots,),) = connection.execute("SELECT value FROM documents WHERE name = 'slots/0000'").fetchall()
        arrived = [{**slot, "action": ended(slot["action"])} for slot in json.loads(slots)]
        connection.execute("UPDATE documents SET value = ? WHERE name = 'slots/0000'", (json.dumps(arrived).encode(),))
    connection.close()
    async with topom_process(data, product="shop", redis_timeout_seconds=0.5) as topom:
        status = await topom.call("GET", "/status")
        assert status["failing"] == {}
        assert status["epoch"] > EPOCH
        assert (status["slots"]["assigned"], status["slots"]["offline"]) == (14, 2)
        groups = {group["id"]: [one["address"] for one in group["servers"]] for group in status["groups"]}
        assert groups == {number: [server(2 * number - 1), server(2 * number)] for number in range(1, 5)} | {5: []}
        slots = (await topom.call("GET", "/slots"))["slots"]
        states = Counter(slot["action"]["state"] for slot in slots if slot.get("action"))
        assert states == {"pending": 5, "finished": 6}, "what had moved no key begins anew"
        # And that of slot 12, whose group is to leave.
        assert {slot["id"] for slot in slots if slot.get("action")} - {12} == {*range(1, 10), 13}
        assert slots[8]["action"]["target_id"] == 1
        assert sorted(proxy["id"] for proxy in status["proxies"]) == [1, 2]
        assert status["migration"]["paused"] is True
        assert '"keys_per_second": 1000' in json.dumps(status["migration"])
        # It chose a way for keys to go, of which there is one by now.
        assert "way" not in status["migration"]["settings"]
        assert status["protection"]["lifted"]["by"] == "operator ada"
        assert {(one["kind"], one["id"]) for one in status["leaving"]} >= {("group", "4"), ("server", server(2))}
        pool = await topom.call("GET", "/pool")
        assert server(12) in {one["address"] for one in pool["servers"]}
        assert (await topom.call("GET", "/placement"))["auto"] is True
        events = (await topom.call("GET", "/events?limit=1000"))["events"]
        assert [event["text"] for event in events if event["id"] <= 2] == ["topom started", "group 1 was added"]
        assert '"keys": 3' in json.dumps(await topom.call("GET", "/sizes"))
        # It goes on: what it stores now is stored.
        await topom.call("POST", "/groups", {"id": 6})
        assert "Traceback" not in topom.log()
    async with topom_process(data, product="shop", redis_timeout_seconds=0.5) as topom:
        status = await topom.call("GET", "/status")
        assert [group["id"] for group in status["groups"]] == [1, 2, 3, 4, 5, 6]
        assert status["slots"]["moving"] == 11
