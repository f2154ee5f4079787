"""``slotferry`` end to end: the operator's verbs against a running cluster, as text and as JSON, and their failures."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from slotferry import __version__
from slotferry.calls import TopomRefused
from slots import functions
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.harness import Cluster, eventually, running


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """Three groups, all slots at the first two; each test leaves it so."""
    yield from running(Cluster(groups=3, workers=1, slots_on=[1, 2], number_of_slots=64))


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    async with shared_cluster.visit():
        yield shared_cluster


async def operate(cluster: Cluster, *arguments: str) -> Outcome:
    """Run a verb against the cluster's topom, which the environment names."""
    return await slotferry(*arguments, SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token)


async def say(cluster: Cluster, *arguments: str) -> str:
    """What a verb prints as text, when it succeeds."""
    outcome = await operate(cluster, *arguments)
    assert outcome.status == 0, outcome
    return outcome.out


async def refusal(cluster: Cluster, *arguments: str) -> str:
    """The sentence with which a verb fails, whether JSON is wanted or not."""
    outcome, as_json = await asyncio.gather(operate(cluster, *arguments), operate(cluster, *arguments, "-o", "json"))
    assert (outcome.status, outcome.out) == (1, ""), outcome
    assert outcome.err.startswith("error: "), outcome
    assert (as_json.status, as_json.out, as_json.err) == (1, "", outcome.err), as_json
    return outcome.err.removeprefix("error: ")


async def test_status(cluster: Cluster) -> None:
    text, status = await asyncio.gather(say(cluster, "status"), operate(cluster, "status", "-o", "json"))
    assert "product local" in text
    assert "64 assigned, 0 offline, 0 moving" in text
    for address in (*(server for servers in cluster.groups.values() for server in servers), *cluster.proxy_addresses):
        assert address in text
    found = status.json
    assert [group["slots"] for group in found["groups"]] == [32, 32, 0]
    assert [proxy["state"] for proxy in found["proxies"]] == ["online"]


@pytest.mark.long
async def test_groups_and_servers(cluster: Cluster) -> None:
    assert await say(cluster, "group", "add", "7") == "group 7 added\n"
    silent = await refusal(cluster, "server", "add", "7", "127.0.0.1:1")
    assert silent.startswith("127.0.0.1:1 does not answer topom's INFO (")
    assert "--offline-ok" in silent
    assert silent == await refusal(cluster, "group", "add", "9", "127.0.0.1:1")
    said = await say(cluster, "server", "add", "7", "127.0.0.1:1", "--offline-ok")
    assert said.startswith("server 127.0.0.1:1 added to group 7; no answer now from 127.0.0.1:1")
    (proxy,) = cluster.proxy_addresses
    assert f"{proxy} is a Slotferry proxy, not a Redis server" in await refusal(cluster, "group", "add", "9", proxy)
    topom = cluster.topom_url.removeprefix("http://")
    told = await refusal(cluster, "server", "add", "7", topom)
    assert f"what answers at {topom} is not a Redis server (it answers by HTTP, as topom and web servers do)" in told
    for adding in (cluster.api.add_server(7, proxy), cluster.api.add_to_pool(proxy)):
        with pytest.raises(TopomRefused, match="is a Slotferry proxy"):
            await adding
    assert (await operate(cluster, "server", "add", "7", "127.0.0.1:2", "--offline-ok", "-o", "json")).json[
        "servers"
    ] == [
        "127.0.0.1:1",
        "127.0.0.1:2",
    ]
    added = await operate(
        cluster, "group", "add", "8", "127.0.0.1:3", "--datacenter", "oslo", "--offline-ok", "-o", "json"
    )
    assert added.json["id"] == 8
    assert "in datacenter rome-2" in await say(cluster, "server", "set", "127.0.0.1:2", "--datacenter", "rome-2")
    assert {"oslo", "rome-2"} <= set((await say(cluster, "status")).split())
    assert "no name" in await refusal(cluster, "server", "add", "7", "127.0.0.1:4", "--datacenter", "a b")
    assert "in no datacenter" in await say(cluster, "server", "set", "127.0.0.1:2", "--datacenter", "")
    assert "down" in await say(cluster, "status")
    assert "127.0.0.1:3 belongs to group 8 already" in await refusal(cluster, "server", "add", "7", "127.0.0.1:3")
    assert "group 7 exists already" in await refusal(cluster, "group", "add", "7")
    assert "need" in await refusal(cluster, "server", "remove", cluster.groups[1][0])
    assert "there is no server 127.0.0.1:9 in a group" in await refusal(cluster, "server", "remove", "127.0.0.1:9")
    assert "127.0.0.1:2 removed" in await say(cluster, "server", "remove", "127.0.0.1:2")
    assert (await operate(cluster, "server", "remove", "127.0.0.1:1", "-o", "json")).json["servers"] == []
    assert await say(cluster, "group", "remove", "7") == "group 7 removed\n"
    assert (await operate(cluster, "group", "remove", "8", "-o", "json")).status == 0
    assert "there is no group 7" in await refusal(cluster, "group", "remove", "7")
    assert "slots 0-31" in await refusal(cluster, "group", "remove", "1")
    assert [group["id"] for group in await cluster.api.groups()] == [1, 2, 3]


