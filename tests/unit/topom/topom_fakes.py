"""Stand-ins for what surrounds topom's logic: a store in memory, a mover, a fencer, proxies without a network."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from migrator.checks import Findings, Watch
from migrator.errors import ServerUnavailable, TargetUnavailable
from migrator.facts import Facts
from migrator.followable import Followable
from migrator.progress import Progress
from migrator.sweep import Swept, Warrant
from slots.beginning import Beginning
from slots.messages.control import Register, TopomMessage
from slots.messages.message import Product
from slots.table import SlotTable
from topom.cluster import leftovers
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger
from topom.cluster.state import MigrationSettings
from topom.migration.actions import Actions
from topom.migration.foreignkeys import SweepBrokenOff
from topom.migrators.gathering import Place
from topom.proxies.barrier import Barrier
from topom.proxies.leases import Leases
from topom.proxies.member import Member
from topom.proxies.members import Members
from topom.proxies.refusedtables import RefusedTables
from topom.reasons import Kind, Reason
from topom.servers.redis_servers import Fencing
from topom.store import STATE, Book, Leader, Store, StoreConflict, Stored, StoreError
from topom.store.sqlite import AloneLeadership

PRODUCT = Product(name="test", number_of_slots=16, slot_function="crc32", databases=16)
MIGRATION = MigrationSettings(8, 0, 0)


class FakeHandsOff(HandsOff):
    """Keeps its hands off for the reason that it is given, or that it finds each time."""

    def __init__(self, reason: str | Callable[[], str] = "") -> None:
        self._reason = reason

    def reason(self) -> Reason | None:
        found = self._reason() if callable(self._reason) else self._reason
        return Reason(Kind.PROTECTED, found) if found else None


class MemoryStore(Store):
    """Keeps documents in memory, and fails when told to."""

    shared = False

    def __init__(self) -> None:
        self._leader: Leader | None = None
        self.version = 0
        self.documents: dict[str, bytes] = {}
        self.revision = 0
        self.sizes: dict[str, bytes] = {}
        self.fail_before = 0
        """That many writes fail and leave nothing."""
        self.fail_after = 0
        """That many writes fail although they are in the store."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def watch(self, version: int, seconds: float) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.version == version:
                    await asyncio.sleep(0.002)
        return self.version

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> AloneLeadership:
        self._leader = Leader(instance, url, 1)
        return AloneLeadership(self._leader)

    async def leader(self) -> Leader | None:
        return self._leader

    def check(self) -> None:
        """Raise the error with which reads and writes should fail."""

    def book(self, name: str) -> "MemoryBook":
        return MemoryBook(self, name)


