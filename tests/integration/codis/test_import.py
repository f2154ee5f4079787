"""A dump of a real Codis, brought into a real topom over real servers."""

import asyncio
import json
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slots import functions, ranges
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.topom_process import HandProxy, TopomProcess, address_of, redis_server, topom_process

DUMP = Path(__file__).with_name("config-dump.json")
KEYS = [b"key:%d" % number for number in range(200)] + [b"{tag}a", b"{tag}b", b"{}", b"a{b", b"\xff\x00"]


async def run(topom: TopomProcess, *arguments: str) -> Outcome:
    return await slotferry("import", "codis", *arguments, SLOTFERRY_TOPOM=topom.url, SLOTFERRY_TOKEN=topom.token)


def slot_in_codis(key: bytes) -> int:
    """By Codis's rule: the text between the first brace and the next closing one is hashed, even if it is empty."""
    begin = key.find(b"{")
    end = key.find(b"}", begin + 1) if begin >= 0 else -1
    return zlib.crc32(key[begin + 1 : end] if end >= 0 else key) % 1024


def owners(slots: list[dict[str, Any]]) -> dict[int, str]:
    return {one: ranges.show(slot["id"] for slot in slots if slot["group_id"] == one) for one in (0, 1, 2)}


async def test_a_real_dump_is_brought_in(tmp_path: Path) -> None:
    # Given the servers of the dump, with the keys that Codis put on each, at addresses of this test.
    dump = json.loads(DUMP.read_text())
    with ExitStack() as stack:
        servers = [stack.enter_context(redis_server(tmp_path / name)) for name in "ab"]
        for group, server in zip(dump["group"], servers, strict=False):
            group["servers"][0] |= {"server": address_of(server), "datacenter": f"dc{group['id']}"}
        moving = dump["slots"][600]["action"] = {"index": 1, "state": "migrating", "target_id": 1}
        file = tmp_path / "dump.json"
        file.write_text(json.dumps(dump))
        async with topom_process(tmp_path / "topom", number_of_slots=1024) as topom, HandProxy(topom) as proxy:
            # When it is looked at, nothing changes.
            looked = await run(topom, str(file), "--dry-run")
            assert looked.status == 1, looked
            assert "Codis is moving them to group 1 (migrating)" in looked.out
            assert (await topom.call("GET", "/groups"))["groups"] == []
            # When it is brought in while Codis moves a slot, all but that is taken.
            first = await run(topom, str(file))
            assert first.status == 1, first
            assert "slots 600 have to be taken" in first.err
            assert owners((await topom.call("GET", "/slots"))["slots"]) == {0: "600", 1: "0-511", 2: "512-599,601-1023"}
            # When Codis has finished, a new dump brings the rest; and again, nothing.
            moving["state"] = "finished"
            file.write_text(json.dumps(dump))
            for key in KEYS:
                slot = slot_in_codis(key)
                servers[0 if slot < 512 or slot == 600 else 1].set(key, key)
            taken = (await run(topom, str(file), "-o", "json")).json
            assert (taken["groups"], taken["servers"], taken["slots"]) == ([], [], {"1": "600"})
            assert [text for text in taken["notes"] if "should be" in text or "does not answer" in text] == []
            again = (await run(topom, str(file), "-o", "json")).json
            assert (again["slots"], again["slots_there"]) == ({}, "0-1023")
            # Then groups, datacenters and slots are as in Codis, and every key is where proxies look for it.
            groups = {group["id"]: group["servers"] for group in (await topom.call("GET", "/groups"))["groups"]}
            assert {one: [(s["address"], s["datacenter"]) for s in found] for one, found in groups.items()} == {
                1: [(address_of(servers[0]), "dc1")],
                2: [(address_of(servers[1]), "dc2")],
                7: [],
            }
            epoch = (await topom.call("GET", "/status"))["epoch"]
            async with asyncio.timeout(60):
                while proxy.table is None or proxy.table.epoch < epoch:
                    await asyncio.sleep(0.01)
            for key in KEYS:
                owner = proxy.table.slots[functions.slot("crc32", key, 1024)].owner_id
                assert servers[owner - 1].get(key) == key
            # And where topom has moved on, an old dump changes nothing.
            await topom.call("POST", "/slots/move", {"slots": "0", "group_id": 2})
            refused = await run(topom, str(file))
            assert refused.status == 1
            assert "nothing was done" in refused.out
            assert "slots 0 are in group 1 in Codis" in refused.out
            told = (await topom.call("GET", "/events"))["events"]
            assert all(
                e["who"].endswith(" (by operator)") for e in told if e["what"] in ("group_added", "slots_assigned")
            )


