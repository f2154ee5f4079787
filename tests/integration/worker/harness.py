"""One real worker process on its channel, with real Redis servers behind, and the test in the supervisor's place."""

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import redis.asyncio

from proxy.channel import Channel
from proxy.listening import UnixReservation, reserve, reserve_unix
from proxy.settings import ProxySettings
from slotferry.processes import ManagedProcess, free_ports
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.functions import slot
from slots.group import Group
from slots.messages.channel import (
    Ack,
    Answer,
    Answers,
    Ask,
    Counters,
    Identity,
    Nack,
    Ready,
    Start,
    Table,
    WorkerMessage,
    parse_worker,
)
from slots.messages.message import Product
from slots.messages.questions import Question
from slots.reserved import RESERVED
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.forking import bound, fork

INSTANCE = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32
"""Another identity."""
LIMIT = 60.0
PATIENT = {
    "backend_connect_seconds": 10.0,
    "backend_reply_seconds": 15.0,
    "lock_drain_seconds": 5.0,
    "lock_hold_seconds": 15.0,
    "move_seconds": 15.0,
}
"""A worker's time limits, unless a test is about one of them: on a machine that is also busy with other tests, slow
does not count as broken."""
CLIENT = {"socket_timeout": 60, "socket_connect_timeout": 60}
"""The same for clients, which send a request again after that."""


def slot_of(key: bytes | str) -> int:
    """Slot of a key in the harness's product."""
    return slot("crc32", key.encode() if isinstance(key, str) else key, 1024)


class WorkerProcess(ManagedProcess):
    """The worker, started with one end of its channel and the sockets it inherits."""

    def __init__(self, log: Path, descriptor: int, inherited: Iterable[int] = ()) -> None:
        super().__init__("worker", [sys.executable, "-m", "proxy.worker.worker", "--channel", str(descriptor)], log)
        self._channel = descriptor
        self._descriptors = [descriptor, *inherited]

    def _spawn(self, output: Any, parent: int) -> Any:
        if self.arguments[1:3] == ["-m", "proxy.worker.worker"] and sys.platform == "linux":
            shared = {1: output.fileno(), 2: output.fileno()}
            own = {descriptor: descriptor for descriptor in self._descriptors}
            return fork("proxy.worker.worker", ["--channel", str(self._channel)], {**shared, **own}, os.environ)
        return subprocess.Popen(bound(self.arguments), stdout=output, stderr=output, pass_fds=self._descriptors)


