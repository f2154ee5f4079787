"""Makes the faults of a schedule happen in a cluster, and takes them back.

Only processes of the cluster are touched, by their ids. A fault that finds nothing to do, because a process is dead
already for example, does nothing.
"""

import asyncio
import math
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from redis.exceptions import RedisError

from slotferry.calls import TopomError
from slotferry.processes import ManagedProcess, ProcessError
from slots.reserved import FENCED, RESERVED_KEYS
from tests.histories.cluster import HistoriesCluster
from tests.histories.journeys import SLOW_RATE, UNDER_WAY, Journeys
from tests.histories.losses import Losses, Older
from tests.histories.moves import RATES, Mover
from tests.histories.relay import CATCHING_SECONDS, KeysHold
from tests.histories.schedule import JOURNEYS, LONGEST_SECONDS, Fault, Kind
from tests.histories.steps import BATCH, CHANGES, DROPPING, FINISHING, PLACING, RUNNING, TAKING
from tests.histories.workload import USED, Workload
from tests.integration.cluster.harness import plain_client

LEAVING_SECONDS = 2.0
LOOK_SECONDS = 0.02
MOVED_SECONDS = 0.5
"""After this time, clients have had some keys moved."""
FLUSHED = b":flushed:", b"FLUSHDB"
"""A part of the names of keys that a flush takes away, and a part of the flush. The keys arrive right after the
flush."""

LATE_SECONDS = (0.02, 0.1, 0.4, 0.8)
"""How late a replication stream comes. Within the lock it is waited for."""
LOSING_SECONDS = 0.3
"""From one lost answer to the next."""
PROMOTING_SECONDS = 6.0
"""For so long, topom is asked to make a replica the master."""

Undo = Callable[[], Awaitable[None]]


