"""Slot rules change while clients work: no key is lost, and a change that would strand keys is refused with a count."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest
import redis.asyncio
from redis.exceptions import RedisError, ResponseError, TryAgainError

from slotferry.calls import TopomRefused
from slots.functions import slot
from slots.profiles import profile
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, in_flight, meanwhile, plain_client
from tests.integration.cluster.test_command_line import operate

QUEUES = [b"bull:%d:%d" % (queue, number) for queue in range(4) for number in range(4)]
FILL = "for i = 1, ARGV[2] do redis.call('SET', ARGV[1] .. i, i) end"
STRANDED = "would be in another group than now"


@pytest.mark.long
async def test_the_command(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=1, workers=2)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        with pytest.raises(ResponseError, match="same slot"):
            await client.rpoplpush("bull:mail:wait", "bull:mail:active")
        await client.mset(dict.fromkeys(QUEUES, "1"))

        counted = await operate(cluster, "rules", "add", "bull:(*):*", "--dry-run")
        assert counted.status == 1, counted
        assert "of 16 would be in another group" in counted.out
        refused = await operate(cluster, "rules", "add", "bull:(*):*")
        assert (refused.status, refused.out) == (1, ""), refused
        assert STRANDED in refused.err
        assert await client.mget(QUEUES) == [b"1"] * len(QUEUES)

        await client.delete(*QUEUES)
        added = await operate(cluster, "rules", "add", "bull:(*):*", "celery*")
        assert (added.status, added.err) == (0, ""), added
        await client.lpush("bull:mail:wait", "job")
        assert await client.rpoplpush("bull:mail:wait", "bull:mail:active") == b"job"
        tested = await operate(cluster, "rules", "test", "bull:mail:wait", "bull:mail:active", "-o", "json")
        assert tested.status == 0, tested
        assert [(one["rule"], one["hashed"]) for one in tested.json] == [("bull:(*):*", "mail")] * 2
        apart = await operate(cluster, "rules", "test", "bull:mail:wait", "plain")
        assert apart.status == 1
        removed = await operate(cluster, "rules", "remove", "celery*", "-o", "json")
        assert [rule["pattern"] for rule in removed.json["rules"]] == ["bull:(*):*"]
        events = await operate(cluster, "events")
        assert "the slot rules are now: bull:(*):*, celery* as celery" in " ".join(events.out.split())
    for arguments, says in (
        (("add", "bull:(*:*"), "one part may stand in parentheses"),
        (("add", "*", "--database", "99", "--tag", "t"), "there is no database 99; the last one is 15"),
        (("add", "bull:(*):*", "--database", "5"), ""),
        (("add",), "name what is to be added"),
        (("add", "--profile", "sidekick"), "there is no profile 'sidekick'; there are arq, "),
        (("add", "--profile", "celery", "--database", "7"), ""),
        (("remove", "celery*"), "there is no slot rule 'celery*' in all databases"),
        (("remove", "bull:(*):*", "--database", "6"), "in database 6"),
    ):
        outcome = await operate(cluster, "rules", *arguments)
        assert says in outcome.err
        assert outcome.status == (1 if says else 0), outcome
    rules = (await operate(cluster, "rules", "list", "-o", "json")).json["rules"]
    assert [rule["pattern"] for rule in rules if rule["database"] == 7] == [rule.pattern for rule in profile("celery")]


async def test_nothing_is_lost_while_rules_come_and_go(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2, workers=2)
    rounds = dict.fromkeys(QUEUES, 0)
    told: list[str] = []
    calm = asyncio.Event()

    def one(key: bytes, address: str) -> object:
        async def once() -> None:
            if calm.is_set():
                await asyncio.sleep(0.01)
                return
            async with plain_client(address) as client:
                while True:
                    # What is acknowledged is there, until it is deleted.
                    value = b"%d" % rounds[key]
                    try:
                        await client.set(key, value)
                    except TryAgainError:
                        await asyncio.sleep(0.005)
                        continue
                    rounds[key] += 1
                    while True:
                        with suppress(TryAgainError):
                            found = await client.get(key)
                            assert found == value, f"{key!r} is {found!r}, and {value!r} was acknowledged"
                            assert await client.delete(key) == 1
                            break
                        await asyncio.sleep(0.005)
                    return

        return once

    async def plain() -> None:
        async with plain_client(cluster.proxy_addresses[1]) as client:
            for _ in range(100):
                await client.incr("plain")
                told.append("plain")

    done = refused = 0
    works = [one(key, cluster.proxy_addresses[number % 2]) for number, key in enumerate(QUEUES)]
    async with meanwhile(*works, plain):  # type: ignore[arg-type]
        names = ["bull:(*):*", "bull:*"]
        while min(rounds.values()) < 5 or done < 6 or not refused:
            there = [rule["pattern"] for rule in (await cluster.api.rules())["rules"]]
            new = [{"pattern": name} for name in names if name not in there][:1]
            old = [{"pattern": name, "database": None} for name in there][:1]
            if refused > done:
                calm.set()
            try:
                await cluster.api.change_rules([] if there else new, old)
            except TopomRefused as error:
                if error.error not in ("RulesWait", "RulesChange"):
                    raise
                continue
            finally:
                names.reverse()
            change = await over(cluster)
            done += change["stage"] == "done"
            if change["stage"] == "failed":
                refused += 1
                assert STRANDED in change["reason"]["what"], change
            calm.clear()
    async with plain_client(cluster.proxy_addresses[0]) as client:
        assert int(await client.get("plain") or 0) == len(told)


@pytest.mark.long
async def test_a_topom_that_dies_amid_a_change(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=1, workers=1)
    key = QUEUES[0]
    async with plain_client(cluster.proxy_addresses[0]) as client:
        # Enough keys for a count to take a while.
        layout = await cluster.layout()
        tags = (f"{{{number}}}" for number in range(100))
        tag = next(tag for tag in tags if layout.owners[slot("crc32", tag.encode(), 1024)] == layout.owners[0])
        async with plain_client(await cluster.master_of(1)) as server:
            await server.eval(FILL, 0, tag, 1_000_000)
        begun = asyncio.create_task(cluster.api.change_rules([{"pattern": "bull:(*):*"}], []))

        async def is_kept_off() -> bool:
            try:
                await client.get(key)
            except TryAgainError:
                return True
            return False

        await eventually(is_kept_off, bool, "clients to be kept off")
        await cluster.topom.kill()
        with suppress(Exception):
            await begun
        await cluster.restart_topom()

        async def is_let_in() -> bool:
            with suppress(RedisError):
                return bool(await client.set(key, "1"))
            return False

        await eventually(is_let_in, bool, "the change to be taken back")
        assert (await cluster.api.rules())["rules"] == []
        assert await client.get(key) == b"1"


async def test_a_topom_that_dies_while_proxies_lock_keeps_no_other_key_waiting(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(
        groups=2,
        proxies=2,
        workers=1,
        topom_settings={"barrier_seconds": 60},
        proxy_settings={"lock_drain_seconds": 60, "lock_hold_seconds": 60},
    )
    # Of group 2, where the command is under way that the locks wait for.
    slow = next(key for key in (b"{%d}" % number for number in range(100)) if slot("crc32", key, 1024) >= 512)
    first, other = cluster.proxy_addresses
    async with (
        plain_client(first, socket_timeout=60, client_name="writes") as client,
        plain_client(first, socket_timeout=60) as waiting,
        plain_client(other, socket_timeout=60) as second,
        plain_client(await cluster.master_of(2)) as server,
    ):
        await server.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        writing = asyncio.create_task(client.set(slow, "1"))
        await in_flight(waiting, "writes")
        await cluster.api.change_rules([{"pattern": "bull:(*):*"}], [])

        async def is_kept_off(each: redis.asyncio.Redis) -> bool:
            try:
                await each.get(QUEUES[0])
            except TryAgainError:
                return True
            return False

        # Both have the table then; the first one waits for its command.
        for each in (waiting, second):
            await eventually(partial(is_kept_off, each), bool, "clients to be kept off")
        change = (await cluster.api.rules())["change"]
        assert change["stage"] == "locking", change
        held = asyncio.create_task(waiting.incr("plain"))
        await cluster.topom.kill()
        # The other proxy had nothing under way.
        assert await second.set("other", "1")
        await server.execute_command("CLIENT", "UNPAUSE")
        assert await writing
        assert await held == 1
        for each in (waiting, second):
            assert await each.incr("plain") > 1
            with pytest.raises(TryAgainError, match="slot rules are being changed"):
                await each.set(QUEUES[0], "1")
        await cluster.restart_topom()

        async def is_let_in() -> bool:
            with suppress(RedisError):
                return bool(await waiting.set(QUEUES[0], "1"))
            return False

        await eventually(is_let_in, bool, "the change to be taken back")
        assert (await cluster.api.rules())["rules"] == []


async def over(cluster: Cluster) -> dict[str, object]:
    """The change of rules that is under way, once it is over."""

    async def look() -> dict[str, object]:
        change: dict[str, object] = (await cluster.api.rules())["change"]
        return change

    return await eventually(
        look, lambda change: change["stage"] not in ("counting", "locking", "checking"), "the change to be over"
    )