async def test_servers_that_do_not_let_topom_in_are_said_and_no_success(tmp_path: Path) -> None:
    dump = json.loads(DUMP.read_text())
    with ExitStack() as stack:
        servers = [stack.enter_context(redis_server(tmp_path / name)) for name in "ab"]
        for group, server in zip(dump["group"], servers, strict=False):
            group["servers"][0] |= {"server": address_of(server)}
        servers[1].config_set("requirepass", "not told")
        file = tmp_path / "dump.json"
        file.write_text(json.dumps(dump))
        async with topom_process(tmp_path / "topom", number_of_slots=1024) as topom:
            taken = await run(topom, str(file))
            assert taken.status == 1, taken
            assert f"{address_of(servers[1])} of group 2 does not answer topom" in taken.out
            assert "redis_password" in taken.out
            assert f"{address_of(servers[0])} of group 1 does" not in taken.out
            # Once it lets topom in, a further import has nothing to complain of.
            servers[1].config_set("requirepass", "")
            async with asyncio.timeout(60):
                while (again := await run(topom, str(file))).status != 0:
                    await asyncio.sleep(0.2)
            assert "does not answer" not in again.out


async def test_a_dump_with_one_server_by_two_names_gives_slots_to_one_of_them(tmp_path: Path) -> None:
    """Codis does not mind; moving slots from a server to itself would delete their keys."""
    dump = json.loads(DUMP.read_text())
    with ExitStack() as stack:
        server = stack.enter_context(redis_server(tmp_path / "a"))
        _, _, port = address_of(server).rpartition(":")
        for group, host in zip(dump["group"], ("127.0.0.1", "localhost"), strict=False):
            group["servers"][0] |= {"server": f"{host}:{port}"}
        file = tmp_path / "dump.json"
        file.write_text(json.dumps(dump))
        async with topom_process(tmp_path / "topom", number_of_slots=1024) as topom:
            refused = await run(topom, str(file))
            assert refused.status == 1
            assert f"localhost:{port} is the same server as 127.0.0.1:{port}" in refused.err
            groups = (await topom.call("GET", "/groups"))["groups"]
            assert [server["address"] for group in groups for server in group["servers"]] == [f"127.0.0.1:{port}"]


async def test_a_dump_that_is_older_than_a_promotion_says_what_to_do(tmp_path: Path) -> None:
    """Codis's Sentinels promote while its dashboard is down, which would write it into the next dump."""
    dump = json.loads(DUMP.read_text())
    with ExitStack() as stack:
        servers = [stack.enter_context(redis_server(tmp_path / name)) for name in "abc"]
        host, _, port = address_of(servers[2]).rpartition(":")
        servers[0].replicaof(host, port)
        for group, server in zip(dump["group"], servers[:2], strict=False):
            group["servers"][0] |= {"server": address_of(server)}
        dump["group"][0]["servers"].append({**dump["group"][0]["servers"][0], "server": address_of(servers[2])})
        file = tmp_path / "dump.json"
        file.write_text(json.dumps(dump))
        async with topom_process(tmp_path / "topom", number_of_slots=1024) as topom:
            refused = await run(topom, str(file))
            assert refused.status == 1
            assert f"{address_of(servers[0])} is a replica of {address_of(servers[2])}" in refused.err
            assert "dump again" in refused.err
            assert owners((await topom.call("GET", "/slots"))["slots"])[1] == ""
            # When Codis's dashboard has written it down, a new dump is brought in.
            dump["group"][0]["servers"].reverse()
            file.write_text(json.dumps(dump))
            assert (await run(topom, str(file))).status == 0
            groups = (await topom.call("GET", "/groups"))["groups"]
            assert [one["address"] for one in groups[0]["servers"]] == [address_of(servers[place]) for place in (2, 0)]