class Faults:
    """Runs schedules in one cluster.

    Args:
        cluster: where.
        mover: moves slots meanwhile.
        workload: what clients do meanwhile.
        losses: records servers that come back with older data.
        now: the seconds of the run.
    """

    def __init__(
        self,
        cluster: HistoriesCluster,
        mover: Mover,
        workload: Workload,
        losses: Losses,
        now: Callable[[], float],
    ) -> None:
        self.done: list[str] = []
        """What was done and taken back, in words."""
        self.evicted: set[int] = set()
        """Groups whose masters have lost their marks."""
        self._cluster = cluster
        self._mover = mover
        self._losses = losses
        self._now = now
        self._journeys = Journeys(cluster, mover, workload, losses, now, self._restart_with, self._pids)

    async def run(self, faults: Sequence[Fault]) -> None:
        """Have all faults happen at their times; return when all are taken back."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._happen(fault))

    async def _happen(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at - self._now())
        begun = self._now()
        if fault.kind in JOURNEYS:
            far = await self._journeys.go(fault, self._keep)
        else:
            far = ""
            undo = await self._begin(fault)
            if undo is None:
                self.done.append(f"{begun:.3f} s: {fault}: nothing to do")
                return
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                await undo()
        ended = self._now()
        self.done.append(f"{begun:.3f} - {ended:.3f} s: {fault}{far}")

    async def _begin(self, fault: Fault) -> Undo | None:
        cluster = self._cluster
        match fault.kind:
            case Kind.WORKER_KILLED | Kind.WORKER_STOPPED:
                if not cluster.proxies[fault.place].running:
                    return None
                pid = cluster.worker_pids(fault.place)[fault.worker]
                return self._signal([pid], fault.kind is Kind.WORKER_KILLED)
            case Kind.SUPERVISOR_STOPPED:
                return self._stop(cluster.proxies[fault.place])
            case Kind.PROXY_STOPPED:
                return self._signal(self._pids(fault.place), False) if cluster.proxies[fault.place].running else None
            case Kind.PROXY_KILLED:
                return await self._kill(cluster.proxies[fault.place])
            case Kind.TOPOM_KILLED:
                return await self._kill(cluster.topom)
            case Kind.TOPOM_STOPPED:
                return self._stop(cluster.topom)
            case Kind.SERVER_STOPPED:
                return self._stop(cluster.redis_servers[fault.place])
            case Kind.STEP_HELD | Kind.ANSWER_HELD:
                return await self._hold_keys(fault)
            case Kind.MIGRATION_PAUSED:
                return await self._pause_migration()
            case Kind.PROXIES_STOPPED:
                running = [number for number, proxy in enumerate(cluster.proxies) if proxy.running]
                return self._signal([pid for number in running for pid in self._pids(number)], False)
            case Kind.SERVER_OLDER:
                return self._come_back_older(fault)
            case Kind.MARKS_EVICTED:
                return await self._evict_marks(fault.place)
            case Kind.TARGET_FULL:
                return await self._fill(fault.place)
            case Kind.MIGRATOR_KILLED | Kind.MIGRATOR_STOPPED:
                pids = await self._migrators()
                return self._signal(pids, fault.kind is Kind.MIGRATOR_KILLED) if pids else None
            case Kind.STREAM_LATE:
                return self._delay(fault)
            case Kind.BATCHES_LOST:
                return self._lose_batches()
            case Kind.MASTER_CHANGED:
                return await self._change_master(fault.place)
            case Kind.MASTER_LOST:
                return await self._lose_master(fault.place)
            case _:
                return await self._link(fault)

    async def _migrators(self) -> list[int]:
        """Their process ids; none if there are none, or topom does not answer."""
        try:
            return [one["pid"] for one in (await self._cluster.api.migrators())["migrators"]]
        except (OSError, TopomError):
            return []

    def _pids(self, proxy: int) -> list[int]:
        return [self._cluster.proxies[proxy].pid, *self._cluster.worker_pids(proxy).values()]

    @staticmethod
    def _signal(pids: Sequence[int], kill: bool) -> Undo:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)

        async def undo() -> None:
            for pid in () if kill else pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return undo

    def _stop(self, process: ManagedProcess) -> Undo | None:
        return self._signal([process.pid], False) if process.running else None

    @staticmethod
    async def _kill(process: ManagedProcess) -> Undo | None:
        if not process.running:
            return None
        await process.kill()

        async def undo() -> None:
            with suppress(ProcessError):  # it runs again already
                process.start()

        return undo

    def _come_back_older(self, fault: Fault) -> Undo | None:
        """Keep a server's files. Later it is killed, mostly in the middle of a move, and comes back with these
        files."""
        place = fault.place
        server = self._cluster.redis_servers[place]
        if not server.running:
            return None
        kept = self._keep(place)

        async def undo() -> None:
            if not server.running:
                shutil.rmtree(kept)
                return
            if random.Random(fault.at).randrange(3):
                await self._leaving(place + 1)
            before, killed = await self._losses.look(), self._now()
            await self._restart_with(place, kept)
            with suppress(TopomError):  # the run's end sees to it
                await self._cluster.api.set_migration(keys_per_second=RATES[1])
            # From this moment on the server may answer. A moment later topom says the same about slots, unless they
            # went on.
            self._losses.older.append(Older(place + 1, killed, self._now(), before, await self._losses.look()))

        return undo

    async def _leaving(self, group: int) -> None:
        """Wait, but not for long, until keys have begun to leave a group; then keep the rest there for a while."""
        with suppress(TimeoutError, TopomError):
            async with asyncio.timeout(LEAVING_SECONDS):
                while True:
                    look = await self._losses.look()
                    if look and any(place.group == group and place.state in UNDER_WAY for place in look.places):
                        await self._cluster.api.set_migration(keys_per_second=SLOW_RATE)
                        await asyncio.sleep(MOVED_SECONDS)
                        return
                    await asyncio.sleep(LOOK_SECONDS)

    def _keep(self, place: int) -> Path:
        """Copy a server's files."""
        kept = Path(tempfile.mkdtemp(prefix="slotferry-older-"))
        shutil.copytree(self._cluster.redis_servers[place].home, kept, dirs_exist_ok=True)
        return kept

    async def _restart_with(self, place: int, kept: Path) -> None:
        """Kill a server, and start it with files that were kept. This uses the kept files up."""
        server, link = self._cluster.redis_servers[place], self._cluster.server_links[place]
        await link.refuse()
        await server.kill()
        shutil.rmtree(server.home)
        shutil.move(kept, server.home)
        with suppress(ProcessError):  # it runs again already
            server.start()
        with suppress(ProcessError):  # it was killed again meanwhile
            await server.ready()
        await link.accept()

    async def _evict_marks(self, place: int) -> Undo | None:
        """Take away all keys of Slotferry's own except the marks of fences, like a server that evicts."""
        server = self._cluster.redis_servers[place]
        try:
            async with plain_client(server.address) as client:
                await client.delete(*(key for key in RESERVED_KEYS if key != FENCED))
        except (RedisError, OSError, TimeoutError):
            return None
        self.evicted.add(place + 1)

        async def undo() -> None:
            return

        return undo

    async def _fill(self, place: int) -> Undo | None:
        """Have a server refuse whatever needs memory."""
        server = self._cluster.redis_servers[place]

        async def limit(bytes_: int) -> None:
            async with plain_client(server.address) as client:
                await client.config_set("maxmemory", bytes_)

        try:
            await limit(1)
        except (RedisError, OSError, TimeoutError):
            return None

        async def undo() -> None:
            with suppress(RedisError, OSError, TimeoutError):  # the run's end sees to it
                await limit(0)

        return undo

    async def _pause_migration(self) -> Undo | None:
        try:
            await self._cluster.api.pause_migration()
        except TopomError:
            return None

        async def undo() -> None:
            with suppress(TopomError):  # the run's end sees to it
                await self._cluster.api.resume_migration()

        return undo

    async def _hold_keys(self, fault: Fault) -> Undo | None:
        """Wait for a step by which keys move, at any server, and hold it up; mostly of keys that clients use."""
        chance = random.Random(fault.at)
        if self._cluster.way == "stream":
            return await self._held(KeysHold(fault.kind is Kind.STEP_HELD, RUNNING, BATCH, catching=0.0))
        step = chance.choices([PLACING, FINISHING, TAKING, DROPPING], [5, 2, 1, 2])[0]
        # All keys that go in pieces are of one kind, so there is no name to choose.
        names = () if step is FINISHING else chance.choice([FLUSHED, FLUSHED, *((name,) for name in USED), ()])
        # A step of one mover, which all others overtake, or of several.
        catching = chance.choice((0.0, CATCHING_SECONDS))
        return await self._held(KeysHold(fault.kind is Kind.STEP_HELD, step, *names, catching=catching))

    async def _held(self, hold: KeysHold) -> Undo | None:
        """Have something held up, once it is sent to any server."""
        for link in self._cluster.server_links:
            link.catch(hold)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await hold.caught.wait()
        except TimeoutError:
            hold.end()
            return None

        async def undo() -> None:
            hold.end()

        return undo

    def _delay(self, fault: Fault) -> Undo:
        """Let what a source sends to its followers come late."""
        link = self._cluster.server_links[fault.place]
        link.late_seconds = random.Random(fault.at).choice(LATE_SECONDS)

        async def undo() -> None:
            link.late_seconds = 0.0

        return undo

    def _lose_batches(self) -> Undo:
        """Have answers to batches with changes of the stream lost, one after the other."""

        async def lose() -> None:
            while True:
                hold = KeysHold(False, CHANGES, BATCH, catching=0.0, loses=True)
                for link in self._cluster.server_links:
                    link.catch(hold)
                try:
                    await hold.caught.wait()
                    await asyncio.sleep(LOSING_SECONDS)
                finally:
                    hold.end()

        task = asyncio.create_task(lose())

        async def undo() -> None:
            task.cancel()

        return undo

    async def _change_master(self, place: int) -> Undo | None:
        """Make a replica the master. Nothing that was acknowledged is lost. Slots of the group have to be at rest."""
        if not self._cluster.replicas:
            return None
        async with self._mover.turn:
            with suppress(TopomError):
                await self._cluster.api.cancel_migration()
            if not await self._promoted(place, force=False):
                return None

        async def undo() -> None:
            return

        return undo

    async def _lose_master(self, place: int) -> Undo | None:
        """Kill a master, and make its replica the master by force: what the replica does not have yet is lost. The
        former master comes back as a replica."""
        cluster = self._cluster
        former, link = cluster.redis_servers[place], cluster.server_links[place]
        if not cluster.replicas or not former.running:
            return None
        before, killed = await self._losses.look(), self._now()
        # Until topom's word is known, anything may have been lost at any time.
        lost = Older(place + 1, killed, math.inf, before, None)
        self._losses.older.append(lost)
        await link.refuse()
        await former.kill()
        if await self._promoted(place, force=True):
            # As after a server with older data: a moment later topom says the same about slots, unless they went on.
            lost.back, lost.after = self._now(), await self._losses.look()

        async def undo() -> None:
            with suppress(ProcessError):  # it runs again already
                former.start()
            with suppress(ProcessError):  # it was killed again meanwhile
                await former.ready()
            await link.accept()

        return undo

    async def _promoted(self, place: int, force: bool) -> bool:
        """Whether topom has made the replica of a group the master. If not, it may yet do so."""
        cluster = self._cluster
        replica = cluster.replica_links[place].address
        try:
            async with asyncio.timeout(PROMOTING_SECONDS):
                while True:
                    with suppress(TopomError):  # it is away, or refuses for now
                        await cluster.api.promote(place + 1, replica, force)
                        await cluster.look_for_masters()
                        return True
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return False

    async def _link(self, fault: Fault) -> Undo | None:
        cluster = self._cluster
        if fault.kind is Kind.CONTROL_CUT:
            link = cluster.control_links[fault.place]
            await link.refuse()
            link.break_all()

            async def undo() -> None:
                await link.accept()

            return undo
        link = cluster.server_links[fault.place]
        match fault.kind:
            case Kind.SERVER_KILLED:
                # A new connection is refused meanwhile, as by a machine on which no process listens.
                await link.refuse()
                restart = await self._kill(cluster.redis_servers[fault.place])

                async def undo() -> None:
                    if restart is not None:
                        await restart()
                        with suppress(ProcessError):  # it was killed again meanwhile
                            await cluster.redis_servers[fault.place].ready()
                    await link.accept()

            case Kind.SERVER_CUT:
                await link.refuse()
                link.break_all()

                async def undo() -> None:
                    await link.accept()

            case _:
                hold = link.hold(
                    requests=fault.kind is not Kind.REPLIES_HELD, later=fault.kind is not Kind.CONNECTIONS_HELD
                )

                async def undo() -> None:
                    hold.end()

        return undo
