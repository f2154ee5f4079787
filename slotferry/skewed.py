"""The demo with ``--skew``: clients ask one group for most, and topom moves slots by itself until the groups are even.

Each line shows what the servers have run since the line before, and topom's means, which follow it slowly: what is half
a minute old weighs half in them. The groups are even once both say so.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from redis import RedisError

from slotferry.client import TopomClient, key_slots_of
from slotferry.demonstration import CONNECTIONS, GROUPS, WORKERS, DemoOptions, Verdict, stay
from slotferry.lending import own_context
from slotferry.live import Counting
from slotferry.local import END_SECONDS, LocalCluster
from slotferry.output import say
from slotferry.traffic.driver import Traffic
from slotferry.traffic.placement import Layout
from slots.access import ServerAccess
from slots.keyslots import KeySlots

AFTER_SECONDS = 10.0
"""For so long a group has too much before slots move by themselves: seconds, so that there is no long wait."""
HOT_GROUP = 1
HOT_SLOTS = 36
"""Slots of the group that are asked for most: topom may move 51 of 1,024 in an hour, so half of these go."""
VALUE_BYTES = 2048
"""Of a hot key: about the mean of the checked traffic and more, for topom weighs bytes beside requests."""
CLIENTS, PIPELINE = 8, 20
REPLY_SECONDS = 10.0
EVEN = 1.15
"""The groups are even if none has more than so many times its share of the requests."""
EVEN_LOOKS = 2
"""So often one after the other."""
LOOK_SECONDS = 2.0
LIMIT_SECONDS = 180.0
_BAR = 24
MOST_TEXTS, MOST_SHOWN = 5, 80


@dataclass
class Asked:
    """What the clients that ask for hot slots have seen."""

    requests: int = 0
    errors: int = 0
    differences: int = 0
    texts: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self, keys: Sequence[str], replies: Sequence[object]) -> None:
        """Count the replies to GETs of these keys, which hold :func:`value`."""
        self.requests += len(keys)
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, Exception):
                self.errors += 1
                self._note(f"error: {reply}")
            elif reply != value(key):
                self.differences += 1
                self._note(f"difference: {key} is {str(reply)[:MOST_SHOWN]}")

    def fail(self, error: Exception) -> None:
        """A whole pipeline has failed."""
        self.errors += 1
        self._note(f"error: {error}")

    def _note(self, text: str) -> None:
        if len(self.texts) < MOST_TEXTS:
            self.texts.append(text)


async def demonstrate_skew(options: DemoOptions) -> bool:
    """Ask one group for most; say whether topom has evened that out by itself, with no error and no difference."""
    say(f"starting {GROUPS} Redis servers with a third of the slots each, topom, and a proxy with {WORKERS} workers")
    settings = {
        "rebalance": "auto",
        "rebalance_after_seconds": AFTER_SECONDS,
        "migration_keys_per_second": options.pace,
    }
    cluster = LocalCluster(
        groups=GROUPS, workers=WORKERS, port=options.port, topom_settings=settings, end_seconds=END_SECONDS
    )
    async with cluster, own_context(cluster, "demo") as command:
        say(f"page: {cluster.page_url}")
        say(f"look at it: {command} status")
        async with (
            cluster.client() as topom,
            Traffic(cluster.proxy_addresses, options.keys, connections=CONNECTIONS, rate=options.rate) as traffic,
        ):
            with Counting("loading through the proxy", options.keys) as counting:
                loaded = await traffic.load(counting.update)
            await traffic.start()
            async with hot_clients(cluster.proxy_addresses[0], await _hot_keys(topom), options.rate) as asked:
                say(
                    f"checked traffic over all slots, and as many requests for {HOT_SLOTS} slots of group {HOT_GROUP}; "
                    f"slots move by themselves once a group has had too much for {AFTER_SECONDS:g} s"
                )
                even = await _watch(topom, cluster)
            total = await traffic.stop()
            moved = await topom.migration()
            with Counting("comparing every key", options.keys) as counting:
                layout = Layout.from_api(await topom.status(), await topom.slots()) if _at_rest(moved) else None
                verification = await traffic.verify(layout, counting.update)
        verdict = Verdict(loaded, total, verification, moved["slots_moved"] > 0 and _at_rest(moved))
        kept = even and verdict.kept and not asked.errors and not asked.differences
        word = "even" if even else "NOT even"
        say(f"The groups are {word} by load: topom moved {moved['slots_moved']} slots by itself.")
        seen = f"{asked.requests:,} requests, {asked.errors} errors, {asked.differences} differences"
        say(f"Clients of hot slots: {seen}.")
        for sentence in (*asked.texts, *verdict.sentences(moved["slots_moved"], moved["keys_moved"])):
            say(sentence)
        if not options.leave:
            await stay(cluster, command)
        return kept


def hot_keys(key_slots: KeySlots, slots: Iterable[int]) -> list[str]:
    """A key for each of these slots."""
    wanted = set(slots)
    found: list[str] = []
    numbers = count()
    while wanted:
        key = f"hot:{next(numbers)}"
        place = key_slots.slot_of(0, key.encode())
        if place in wanted:
            wanted.remove(place)
            found.append(key)
    return found


def value(key: str) -> bytes:
    """What this hot key holds."""
    return key.encode().ljust(VALUE_BYTES, b".")


def requests_of(load: Mapping[str, Any], group_ids: Iterable[int]) -> dict[int, float]:
    """Requests a second of each group, with the slots that it owns now. ``load`` is topom's, with all slots."""
    requests = dict.fromkeys(group_ids, 0.0)
    for slot in load["slots"]:
        if slot["group_id"] in requests:
            requests[slot["group_id"]] += slot["requests"]
    return requests