@pytest.mark.long
async def test_slots(cluster: Cluster) -> None:
    text, shown = await asyncio.gather(say(cluster, "slot", "list"), operate(cluster, "slot", "list", "-o", "json"))
    assert "0-31" in text
    assert "group 2" in text
    assert [slot["group_id"] for slot in shown.json["slots"]] == [1] * 32 + [2] * 32

    assert "moved to group 3: slots 0-3,9" in await say(cluster, "slot", "move", "0-3,9", "--to", "3", "--wait")
    assert (await operate(cluster, "slot", "move", "0-3,9", "--to", "1", "--wait", "-o", "json")).json["slots"] == [
        *range(4),
        9,
    ]
    assert "nothing to change" in await say(cluster, "slot", "move", "0-3", "--to", "1")
    assert await say(cluster, "slot", "offline", "60-63") == "offline: slots 60-63\n"
    assert "slots 60-63 are offline" in await refusal(cluster, "slot", "move", "60-63", "--to", "3")
    assert "assigned to group 3: slots 60-61" in await say(cluster, "slot", "assign", "60,61", "--to", "3")
    assert (await operate(cluster, "slot", "assign", "62-63", "--to", "3", "-o", "json")).json["slots"] == [
        62,
        63,
    ]
    assert "slot 0 has an owner" in await refusal(cluster, "slot", "assign", "0", "--to", "3")
    assert "there is no group 9" in await refusal(cluster, "slot", "move", "0", "--to", "9")
    for wrong in ("64", "5-2", "x", "0-63,"):
        assert await refusal(cluster, "slot", "move", wrong, "--to", "3")
    assert (await operate(cluster, "slot", "offline", "62-63", "-o", "json")).json["slots"] == [62, 63]
    await say(cluster, "slot", "assign", "62-63", "--to", "2")
    await say(cluster, "slot", "move", "60-61", "--to", "2", "--wait")
    await cluster.at_rest({1: 32, 2: 32, 3: 0})


@pytest.mark.long
async def test_a_wait_that_is_too_long_ends_and_the_move_goes_on(cluster: Cluster) -> None:
    await cluster.api.pause_migration()
    text = await refusal(cluster, "slot", "move", "0-3", "--to", "3", "--wait", "--timeout", "1")
    assert "4 of 4 slots have not moved after 1 s" in text
    assert "pending" in await say(cluster, "slot", "list")
    assert "paused" in await say(cluster, "migration", "show")
    await cluster.api.resume_migration()
    await cluster.at_rest({1: 28, 2: 32, 3: 4})
    await say(cluster, "slot", "move", "0-3", "--to", "1", "--wait")