class WorkerHarness:
    """Group i+1 is server i; all slots begin at group 1 unless told otherwise."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        # As the supervisor does: before and after the worker binds the port, no other worker shares it.
        self.reserved = reserve(f"127.0.0.1:{free_ports(1)[0]}", shared=True)
        settings = {"listen": self.reserved.address, "workers": 1, "metrics": "", **PATIENT, **settings}
        self.settings = ProxySettings(**settings)
        self.places: UnixReservation | None = None
        self.servers: list[RedisServer] = []
        self.run_ids: dict[str, str] = {}
        """Of the servers as they were started first, by address."""
        self.messages: list[WorkerMessage] = []
        self.table = SlotTable.empty()
        self.answering = True
        """Whether the worker's questions to all workers are passed on."""
        self._questions = itertools.count(2**32)  # those of the worker itself come back to it under their own numbers
        self._arrived = asyncio.Event()
        self._ended = False

    @classmethod
    async def start(
        cls,
        directory: Path,
        servers: int = 2,
        extra: Iterable[str] = (),
        server_tls: Iterable[str] | None = None,
        binaries: Sequence[Path | None] = (),
        **settings: Any,
    ) -> Self:
        """Start all, the first servers with these programs.

        With ``server_tls``, more options of the servers, the worker is sent to their TLS ports.
        """
        harness = cls(directory, **settings)
        addresses: list[str] = []
        for number in range(1, servers + 1):
            options = list(extra)
            if server_tls is not None:
                addresses.append(f"127.0.0.1:{free_ports(1)[0]}")
                options += ["--tls-port", addresses[-1].rpartition(":")[2], *server_tls]
            binary = binaries[number - 1] if number <= len(binaries) else None
            harness.servers.append(await start_redis(f"redis-{number}", directory, binary=binary, extra=options))
        harness.addresses = addresses or [server.address for server in harness.servers]
        inherited: dict[str, int] = {}
        if harness.settings.unix_socket:
            permissions = int(harness.settings.unix_socket_permissions, 8)
            harness.places = reserve_unix(Path(harness.settings.unix_socket), permissions)
            inherited["unix_socket"] = harness.places.inherited.fileno()
        ours, theirs = socket.socketpair()
        harness.process = WorkerProcess(directory / "worker.log", theirs.fileno(), inherited.values())
        harness.process.start()
        theirs.close()
        harness.channel = await Channel.open(ours, parse_worker)
        harness.reading = asyncio.create_task(harness._read())
        harness.begun = Start(
            settings=harness.settings.to_wire(),
            index=0,
            incarnation=1,
            instance=INSTANCE,
            product=Product(name="test", number_of_slots=1024, slot_function="crc32", databases=16),
            listen_fds=inherited,
        )
        harness.channel.send(harness.begun)
        groups = [Group(number, (address,)) for number, address in enumerate(harness.addresses, 1)]
        for address, server in zip(harness.addresses, harness.servers, strict=True):
            access = ServerAccess(harness.settings.redis_password.get_secret_value(), harness.settings.redis_user)
            with suppress(redis.exceptions.ResponseError):  # a server that lets no client in says nothing about itself
                async with access.client("127.0.0.1", server.port) as client:
                    harness.run_ids[address] = (await client.info("server"))["run_id"]
        await harness.apply([Slot(index, 1) for index in range(1024)], groups)
        await harness.next(lambda message: isinstance(message, Ready))
        return harness

    async def stop(self) -> None:
        self.reading.cancel()
        self.channel.close()
        await self.process.stop()
        if self.places is not None:
            self.places.close()
        self.reserved.close()
        for server in self.servers:
            await server.stop()

    async def _read(self) -> None:
        while (message := await self.channel.receive()) is not None:
            self.messages.append(message)
            if isinstance(message, Ask) and self.answering:
                # As a supervisor with this one worker: the question goes back to it, and so does its answer.
                self.channel.send(message)
            if isinstance(message, Answer):
                self.channel.send(Answers(id=message.id, answers=[message.answer]))
            self._arrived.set()
        self._ended = True
        self._arrived.set()

    async def next(self, wanted: Callable[[Any], bool], consume: bool = True) -> Any:
        """Wait for the first message that is wanted."""
        async with asyncio.timeout(LIMIT):
            while True:
                for message in self.messages:
                    if wanted(message):
                        if consume:
                            self.messages.remove(message)
                        return message
                if self._ended:
                    while self.process.running:  # what it has to say comes after the end of its channel
                        await asyncio.sleep(0.01)
                    raise AssertionError(f"the worker has ended:\n{self.process.tail()}")
                self._arrived.clear()
                await self._arrived.wait()

    async def asked(self, question: Question) -> Any:
        """The worker's own answer to a question; it has read all that was sent to it before."""
        number = next(self._questions)
        self.channel.send(Ask(id=number, question=question))
        return (await self.next(lambda message: isinstance(message, Answer) and message.id == number)).answer

    def take_identity(self, instance: str = OTHER) -> None:
        """Give it another identity, with the table that it has."""
        self.channel.send(Identity(instance=instance, incarnation=1, table=self.table.to_wire()))

    async def under_way(self) -> Counters:
        """The counters, once they say from now on that a request is at a server.

        Requests that were under way before do not count, such as a worker's questions to each server at its start.
        """
        self.messages[:] = [message for message in self.messages if not isinstance(message, Counters)]
        found: Counters = await self.next(lambda one: isinstance(one, Counters) and one.counters["in_flight"] > 0)
        return found

    def push(self, slots: Iterable[Slot] = (), groups: Iterable[Group] = ()) -> int:
        """Send a new table, and give its epoch. Actions without run ids began with the servers as they were started
        first."""
        self.table = self.table.changed(self.table.epoch + 1, slots, groups)
        begun = tuple(self._begun(slot) for slot in self.table.slots)
        self.table = replace(self.table, slots=begun)
        self.channel.send(Table(table=self.table.to_wire()))
        return self.table.epoch

    def _begun(self, slot: Slot) -> Slot:
        if slot.action is None or slot.action.source_run_id or slot.action.target_run_id:
            return slot
        ends = self.table.master_of(slot.group_id), self.table.master_of(slot.action.target_id)
        source, target = (self.run_ids.get(address or "", "") for address in ends)
        return replace(slot, action=replace(slot.action, source_run_id=source, target_run_id=target))

    async def verdict(self, epoch: int) -> Ack | Nack:
        """The worker's ack or nack of an epoch."""
        found: Ack | Nack = await self.next(lambda message: isinstance(message, Ack | Nack) and message.epoch == epoch)
        return found

    async def apply(self, slots: Iterable[Slot] = (), groups: Iterable[Group] = ()) -> None:
        """Send a new table and wait until it holds."""
        epoch = self.push(slots, groups)
        verdict = await self.verdict(epoch)
        assert isinstance(verdict, Ack), verdict

    async def act(self, slots: Iterable[int], state: SlotState, source: int = 1, target: int = 2) -> None:
        """Put slots into a state of an action from one group to another, and wait until it holds."""
        await self.apply([Slot(index, source, Action(state, target)) for index in slots])

    def client(self, **options: Any) -> redis.asyncio.Redis:
        """A client of the proxy."""
        host, port = self.settings.listen.split(":")
        return redis.asyncio.Redis(**{"host": host, "port": int(port), **CLIENT, **options})

    def direct(self, group: int, **options: Any) -> redis.asyncio.Redis:
        """A client of a group's server."""
        return redis.asyncio.Redis(**{"host": "127.0.0.1", "port": self.servers[group - 1].port, **CLIENT, **options})

    async def keys(self, group: int, *databases: int) -> list[bytes]:
        """The keys at a group's master, without Slotferry's own; of database 0 unless told otherwise."""
        found: list[bytes] = []
        for database in databases or (0,):
            async with self.direct(group, db=database) as server:
                found += [key for key in await server.keys("*") if not key.startswith(RESERVED)]
        return found

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection to the proxy."""
        host, port = self.settings.listen.split(":")
        return await asyncio.open_connection(host, int(port), limit=2**26)
