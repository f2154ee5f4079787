"""Slots that move back and forth for as long as clients are being tried."""

import asyncio
import threading
from typing import Any

from slotferry.client import TopomClient
from slotferry.local import LocalCluster

KEYS = 4000
"""Keys that no test touches, of a database of their own, so that every move has something to carry."""
DATABASE = 15
POLL_SECONDS = 0.02
LIMIT_SECONDS = 60.0
"""Limit for one move, and for the end of the thread."""


class Mover:
    """Moves the lower half of the slots from group 1 to group 2 and back, in a thread of its own.

    A test holds up its own thread, and often its event loop, so this needs another.

    Attributes:
        rounds: moves that were carried out, each of half of the slots.
        keys_moved: keys that the migrator has carried.
    """

    def __init__(self, cluster: LocalCluster, number_of_slots: int) -> None:
        self.rounds = 0
        self.keys_moved = 0
        self._cluster = cluster
        self._slots = f"0-{number_of_slots // 2 - 1}"
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="mover")

    def start(self) -> None:
        """Begin to move."""
        self._thread.start()

    def stop(self) -> None:
        """End when the move under way is done; raises what went wrong meanwhile."""
        self._stopping.set()
        self._thread.join(LIMIT_SECONDS + 30)
        if self._failure is not None:
            raise AssertionError("moving the slots failed") from self._failure
        assert not self._thread.is_alive(), "a move does not end"

    def _run(self) -> None:
        try:
            asyncio.run(self._move())
        except BaseException as error:
            self._failure = error

    async def _move(self) -> None:
        async with self._cluster.client() as topom:
            while not self._stopping.is_set():
                await topom.move_slots(self._slots, 2 - self.rounds % 2)
                async with asyncio.timeout(LIMIT_SECONDS):
                    self.keys_moved = (await self._done(topom))["keys_moved"]
                self.rounds += 1

    @staticmethod
    async def _done(topom: TopomClient) -> dict[str, Any]:
        while True:
            migration = await topom.migration()
            if not migration["slots_pending"] and not migration["slots_moving"]:
                return migration
            await asyncio.sleep(POLL_SECONDS)
