"""Takes the live picture from a topom.

What needs no server is taken at each look: the state is in memory. What servers say is asked for beside that
(:mod:`topom.api.live.servers`), and the load is written on a thread: of the largest cluster that takes a tenth of a
second, in which no proxy would be answered.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
MOST_COPIES = 20
"""Copies that are told of a migrator, at most; the page shows no more."""
COUNTERS = ("clients",)
"""Of a proxy, those that the page shows."""
APART = frozenset({"proxies", "migrators", "migration"})
"""Members of the status that are sections of their own; the others are the section ``cluster``."""


class _Load(NamedTuple):
    """What is shown of the load.

    Attributes:
        notable: by the version of what is kept.
    """

    summary: Section
    heat: Sequence[float] | None
    notable: tuple[int, Section]


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
        self._load = _Load({}, None, (0, {}))
        self._writing: asyncio.Task[_Load] | None = None
        self._heat: dict[str, Sequence[float | None]] = {}

    async def first(self) -> Picture:
        """The first picture; it waits for the servers that are asked first, and for the load."""
        await self._servers.first()
        self._look_at_load()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
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
                "migrators": {str(one["id"]): _migrator(one) for one in dumped["migrators"]},
                "migration": dumped["migration"],
                "sizes": self._summary,
                "load": self._load.summary,
                "notable": self._load.notable[1],
                "decision": rebalance.describe(self._topom).model_dump(mode="json"),
            },
            slots=self._topom.ledger.table.slots,
            heat=dict(self._heat),
            events=self._topom.ledger.state.events,
        )

    async def close(self) -> None:
        """End the question that is under way."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
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
        """Take what has been written, and have the load written anew if it is time."""
        if self._writing is not None and self._writing.done():
            self._load, self._writing = self._writing.result(), None
            self._heat.pop("load", None)
            if self._load.heat is not None:
                self._heat["load"] = self._load.heat
        now = asyncio.get_running_loop().time()
        if self._writing is None and (not self._load_at or now - self._load_at >= LOAD_SECONDS):
            self._load_at = now
            self._writing = asyncio.create_task(asyncio.to_thread(self._write_load, self._load.notable))

    def _write_load(self, notable: tuple[int, Section]) -> _Load:
        book = self._topom.load
        version = book.notable.version
        if version != notable[0]:
            notable = version, load.describe_notable(self._topom, MOST_NOTABLE)
        if not book.measured_seconds:
            return _Load({}, None, notable)
        said = load.describe(self._topom, all_slots=False)
        summary = {
            "measured_seconds": said["measured_seconds"],
            "proxies_telling": said["proxies_telling"],
            "proxies_total": said["proxies_total"],
            "total": said["total"],
            "groups": {str(group["group_id"]): rounded(group["requests"]) for group in said["groups"]},
            "proxies": {str(proxy["proxy_id"]): rounded(proxy["requests"]) for proxy in said["proxies"]},
            "slots": [_busy(slot, "slot", "group_id") for slot in said["slots"][:MOST_BUSY]],
            "users": [_busy(user, "user") for user in said["users"][:MOST_BUSY]],
            "hot_keys": said["hot_keys"][:MOST_BUSY],
        }
        return _Load(summary, [rounded(rate.requests) for rate in book.slots()], notable)


def _busy(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in (*names, "requests", "bytes_in", "bytes_out")}


def _proxy(proxy: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy with the counters that are shown."""
    unusual = {name: value for name, value in proxy.items() if not (value is None or value is False or value == "")}
    return {**unusual, "counters": {name: proxy["counters"].get(name) for name in COUNTERS}}


def _migrator(migrator: Mapping[str, Any]) -> dict[str, Any]:
    """A migrator with what is shown of its copies."""
    copies, disk = migrator["copies"], migrator["disk_bytes"]
    shown = ("source", "target", "slots", "followed", "follows")
    return {
        **{name: migrator[name] for name in ("id", "hostname", "pid", "version", "node", "datacenter", "own")},
        "disk_bytes": None if disk is None else rounded(disk),
        "keys_per_second": rounded(migrator["keys_per_second"]),
        "copying": len(copies),
        "copies": [{name: copy[name] for name in shown} for copy in copies[:MOST_COPIES]],
    }
