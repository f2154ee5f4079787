"""Takes the live picture from a topom.

What needs no server is taken at each look: the state is in memory. What servers say is asked for beside that, so that a
server that does not answer delays no news of slots.

**bounded**: one question to the servers at a time, and the next at least :data:`SERVERS_SECONDS` after it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from topom.api import groups, sizes, status
from topom.api.group_models import Group
from topom.api.live.picture import Picture, Section, rounded
from topom.api.live.problems import problems
from topom.balance.sizes import KnownSizes
from topom.term.node import Node
from topom.term.service import Topom

SERVERS_SECONDS = 1.0
SIZES_SECONDS = 10.0
"""How often what is known of sizes is looked at."""
COUNTERS = ("requests", "clients")
"""Of a proxy, those that the page shows."""
FIGURES = ("keys", "used_memory", "lag")
"""Of a server, what changes all the time: it is told apart, and in short."""
APART = frozenset({"groups", "proxies", "migration"})
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
        self._asking: asyncio.Task[list[Group]] | None = None
        self._asked_at = 0.0
        self._groups: list[Group] = []
        self._sizes: tuple[float, int, KnownSizes | None] = (0.0, -1, None)
        self._summary: Section = {}
        self._heat: dict[str, Sequence[float | None]] = {}

    async def first(self) -> Picture:
        """The first picture; it waits for the servers."""
        self._asking = asyncio.create_task(groups.describe(self._topom))
        await asyncio.wait((self._asking,))
        return self.take()

    def take(self) -> Picture:
        """The picture at this instant. Raises :class:`~topom.errors.TopomError` if there is none."""
        self._ask()
        self._measure()
        said = status.describe(self._node, self._topom, self._groups)
        dumped = said.model_dump(mode="json")
        return Picture(
            sections={
                "cluster": {name: value for name, value in dumped.items() if name not in APART},
                "problems": problems(said),
                "groups": {str(group["id"]): _group(group) for group in dumped["groups"]},
                "figures": {str(group["id"]): _figures(group) for group in dumped["groups"]},
                "proxies": {str(proxy["id"]): _proxy(proxy) for proxy in dumped["proxies"]},
                "migration": dumped["migration"],
                "sizes": self._summary,
            },
            slots=self._topom.ledger.table.slots,
            heat=dict(self._heat),
            events=self._topom.ledger.state.events,
        )

    async def close(self) -> None:
        """End the question that is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _ask(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._asking is not None and self._asking.done():
            asked, self._asking, self._asked_at = self._asking, None, now
            self._groups = asked.result()
        if self._asking is None and now - self._asked_at >= SERVERS_SECONDS:
            self._asking = asyncio.create_task(groups.describe(self._topom))

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


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group without what is as usual, and without what changes all the time."""
    servers = [
        _unusual({name: value for name, value in server.items() if name not in FIGURES}) for server in group["servers"]
    ]
    return {**_unusual(group), "servers": servers}


def _figures(group: Mapping[str, Any]) -> list[list[float | None]]:
    """What changes all the time, of each server: its keys, its memory in three digits, its lag."""
    return [
        [server["keys"], None if server["used_memory"] is None else rounded(server["used_memory"]), server["lag"]]
        for server in group["servers"]
    ]


def _proxy(proxy: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy with the counters that are shown."""
    return {**_unusual(proxy), "counters": {name: proxy["counters"].get(name) for name in COUNTERS}}


def _unusual(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if not (value is None or value is False or value == "")}