async def test_rebalance(cluster: Cluster) -> None:
    text, planned = await asyncio.gather(
        say(cluster, "rebalance", "--dry-run"), operate(cluster, "rebalance", "--dry-run", "-o", "json")
    )
    assert "21 slots would move, policy codis" in text
    assert (planned.json["dry_run"], len(planned.json["moves"])) == (True, 21)
    await cluster.at_rest({1: 32, 2: 32, 3: 0})
    assert "21 slots moved, policy codis" in await say(cluster, "rebalance", "--policy", "codis", "--wait")
    await cluster.at_rest({1: 22, 2: 21, 3: 21})
    assert (await operate(cluster, "rebalance", "--wait", "-o", "json")).json["moves"] == []
    assert "nothing to move" in await say(cluster, "rebalance")
    assert "nosuch" in await refusal(cluster, "rebalance", "--policy", "nosuch")
    slots = (await cluster.api.slots())["slots"]
    for group_id, ids in ((1, range(32)), (2, range(32, 64))):
        back = ",".join(str(slot["id"]) for slot in slots if slot["group_id"] == 3 and slot["id"] in ids)
        await say(cluster, "slot", "move", back, "--to", str(group_id), "--wait")
    await cluster.at_rest({1: 32, 2: 32, 3: 0})


async def test_migration(cluster: Cluster) -> None:
    text, status = await asyncio.gather(
        say(cluster, "migration", "show"), operate(cluster, "migration", "show", "-o", "json")
    )
    assert "migration: 0 slots pending, 0 moving" in text
    settings = status.json["settings"]
    assert all(name in text for name in settings)
    assert "paused" in await say(cluster, "migration", "pause")
    assert (await operate(cluster, "migration", "pause", "-o", "json")).json["paused"] is True
    assert (await operate(cluster, "migration", "resume", "-o", "json")).json["paused"] is False
    assert "goes on" in await say(cluster, "migration", "resume")
    changed = await operate(
        cluster, "migration", "set", "--keys-per-second", "1234", "--min-replicas", "7", "-o", "json"
    )
    assert changed.json["settings"] == {**settings, "keys_per_second": 1234, "min_replicas": 7}
    restored = await say(
        cluster, "migration", "set", "--keys-per-second", "0", "--min-replicas", str(settings["min_replicas"])
    )
    assert "keys_per_second" in restored
    assert (await operate(cluster, "migration", "set")).status == 2
    assert (await cluster.api.migration())["settings"] == settings


async def test_proxies(cluster: Cluster) -> None:
    text, listed = await asyncio.gather(say(cluster, "proxy", "list"), operate(cluster, "proxy", "list", "-o", "json"))
    assert cluster.proxy_addresses[0] in text
    proxy = listed.json["proxies"][0]
    assert proxy["address"] == cluster.proxy_addresses[0]
    assert "there is no proxy 999" in await refusal(cluster, "proxy", "remove", "999")
    assert await say(cluster, "proxy", "remove", str(proxy["id"])) == f"proxy {proxy['id']} removed\n"
    # It runs on, so it comes back as another one, and serves.
    back = (await cluster.online(1))[0]
    assert back["instance"] != proxy["instance"]
    await cluster.ready()
    removed = await operate(cluster, "proxy", "remove", str(back["id"]), "-o", "json")
    assert removed.json == {"id": back["id"], "not_fenced": {}}
    await cluster.online(1)
    await cluster.ready()


