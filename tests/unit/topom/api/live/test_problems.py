"""What is wrong is told with what to do, the grave first, once, and within a bound."""

from typing import Any

from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.api.live.problems import MOST, problems
from topom.api.status_models import Status
from topom.reasons import Kind, Reason
from topom.term.service import Topom
from topom.term.settings import TopomSettings

SERVER = {"address": "s1:1", "role": "master", "up": True, "keys": 1, "memory_bytes": 1, "datacenter": ""}
LIMITS = {
    "parallel_slots": 1,
    "keys_per_second": 0,
    "bytes_per_second": 0,
    "latency_goal_milliseconds": 0,
    "hours": "",
    "time_zone": "",
    "min_replicas": 0,
    "way": "keys",
}
MIGRATION = {
    "epoch": 1,
    "paused": False,
    "halted": None,
    "halted_until": None,
    "settings": LIMITS,
    "slots_pending": 0,
    "slots_moving": 0,
    "slots_moved": 0,
    "keys_moved": 0,
    "bytes_moved": 0,
    "keys_per_second": 0.0,
    "remaining_keys": None,
    "batches": [],
}
PROXY = {
    "id": 1,
    "instance": "i",
    "address": "p:1",
    "hostname": "h",
    "pid": 1,
    "workers": 1,
    "version": "0",
    "state": "online",
    "draining": False,
    "stand_down_seconds": None,
    "epoch": 1,
    "counters": {},
}
BATCH = {
    "source": 1,
    "target": 2,
    "state": "preparing",
    "slots": "0-3",
    "keys_moved": 0,
    "bytes_moved": 0,
    "remaining_keys": None,
    "passes": 0,
    "pacing": None,
}


def reason(kind: Kind, what: str = "it is so") -> Reason:
    return Reason(kind, what, 5.0, "do this")


def status(**said: Any) -> Status:
    return Status.model_validate(
        {
            "product": "p",
            "epoch": 1,
            "number_of_slots": 4,
            "slot_function": "crc32",
            "databases": 1,
            "groups": [{"id": 1, "servers": [SERVER], "slots": 4}],
            "proxies": [PROXY],
            "leaving": [],
            "slots": {"total": 4, "assigned": 4, "offline": 0, "moving": 0},
            "migration": MIGRATION,
            "protection": {"active": False, "lost": 0, "members": 2, "lifted": None},
            "pause": None,
            **said,
        }
    )


def told(**said: Any) -> list[dict[str, Any]]:
    return list(problems(status(**said)).values())


def group(**server: Any) -> list[dict[str, Any]]:
    return [{"id": 1, "servers": [{**SERVER, **server}], "slots": 4}]


def test_nothing_is_wrong() -> None:
    assert told() == []


def test_a_failed_server_is_told_with_what_to_do_and_since_when() -> None:
    [found] = told(groups=group(condition="failed", silent=3, views=4, silent_since=77.0))
    assert found["about"] == "server s1:1"
    assert found["what"] == "master s1:1 of group 1 has failed: 3 of 4 views have no answer from it"
    assert (found["grave"], found["kind"], found["since"]) == (True, "server", 77.0)
    assert found["to_do"]


def test_of_a_group_it_is_said_that_its_master_has_failed() -> None:
    [found] = told(groups=[{"id": 1, "servers": [SERVER], "slots": 4, "reason": reason(Kind.DATA)}])
    assert (found["about"], found["since"], found["to_do"]) == ("group 1", 5.0, "do this")
    assert found["what"] == "its master has failed and is not replaced yet: it is so"


def test_reasons_come_as_they_are() -> None:
    for said in (
        {"reason": reason(Kind.STORE)},
        {"sentinels": reason(Kind.SENTINEL)},
        {"failing": {"health": reason(Kind.FAULT)}},
        {"groups": group(not_used=reason(Kind.DATA))},
        {"migration": {**MIGRATION, "batches": [{**BATCH, "reason": reason(Kind.PROXY)}]}},
        {"migration": {**MIGRATION, "skipped": [{"slots": "1", "reason": reason(Kind.SERVER)}]}},
        {"leaving": [{"kind": "node", "id": "n", "why": "", "since": 1.0, "reason": reason(Kind.DATA)}]},
        {"topoms": [{"instance": "i", "url": "u", "state": "follows", "reason": reason(Kind.STORE)}]},
    ):
        [found] = told(**said)
        assert (found["what"], found["since"], found["to_do"]) == ("it is so", 5.0, "do this"), said
        assert found["grave"]


def test_lost_proxies_protection_silent_topoms_and_offline_slots() -> None:
    [lost] = told(proxies=[{**PROXY, "state": "lost", "lost_since": 9.0}])
    assert (lost["about"], lost["since"], lost["grave"]) == ("proxy 1", 9.0, True)
    [protected] = told(protection={"active": True, "lost": 2, "members": 3, "since": 8.0, "lifted": None})
    assert protected["what"].startswith("2 of 3 servers and proxies are lost")
    assert protected["since"] == 8.0
    [silent] = told(topoms=[{"instance": "i", "url": "http://two", "state": "silent", "silent_since": 6.0}])
    assert "http://two" in silent["what"]
    assert silent["since"] == 6.0
    [offline] = told(slots={"total": 4, "assigned": 1, "offline": 3, "offline_since": 7.0, "moving": 0})
    assert offline["since"] == 7.0
    assert offline["what"] == "3 slots are offline: proxies refuse commands for them"
    [none] = told(groups=[], slots={"total": 4, "assigned": 0, "offline": 4, "moving": 0})
    assert none["what"] == "there is no group yet, so proxies refuse all commands"
    [empty] = told(groups=[{"id": 2, "servers": [], "slots": 4}])
    assert empty["what"] == "group 2 owns slots and has no server"


def test_what_an_operator_ordered_is_not_grave_and_comes_last() -> None:
    found = told(
        pause={"by": "operator ada", "at": 3.0, "why": "switches"},
        migration={**MIGRATION, "paused": True, "halted": reason(Kind.PAUSED)},
        groups=group(condition="suspected", silent_since=4.0),
    )
    assert [(one["about"], one["grave"]) for one in found] == [
        ("server s1:1", True),
        ("migration", False),
        ("topom", False),
    ]
    assert "for operator ada has paused it: switches" in found[-1]["what"]


def test_a_halt_is_told_once_and_not_for_each_batch() -> None:
    batches = [{**BATCH, "reason": reason(Kind.PAUSED)}, {**BATCH, "target": 3, "reason": reason(Kind.PAUSED)}]
    [found] = told(migration={**MIGRATION, "paused": True, "halted": reason(Kind.PAUSED), "batches": batches})
    assert found["about"] == "migration"


def test_more_than_can_be_read_is_counted() -> None:
    lost = [{**PROXY, "id": number, "state": "lost"} for number in range(1, MOST + 8)]
    found = told(proxies=lost)
    assert len(found) == MOST + 1
    assert found[-1]["what"].startswith("7 more things")


async def test_the_status_of_a_topom_is_understood(tmp_path: Any) -> None:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    topom = Topom(settings, MemoryStore(), FakeMover())
    await topom.start()
    try:
        async with client_of(topom) as client:
            await client.post("/groups", json={"id": 1})
            found = problems(Status.model_validate((await client.get("/status")).json()))
            assert [one["about"] for one in found.values()] == ["slots"]
            await client.post("/pause", json={"why": "switches"})
            found = problems(Status.model_validate((await client.get("/status")).json()))
            assert [one["about"] for one in found.values()] == ["slots", "topom"]
    finally:
        await topom.close()
