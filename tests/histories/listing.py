"""Asks the proxies again and again which keys there are: the ballast, which no client touches, and which moves.

KEYS lists each key once, even while slots move. Of each server's keys, it lists only those that the server owns
(**owned**).
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
SHOWN_KEYS = 5


class Lister:
    """The one that asks in a run.

    Args:
        proxies: addresses of the proxies.
        seed: of the choice of proxies.
        now: the seconds of the run.
    """

    def __init__(self, proxies: Sequence[str], seed: int, now: Callable[[], float]) -> None:
        self.asked = 0
        """Lists that were given."""
        self.wrong: list[str] = []
        """Keys that were listed more than once, in words."""
        self.missing: list[tuple[str, list[str]]] = []
        """Which keys were not listed, and when."""
        self._proxies = list(proxies)
        self._random = random.Random(f"lists {seed}")
        self._now = now

    async def run(self) -> None:
        """Ask until cancelled."""
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

    def findings(self, is_excused: Callable[[str], bool]) -> list[str]:
        """What is wrong, in words, except for keys that are excused."""
        found = list(self.wrong)
        for when, names in self.missing:
            if lost := [name for name in names if not is_excused(name)]:
                found.append(f"{when} leaves out {len(lost)} keys: {lost[:SHOWN_KEYS]}")
        return found