def relative(requests: Mapping[int, float]) -> dict[int, float]:
    """Each group's requests as a multiple of its share; 0 if there are none."""
    total = sum(requests.values())
    return {group_id: len(requests) * one / total if total else 0.0 for group_id, one in requests.items()}


def line(elapsed: float, has: Mapping[int, float], mean: Mapping[int, float]) -> str:
    """What each group has now, as bars of which a group with all requests has a full one, and topom's means."""
    bars = (
        f"group {group_id} {'█' * round(one / len(has) * _BAR):░<{_BAR}} {one / len(has):4.0%}"
        for group_id, one in has.items()
    )
    means = " ".join(f"{one:.2f}" for one in mean.values())
    return f"{elapsed:4.0f} s  {'  '.join(bars)}   of late, times the share: {means}"


@asynccontextmanager
async def hot_clients(address: str, keys: Sequence[str], rate: float) -> AsyncIterator[Asked]:
    """Clients of a proxy write these keys, and then get them, ``rate`` a second in all, while the block runs."""
    host, _, port = address.rpartition(":")
    asked = Asked()

    async def ask(seed: int) -> None:
        chance = random.Random(seed)
        async with ServerAccess().client(host, int(port), socket_timeout=REPLY_SECONDS) as client:
            while not asked.over.is_set():
                began = time.monotonic()
                some = chance.choices(keys, k=PIPELINE)
                pipeline = client.pipeline(transaction=False)
                for key in some:
                    pipeline.get(key)
                try:
                    asked.count(some, await pipeline.execute(raise_on_error=False))
                except RedisError as error:
                    asked.fail(error)
                pause = max(0.0, CLIENTS * PIPELINE / rate - (time.monotonic() - began))
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.over.wait(), pause)

    async with ServerAccess().client(host, int(port), socket_timeout=REPLY_SECONDS) as client:
        await client.mset({key: value(key) for key in keys})
    tasks = [asyncio.create_task(ask(seed)) for seed in range(CLIENTS)]
    try:
        yield asked
        asked.over.set()
        await asyncio.gather(*tasks)
    finally:
        # Who ends the demo early waits for no reply.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hot_keys(topom: TopomClient) -> list[str]:
    status, table = await topom.status(), await topom.slots()
    owned = [entry["id"] for entry in table["slots"] if entry["group_id"] == HOT_GROUP]
    return hot_keys(key_slots_of(status), owned[:HOT_SLOTS])


async def _watch(topom: TopomClient, cluster: LocalCluster) -> bool:
    """Show shares and what topom says; say whether slots have moved and the groups are even within the limit."""
    began, said, even = time.monotonic(), "", 0
    before, heard = await _commands(cluster), (await topom.events())["newest"]
    while time.monotonic() - began < LIMIT_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        now = await _commands(cluster)
        has = relative({group_id: float(ran - before[group_id]) for group_id, ran in now.items()})
        mean = relative(requests_of(await topom.load(all_slots=True), has))
        say(line(time.monotonic() - began, has, mean))
        before = now
        # A decision that begins moves soon gives way to the next one, but is an event, too.
        events = await topom.events(heard)
        heard = max((event["id"] for event in events["events"]), default=heard)
        texts = [event["text"] for event in events["events"] if event["what"] == "rebalance_planned"]
        for text in (*texts, (await topom.rebalance_decision())["text"]):
            if text != said:
                say(f"        topom: {text}")
                said = text
        migration = await topom.migration()
        moved = migration["slots_moved"] > 0 and _at_rest(migration)
        even = even + 1 if moved and max(*has.values(), *mean.values()) <= EVEN else 0
        if even == EVEN_LOOKS:
            return True
    return False


def _at_rest(migration: Mapping[str, Any]) -> bool:
    return not migration["slots_pending"] and not migration["slots_moving"]


async def _commands(cluster: LocalCluster) -> dict[int, int]:
    """How many commands each group's master has run."""
    found = {}
    for group_id, servers in cluster.groups.items():
        host, _, port = servers[0].rpartition(":")
        async with ServerAccess().client(host, int(port), socket_timeout=REPLY_SECONDS) as client:
            found[group_id] = int((await client.info("stats"))["total_commands_processed"])
    return found
