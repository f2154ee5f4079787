"""A product with the slot rules of a framework, all of whose slots move back and forth, and the framework's programs.

A program gets host, port and what it has to do: ``work``, or ``probe`` for the first step that needs rules. It starts
its framework's own workers, and prints what it saw as JSON.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from migrator.move import migrate
from migrator.options import MoveOptions
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.withdrawing import withdraw
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from slots.messages.questions import WorkerCounters
from slots.profiles import profile
from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import SlotState
from tests.forking import bound
from tests.integration.worker.harness import INSTANCE, WorkerHarness

APPLICATIONS = Path(__file__).parent / "applications"
APART = Path(sys.prefix) / "apart"
"""Where ``scripts/test`` installs frameworks that need other versions than this environment has."""
SECONDS = 240.0
"""For a program."""
REST_SECONDS = 0.3
"""Between two moves, so that the framework also works with slots at rest."""
DATABASES = range(16)


class Product:
    """A worker of a proxy with two groups, whose slots go by the rules of a profile.

    Attributes:
        moves: how often slots have moved, half of them each time.
        progress: what the migrator has moved.
    """

    def __init__(self, worker: WorkerHarness, rules: Sequence[SlotRule]) -> None:
        self.worker = worker
        self.moves = 0
        self.progress = Progress()
        self._key_slots = KeySlots("crc32", 1024, tuple(rules))

    @classmethod
    async def start(cls, directory: Path, names: Sequence[str]) -> "Product":
        """One with the rules of these profiles. Slots 0-511 begin at group 1, the others at group 2."""
        rules = tuple(rule for name in names for rule in profile(name))
        worker = await WorkerHarness.start(directory)
        worker.table = worker.table.ruled(worker.table.epoch + 1, rules)
        await worker.apply([Slot(index, 1 + index // 512) for index in range(1024)])
        return cls(worker, rules)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the proxy."""
        host, port = self.worker.settings.listen.split(":")
        return host, int(port)

    async def move(self, source: int) -> None:
        """Move all slots of a group to the other one, key by key, as topom does."""
        worker, target = self.worker, 3 - source
        slots = [slot.id for slot in worker.table.slots if slot.group_id == source]
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act(slots, state, source, target)
        action = worker.table.slots[slots[0]].action
        assert action is not None
        ends = worker.addresses[source - 1], worker.addresses[target - 1]
        await migrate(
            *ends,
            slots,
            key_slots=self._key_slots,
            access=ServerAccess(),
            pace=Pace(),
            progress=self.progress,
            instance=INSTANCE,
            options=MoveOptions(action.beginning),
        )
        await worker.act(slots, SlotState.FINISHED, source, target)
        await withdraw(*ends, access=ServerAccess(), instance=INSTANCE)
        await worker.apply([Slot(slot, target) for slot in slots])
        self.moves += 1

    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Slots move while the block runs: all to group 2, all to group 1, and so on."""
        ending = asyncio.Event()

        async def carry() -> None:
            while not ending.is_set():
                await self.move(1 + self.moves % 2)
                await asyncio.sleep(REST_SECONDS)

        carrying = asyncio.create_task(carry())
        try:
            yield
        finally:
            ending.set()
            await carrying

    async def keys_moved(self) -> int:
        """How many keys have left their source: by the migrator, and by the proxy, which moves those that are asked
        for."""
        return self.progress.keys_moved + int((await self.worker.asked(WorkerCounters()))["moved"])

    async def assert_owned(self) -> None:
        """**owned**: each key is at the group of its slot only."""
        for group in (1, 2):
            for database in DATABASES:
                for key in await self.worker.keys(group, database):
                    slot = self._key_slots.slot_of(database, key)
                    assert self.worker.table.slots[slot].group_id == group, (database, key, slot)


class Program:
    """A program of a framework. It ends its workers itself."""

    def __init__(self, command: Sequence[str], folder: Path = APPLICATIONS, paths: Sequence[Path] = ()) -> None:
        self._command = list(command)
        self._folder = folder
        self._paths = paths

    async def run(self, address: tuple[str, int], what: str) -> tuple[int, Any, str]:
        """Its exit status, what it printed, and its log."""
        paths = os.pathsep.join(map(str, (*self._paths, self._folder)))
        process = await asyncio.create_subprocess_exec(
            *bound([*self._command, address[0], str(address[1]), what]),
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        seen = json.loads(out.splitlines()[-1]) if out.strip() else None
        assert process.returncode is not None
        return process.returncode, seen, err.decode(errors="replace")