class MemoryBook(Book):
    """One of its two books."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._is_state = name == STATE

    async def read(self) -> Stored:
        one = self._store
        one.check()
        return Stored(one.version, dict(one.documents)) if self._is_state else Stored(one.revision, dict(one.sizes))

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        one = self._store
        one.check()
        await asyncio.sleep(0)
        if one.fail_before:
            one.fail_before -= 1
            raise StoreError("the disk is full")
        now = one.version if self._is_state else one.revision
        if expected != now:
            raise StoreConflict(f"at {now}, not {expected}")
        kept = one.documents if self._is_state else one.sizes
        for name, value in documents.items():
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value
        if self._is_state:
            one.version = version
        else:
            one.revision = version
        if one.fail_after:
            one.fail_after -= 1
            raise StoreError("the disk went away")


class FakeCopy:
    """A copy of a :class:`FakeMover`; notes what it is asked for."""

    def __init__(
        self,
        mover: "FakeMover",
        pair: tuple[str, str],
        run_ids: tuple[str, str],
        slots: Sequence[int],
        id: str,
        progress: Progress,
        replicas: Sequence[str],
        place: Place,
    ) -> None:
        self._mover = mover
        self.place = place
        self._begun = False
        self._progress = progress
        self.pair = pair
        self.run_ids = run_ids
        self.replicas = tuple(replicas)
        self.id = id
        self.kept = tuple(slots)
        self.settled: list[tuple[int, ...]] = []
        self.lag: int | None = None
        self.closed = False

    async def nearly_level(self) -> None:
        assert not self.closed
        if not self._begun:
            await asyncio.sleep(0)
            self.place.gathering.require_turn(self.place.one)
            self._begun = True
        await self.place.gathering.begun(self.place.one)
        self._progress.followed = (*self.replicas, self.pair[0])[0]
        if self._mover.copy_errors:
            raise self._mover.copy_errors.pop(0)
        if self._mover.copying is not None:
            await self._mover.copying()

    async def settle(self, slots: Sequence[int]) -> None:
        assert not self.closed
        self.settled.append(tuple(slots))
        if self._mover.settle_errors:
            raise self._mover.settle_errors.pop(0)
        if self._mover.settling is not None:
            await self._mover.settling()

    def keep_only(self, slots: Collection[int]) -> None:
        self.kept = tuple(slots)

    async def close(self) -> None:
        self.closed = True


class FakeMover:
    """Notes what it is asked to move; ``during`` runs meanwhile.

    ``refusing`` has, by target, why its checks fail; ``checked`` and ``withdrawn`` what was asked, in order.
    """

    def __init__(self, during: Callable[[], Awaitable[None]] | None = None) -> None:
        self.moved: list[tuple[str, str, tuple[int, ...]]] = []
        self.beginnings: list[Beginning] = []
        """The beginning of the actions, for each move that came to its end."""
        self.errors: list[Exception] = []
        self.refusing: dict[str, Exception] = {}
        self.notes: list[str] = []
        self.min_replicas = 0
        self.dropping: Callable[[], Awaitable[None]] | None = None
        """Called before it asks whether keys may be dropped at the source."""
        self.dropped = 0
        """How often keys were dropped at the source."""
        self.checked: list[tuple[str | None, str, float]] = []
        self.facts: dict[str, Facts] = {}
        """What servers say of themselves, by address."""
        self.followable = Followable()
        self.reads_payloads = True
        """Whether targets read the payloads of sources."""
        self.hides: set[str] = set()
        """Servers that may count keys of their own slots as hidden."""
        self.looked: list[str] = []
        self.run_ids: dict[str, str] = {}
        """Run ids by address, of servers that were started anew."""
        self.withdrawn: list[tuple[str | None, str | None]] = []
        self.withdraw_errors: list[Exception] = []
        self.copies: list[FakeCopy] = []
        self.copy_errors: list[Exception] = []
        self.settle_errors: list[Exception] = []
        self.copying: Callable[[], Awaitable[None]] | None = None
        """Runs until a copy is nearly level."""
        self.settling: Callable[[], Awaitable[None]] | None = None
        """Runs until a copy is level."""
        self.confirmed: list[tuple[str, int | None]] = []
        """Servers whose replicas were waited for, and how many."""
        self.confirming: Callable[[], Awaitable[None]] | None = None
        """Runs until they have all."""
        self.broken_off = 0
        self.pace: MigrationSettings | None = None
        self._moving: list[tuple[str, str]] = []
        self.most_at_once = 0
        self._during = during

    @property
    def back(self) -> list[bool]:
        """Whether keys went back, for each move that came to its end."""
        return [beginning.back for beginning in self.beginnings]

    async def check(self, source: str | None, target: str, share: float) -> Findings:
        self.checked.append((source, target, share))
        if target in self.refusing:
            raise self.refusing[target]
        seen = self.facts.get(source or ""), self.facts.get(target), self.followable
        return Findings(
            tuple(self.notes),
            self.min_replicas,
            *self._identities(source, target),
            *seen,
            self.reads_payloads,
            source in self.hides,
        )

    async def look(self, server: str) -> tuple[Facts, Followable]:
        self.looked.append(server)
        if server not in self.facts:
            raise ServerUnavailable(f"{server} does not answer")
        return self.facts[server], self.followable

    @asynccontextmanager
    async def watch(self, source: str | None, target: str) -> AsyncIterator[Watch]:
        yield FakeWatch(self, source, target)

    def _identities(self, source: str | None, target: str) -> tuple[str, str]:
        return self.run_ids.get(source or "", source or ""), self.run_ids.get(target, target)

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        return Swept(0)

    async def stop_sweeping(self, server: str) -> None:
        pass

    def copy(
        self,
        source: str,
        target: str,
        run_ids: tuple[str, str],
        slots: Sequence[int],
        id: str,
        progress: Progress,
        replicas: Sequence[str],
        place: Place,
    ) -> FakeCopy:
        self.copies.append(FakeCopy(self, (source, target), run_ids, slots, id, progress, replicas, place))
        return self.copies[-1]

    async def confirm(self, target: str, replicas: int | None) -> None:
        self.confirmed.append((target, replicas))
        if self.confirming is not None:
            await self.confirming()

    async def withdraw(self, source: str | None, target: str | None) -> None:
        assert (source, target) not in self._moving, "nobody may move keys while the permit is withdrawn"
        self.withdrawn.append((source, target))
        if self.withdraw_errors:
            raise self.withdraw_errors.pop(0)

    async def move(
        self,
        source: str,
        target: str,
        slots: Sequence[int],
        progress: Progress,
        beginning: Beginning,
        require: Callable[[], None],
    ) -> None:
        progress.tell_servers(*self._identities(source, target))
        if self.errors:
            raise self.errors.pop(0)
        self._moving.append((source, target))
        self.most_at_once = max(self.most_at_once, len(self._moving))
        try:
            if self._during is not None:
                await self._during()
            if self.dropping is not None:
                await self.dropping()
            require()
            self.dropped += 1
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self._moving.remove((source, target))
        self.moved.append((source, target, tuple(slots)))
        self.beginnings.append(beginning)
        progress.moved(len(slots), 100 * len(slots))

    def set_pace(self, settings: MigrationSettings) -> None:
        self.pace = settings


class FakeWatch(Watch):
    """Notices servers that were started anew."""

    def __init__(self, mover: FakeMover, source: str | None, target: str) -> None:
        super().__init__((), mover._identities(source, target))
        self._look = partial(mover._identities, source, target)

    async def same(self) -> None:
        if self._look() != self.run_ids:
            raise TargetUnavailable("the connection is lost")


class FakeFencer:
    """Fences everywhere but at ``down``."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.fenced: dict[str, set[str]] = {}
        self.processes: dict[str, str] = {}
        """Run ids by address, of servers that were started anew."""

    async def fence(self, wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        outcome: dict[str, Fencing] = {}
        for address, instances in wanted.items():
            problem = "no answer" if address in self.down else None
            outcome[address] = Fencing(self.processes.get(address, "first"), problem)
            for instance in instances if problem is None else ():
                self.fenced.setdefault(instance, set()).add(address)
        return outcome

    async def unmarked(self, instances: Collection[str], address: str) -> Mapping[str, str]:
        return {
            instance: "no answer" if address in self.down else "the mark is gone"
            for instance in instances
            if address in self.down or address not in self.fenced.get(instance, set())
        }


Answer = Callable[[SlotTable], bool | None]
"""What a proxy does with a table: True acknowledges, False refuses, None says nothing."""


class FakeProxy:
    """A proxy that hears of tables at once and answers them as ``answer`` says."""

    def __init__(self, bench: "Bench", number: int, answer: Answer = lambda table: True) -> None:
        self._bench = bench
        self.instance = f"{number:032x}"
        self.answer = answer
        self.stands_down: float | None = None
        self.changes_rules = True
        self.member: Member | None = None
        self.seen: list[SlotTable] = []
        self.last_messages: list[TopomMessage | None] = []
        self.told: list[TopomMessage] = []
        self._ended = False

    def say(self, message: TopomMessage) -> None:
        self.told.append(message)

    async def register(self) -> "FakeProxy":
        self._ended = False
        registration = Register(
            instance=self.instance,
            address="127.0.0.1:6380",
            hostname="here",
            pid=1,
            workers=2,
            version="0",
            epoch=0,
            stands_down=self.stands_down,
            registered_before=self.member is not None,
            changes_rules=self.changes_rules,
        )
        self.member = await self._bench.members.register(registration, self)
        self.wake()
        return self

    def wake(self) -> None:
        asyncio.get_running_loop().call_soon(self._take)

    def end(self, message: TopomMessage | None) -> None:
        self._ended = True
        self.last_messages.append(message)

    def _take(self) -> None:
        table = self._bench.ledger.table
        if self.member is None or self._ended:
            return
        if not self.seen or table.epoch > self.seen[-1].epoch:
            self.seen.append(table)
        outcome = self.answer(table)
        if outcome is True:
            self._bench.members.acknowledge(self.member, table.epoch)
        elif outcome is False:
            self._bench.members.refuse(self.member, table.epoch, "busy")


class Bench:
    """The parts of a topom that hold its logic, over fakes."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        mover: FakeMover | None = None,
        lease: float = 5.0,
        barrier_seconds: float = 0.05,
        on_step: Callable[[str], Awaitable[None]] | None = None,
        product: Product = PRODUCT,
        way: str = "keys",
    ) -> None:
        self.product = product
        self.store = store or MemoryStore()
        self.mover = mover or FakeMover()
        self.fencer = FakeFencer()
        self.ledger = Ledger(self.store, f"writer {id(self)}")
        self.members = Members(self.ledger, lease)
        self.barrier = Barrier(self.ledger, self.members, self.fencer)
        self.actions = Actions(
            self.ledger, self.barrier, self.mover, replace(MIGRATION, way=way), barrier_seconds, on_step, self.sweep
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> "Bench":
        await self.ledger.start(self.product)
        self.members.start()
        return self

    def run(self) -> None:
        """Let leases, repeated tables and batches run by themselves."""
        self._tasks = [
            asyncio.create_task(loop.run())
            for loop in (Leases(self.members), RefusedTables(self.ledger, self.members), self.actions)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def sweep(self, group_id: int) -> None:
        """A group's master has no leftovers. It is not swept while slots are copied from there or to there."""
        if any(
            slot.action and slot.action.copy and group_id in (slot.group_id, slot.action.target_id)
            for slot in self.ledger.table.slots
        ):
            raise SweepBrokenOff("slots are being copied")
        if left := self.ledger.state.leftovers.get(group_id):
            await self.ledger.change(lambda state, epoch: leftovers.without(state, group_id, left))

    async def edit(self, make: Callable[[SlotTable, int], SlotTable]) -> SlotTable:
        state = await self.ledger.change(
            lambda state, epoch: (
                state if (new := make(state.table, epoch)) is state.table else replace(state, table=new)
            )
        )
        return state.table

    async def at_rest(self, seconds: float = 60.0) -> SlotTable:
        """Wait until no slot is in an action."""
        await self.until(lambda table: all(slot.action is None for slot in table.slots), seconds)
        return self.ledger.table

    async def until(self, holds: Callable[[SlotTable], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds(self.ledger.table):
                await asyncio.sleep(0.002)
        # Proxies take a table one step after it came to hold.
        await asyncio.sleep(0)
