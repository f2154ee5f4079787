"""Takes the live picture from a topom.

What needs no server is taken at each look: the state is in memory. What servers say is asked for beside that
(:mod:`topom.api.live.servers`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from topom.api import load, rebalance, sizes, status
from topom.api.live.picture import Picture, Section, rounded
from topom.api.live.problems import problems
from topom.api.live.servers import Servers
from topom.balance.sizes import KnownSizes
from topom.term.node import Node
from topom.term.service import Topom

SIZES_SECONDS = 10.0
"""How often what is known of sizes is looked at."""
LOAD_SECONDS = 3.0
"""How often the load is looked at."""
MOST_BUSY = 20
"""Slots, users and hot keys that are told, at most."""
MOST_NOTABLE = 10
"""Notable requests that are told: those that the page shows."""
COUNTERS = ("requests", "clients")
"""Of a proxy, those that the page shows."""
APART = frozenset({"proxies", "migration"})
"""Members of the status that are sections of their own; the others are the section ``cluster``."""


class Taking:
    """Takes pictures of one topom, again and again.

    Args:
        node: the process, if topom is one of several.
        topom: whose picture it is.
    """

    def __init__(self, node: Node | None, topom: Topom) -> None:
        self._node = node
        self._topom = topom
        self._servers = Servers(topom)
        self._sizes: tuple[float, int, KnownSizes | None] = (0.0, -1, None)
        self._summary: Section = {}
        self._load_at = 0.0
        self._load: Section = {}
        self._notable: tuple[int, Section] = (0, {})
        """By the version of what is kept."""
        self._heat: dict[str, Sequence[float | None]] = {}

    async def first(self) -> Picture:
        """The first picture; it waits for the servers that are asked first."""
        await self._servers.first()
        return self.take()

    def take(self) -> Picture:
        """The picture at this instant. Raises :class:`~topom.errors.TopomError` if there is none."""
        self._servers.look()
        self._measure()
        self._look_at_load()
        said = status.describe(self._node, self._topom, self._servers.described)
        dumped = said.model_dump(mode="json", exclude={"groups"})
        return Picture(
            sections={
                "cluster": {name: value for name, value in dumped.items() if name not in APART},
                "problems": problems(said),
                "groups": self._servers.groups,
                "figures": self._servers.figures,
                "proxies": {str(proxy["id"]): _proxy(proxy) for proxy in dumped["proxies"]},
                "migration": dumped["migration"],
                "sizes": self._summary,
                "load": self._load,
                "notable": self._notable[1],
                "decision": rebalance.describe(self._topom).model_dump(mode="json"),
            },
            slots=self._topom.ledger.table.slots,
            heat=dict(self._heat),
            events=self._topom.ledger.state.events,
        )

    async def close(self) -> None:
        """End the question that is under way."""
        await self._servers.close()

    def _measure(self) -> None:
        now = asyncio.get_running_loop().time()
        at, epoch, known = self._sizes
        if known is not None and now - at < SIZES_SECONDS:
            return
        present = self._topom.sizes.known, self._topom.ledger.table.epoch
        if present == (known, epoch):
            return
        self._sizes = (now, present[1], present[0])
        summary = sizes.describe(self._topom).model_dump(mode="json")
        if summary["last"] is not None:
            summary["last"].pop("age_seconds")  # it changes all the time, and `taken_at` says it
        self._summary = summary
        if present[0] is not known and present[0].last is not None:
            slots = self._topom.ledger.table.slots
            found = [present[0].slots.get(slot.id) for slot in slots]
            self._heat["bytes"] = [None if size is None else rounded(size.bytes) for size in found]

    def _look_at_load(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._load and now - self._load_at < LOAD_SECONDS:
            return
        self._load_at = now
        version = self._topom.load.notable.version
        if version != self._notable[0]:
            self._notable = version, load.describe_notable(self._topom, MOST_NOTABLE)
        if not self._topom.load.measured_seconds:
            self._load = {}
            self._heat.pop("load", None)
            return
        said = load.describe(self._topom, all_slots=False)
        self._load = {
            "measured_seconds": said["measured_seconds"],
            "proxies_telling": said["proxies_telling"],
            "proxies_total": said["proxies_total"],
            "total": said["total"],
            "groups": {str(group["group_id"]): rounded(group["requests"]) for group in said["groups"]},
            "slots": [_busy(slot, "slot", "group_id") for slot in said["slots"][:MOST_BUSY]],
            "users": [_busy(user, "user") for user in said["users"][:MOST_BUSY]],
            "hot_keys": said["hot_keys"][:MOST_BUSY],
        }
        self._heat["load"] = [rounded(rate.requests) for rate in self._topom.load.slots()]


def _busy(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in (*names, "requests", "bytes_in", "bytes_out")}


def _proxy(proxy: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy with the counters that are shown."""
    unusual = {name: value for name, value in proxy.items() if not (value is None or value is False or value == "")}
    return {**unusual, "counters": {name: proxy["counters"].get(name) for name in COUNTERS}}