async def test_who_topom_does_not_know(cluster: Cluster) -> None:
    by_options = await slotferry("status", "-o", "json", "--topom", cluster.topom_url, "--token", cluster.token)
    assert by_options.json["product"] == "local"
    for token, said in (
        ("", "wants a token; give one by --token, SLOTFERRY_TOKEN"),
        ("wrong", "does not accept the token"),
    ):
        outcome = await slotferry("status", SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=token)
        assert outcome.status == 1
        assert said in outcome.err
        assert "SLOTFERRY_TOKEN" in outcome.err
        assert "Traceback" not in outcome.err
    nobody = await slotferry("status", "--topom", "http://127.0.0.1:1", "--token", "x")
    assert nobody.status == 1
    assert nobody.err.startswith("error: topom does not answer at http://127.0.0.1:1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["slot", "move", "1"],
        ["slot", "move", "--to", "x", "1"],
        ["status", "--nosuch"],
        ["group", "add", "0"],
    ],
)
async def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    outcome = await slotferry(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert "Traceback" not in outcome.err


async def test_help_and_version() -> None:
    help_text = await slotferry("--help")
    assert help_text.status == 0
    verbs = ["proxy", "topom", "local", "demo", "status", "group", "server", "slots", "rebalance", "migration", "plan"]
    assert [verb for verb in verbs if verb not in help_text.out] == []
    version = await slotferry("--version")
    assert version.out == f"slotferry {__version__}\n"


async def test_slot_and_plan_need_no_topom(tmp_path: Path) -> None:
    listed = await slotferry("slot", "of", "{user1000}.following", "-o", "json")
    assert [(entry["function"], entry["tag"]) for entry in listed.json] == [
        (name, "user1000") for name in ("crc32", "crc16", "crc32c", "md5")
    ]
    assert "user1000" in (await slotferry("slot", "of", "{user1000}.following")).out
    document = {
        "groups": [{"id": 1, "servers": ["a:1"]}, {"id": 2, "servers": ["b:1"]}],
        "slots": [{"id": number, "group_id": 1, "action": {}} for number in range(4)],
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(document))
    moves = [{"slot": 2, "from": 1, "to": 2}, {"slot": 3, "from": 1, "to": 2}]
    assert (await slotferry("plan", "--policy", "codis", "--input", str(file))).json == {"moves": moves}
    assert (await slotferry("plan", "--input", "-", given=json.dumps(document))).json == {"moves": moves}
    missing = await slotferry("plan", "--input", str(tmp_path / "nosuch"))
    assert (missing.status, missing.out) == (1, "")
    assert "cannot be read" in missing.err


@pytest.mark.long
async def test_moves_are_skipped_retried_and_cancelled(cluster: Cluster) -> None:
    assert await say(cluster, "migration", "cancel") == "nothing to cancel\n"
    await say(cluster, "migration", "pause")
    await say(cluster, "slot", "move", "0-9", "--to", "3")
    assert await say(cluster, "migration", "skip", "--slots", "0-3") == "skipped: slots 0-3\n"
    status = await say(cluster, "migration", "show")
    assert "skipped: slots 0-3: an operator wanted it so" in status
    assert "`slotferry migration retry --slots 0-3`" in status
    assert "skipped" in await say(cluster, "slot", "list")
    assert "no longer skipped: slots 2-3" in await say(cluster, "migration", "retry", "--slots", "2-9")
    assert "is not within 0-63" in await refusal(cluster, "migration", "cancel", "--slots", "0-99")
    cancelled = await say(cluster, "migration", "cancel", "--slots", "0-4", "--wait")
    assert cancelled == "cancelled before anything moved: slots 0-4\n"
    outcome = await operate(cluster, "migration", "cancel", "-o", "json")
    assert outcome.json["ended"] == list(range(5, 10))
    await say(cluster, "migration", "resume")
    await cluster.at_rest({1: 32, 2: 32, 3: 0})


async def test_cancelling_waits_until_what_had_moved_is_back(cluster: Cluster) -> None:
    await cluster.load_ballast()
    # Slow enough for the command to come before they have arrived, however long it takes to start.
    await say(cluster, "migration", "set", "--keys-per-second", "5")
    await say(cluster, "slot", "move", "0-31", "--to", "3")
    await cluster.moving(1)
    waiting = asyncio.create_task(say(cluster, "migration", "cancel", "--wait"))
    await eventually(
        cluster.api.migration,
        lambda found: any(batch["course"] != "forward" for batch in found["batches"]),
        "the slots to be cancelled",
    )
    await cluster.api.set_migration(keys_per_second=0)
    assert await waiting == "have returned: slots 0-31\n"
    await cluster.at_rest({1: 32, 2: 32, 3: 0})
    await cluster.check_ballast()
    await cluster.flush()


async def test_the_slot_of_a_key_is_by_the_products_function_and_number_of_slots(cluster: Cluster) -> None:
    said = json.loads(await say(cluster, "slot", "of", "user:{42}", "plain", "-o", "json"))
    expected = [(b"42", "42"), (b"plain", "plain")]
    assert [(row["function"], row["tag"], row["rule"], row["slot"]) for row in said] == [
        ("crc32", tag, None, functions.slot("crc32", key, 64)) for key, tag in expected
    ]
    assert "plain" in await say(cluster, "slot", "of", "plain", "--database", "3")
