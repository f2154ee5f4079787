"""Asks the proxies again and again which keys there are: the ballast, which no client touches, and which moves.

KEYS lists each key once, even while slots move. Of each server's keys, it lists only those that the server owns
(**owned**). SCAN gives each key at least once, whatever moves between its pages, and whichever proxies give them. Only
a server that restarts during a scan may leave keys out, as with one Redis.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

import hiredis

from tests.histories.clients import Connection, Lost, NotSent
from tests.histories.cluster import BALLAST, BALLAST_DATABASE

ASK_SECONDS = 0.15
"""Between two questions."""
PAGE = 40
"""COUNT of a scan: a server has several pages."""
PAGE_SECONDS = 0.03
"""Between two pages, on average. A scan takes as long as some moves."""
MOST_PAGES = 500
"""Slots that move again and again make a scan long. It is not judged then."""
SHOWN_KEYS = 5


class Lister:
    """The one that asks in a run.

    Args:
        proxies: addresses of the proxies.
        seed: of the choice of proxies.
        now: the seconds of the run.
        processes: those of the servers; one that restarts is another one.
    """

    def __init__(
        self, proxies: Sequence[str], seed: int, now: Callable[[], float], processes: Callable[[], Sequence[int]]
    ) -> None:
        self.asked = 0
        """Lists that were given."""
        self.scanned = 0
        """Scans that came to their end."""
        self.wrong: list[str] = []
        """Keys that were listed more than once, in words."""
        self.missing: list[tuple[str, list[str]]] = []
        """Which keys were not listed, and when."""
        self._proxies = list(proxies)
        self._random = random.Random(f"lists {seed}")
        self._now = now
        self._processes = processes

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._list())
            group.create_task(self._scan_all())

    async def _list(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            await self._ask(self._random.randrange(len(self._proxies)))

    async def _ask(self, proxy: int) -> None:
        asked = self._now()
        try:
            connection = await Connection.open(self._proxies[proxy], BALLAST_DATABASE)
            try:
                [reply] = await connection.call([(b"KEYS", b"ballast:*")])
            finally:
                connection.close()
        except (NotSent, Lost):
            return
        if isinstance(reply, hiredis.ReplyError):
            return
        self.asked += 1
        when = f"[{asked:.4f} - {self._now():.4f}] proxy {proxy + 1}: KEYS ballast:*"
        listed = Counter(key.decode() for key in reply)
        if several := [key for key, times in listed.items() if times > 1]:
            self.wrong.append(f"{when} lists {len(several)} keys more than once: {several[:SHOWN_KEYS]}")
        if missing := [name for number in range(BALLAST) if (name := f"ballast:{number}") not in listed]:
            self.missing.append((when, missing))

    async def _scan_all(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            await self._scan()

    async def _scan(self) -> None:
        """One scan, each page from a proxy by chance."""
        asked, before = self._now(), self._processes()
        connections: dict[int, Connection] = {}
        cursor, found = b"0", set[str]()
        try:
            for _ in range(MOST_PAGES):
                proxy = self._random.randrange(len(self._proxies))
                if proxy not in connections:
                    connections[proxy] = await Connection.open(self._proxies[proxy], BALLAST_DATABASE)
                [reply] = await connections[proxy].call([(b"SCAN", cursor, b"COUNT", b"%d" % PAGE)])
                if isinstance(reply, hiredis.ReplyError):
                    return
                cursor, names = reply
                found.update(name.decode() for name in names)
                if cursor == b"0":
                    break
                await asyncio.sleep(self._random.uniform(0.0, 2 * PAGE_SECONDS))
            else:
                return
        except (NotSent, Lost):
            return
        finally:
            for connection in connections.values():
                connection.close()
        if self._processes() != before:
            return
        self.scanned += 1
        if missing := [name for number in range(BALLAST) if (name := f"ballast:{number}") not in found]:
            self.missing.append((f"[{asked:.4f} - {self._now():.4f}] SCAN", missing))

    def findings(self, is_excused: Callable[[str], bool]) -> list[str]:
        """What is wrong, in words, except for keys that are excused."""
        found = list(self.wrong)
        for when, names in self.missing:
            if lost := [name for name in names if not is_excused(name)]:
                found.append(f"{when} leaves out {len(lost)} keys: {lost[:SHOWN_KEYS]}")
        return found
