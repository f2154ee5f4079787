"""One worker process, as its supervisor sees it: the process, its channel, and its messages."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, TypeAlias

import structlog

from proxy.channel import Channel, ChannelError, MessageTooLong
from slots.connections import worker_prefix
from slots.messages.channel import (
    Grant,
    Identity,
    Known,
    SupervisorMessage,
    Table,
    WorkerMessage,
    parse_worker,
)
from slots.python import TOLD
from slots.table import SlotTable

EXIT_SECONDS = 2.0
"""If a worker has closed its channel and does not end within this time, it is killed."""
WORKER_COMMAND: tuple[str, ...] = (*TOLD, "-m", "proxy.worker.worker")

Inherited: TypeAlias = "socket.socket | IO[bytes]"
"""A socket that a worker inherits, under the same descriptor."""

log = structlog.get_logger()


async def spawn(arguments: Sequence[str], descriptors: Sequence[int]) -> asyncio.subprocess.Process:
    """Start a process that inherits these descriptors under their numbers.

    Raises:
        OSError: it cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *arguments,
        stdin=subprocess.DEVNULL,
        pass_fds=descriptors,
        # The worker imports the same modules as its supervisor, from any working directory.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        # A Ctrl-C at the terminal is for the supervisor, which drains its workers.
        start_new_session=True,
    )


class Worker:
    """A worker process from its start to its end. Made by :meth:`start`."""

    def __init__(
        self,
        index: int,
        incarnation: int,
        instance: str,
        process: asyncio.subprocess.Process,
        channel: Channel[WorkerMessage],
    ) -> None:
        self.index = index
        self.incarnation = incarnation
        self.instance = instance
        """The identity under which it connects to servers."""
        self.retired_prefixes: list[str] = []
        """Prefixes of connection names under earlier identities, which it has not yet reported as closed."""
        self.ready = False
        self.limited = False
        """Whether it has confirmed a limit to its use of servers (:mod:`proxy.servers.allowances`)."""
        self.applied = 0
        """The newest epoch it has acknowledged under its identity."""
        self.settings_due = 0
        """The number of settings that it was sent while it ran, and has yet to use; 0 if it uses those in force."""
        self.silent_ticks = 0
        """How many times the supervisor has looked since the worker's last message."""
        self._process = process
        self._channel = channel
        self._table: SlotTable | None = None  # the newest table that was sent
        self._servers: dict[str, set[int]] = {}

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        index: int,
        incarnation: int,
        instance: str,
        inherited: Sequence[Inherited],
    ) -> "Worker":
        """Start a worker process. ``inherited``: sockets that it gets under the same descriptors.

        Raises:
            OSError: the process cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            descriptors = [theirs.fileno(), *(shared.fileno() for shared in inherited)]
            try:
                process = await spawn([*command, "--channel", str(theirs.fileno())], descriptors)
            except OSError:
                ours.close()
                raise
        return cls(index, incarnation, instance, process, await Channel.open(ours, parse_worker))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def prefix(self) -> str:
        """The prefix of the names of its connections to servers."""
        return worker_prefix(self.instance, self.incarnation)

    @property
    def servers(self) -> dict[str, set[int]]:
        """Servers that it may have sent to since its last acknowledgement, with the groups whose masters they were."""
        return {server: set(groups) for server, groups in self._servers.items()}

    def send(self, message: SupervisorMessage) -> None:
        """Send a message. A worker that does not read is killed. Raises :class:`MessageTooLong`."""
        try:
            self._channel.send(message)
        except MessageTooLong:
            raise
        except ChannelError as error:
            log.error("worker_does_not_read", worker=self.index, pid=self.pid, error=str(error))
            self.kill()

    def send_table(self, table: SlotTable, whole: bool = False, known: Mapping[str, Any] | None = None) -> None:
        """Send a table: the changes since the last one sent, or all of it. ``known`` are the changes since some table,
        and are sent as they are if that is the last one."""
        older = None if whole else self._table
        if older is not None and older.epoch == table.epoch:
            return
        if older is None:
            content = table.to_wire()
        elif known is not None and (known["since"], known["epoch"]) == (older.epoch, table.epoch):
            content = dict(known)
        else:
            content = table.changes_since(older)
        self.send(Table(table=content))
        self._sent(table)

    def send_identity(self, instance: str, table: SlotTable, allowance: Grant, known_servers: Known) -> None:
        """Give it another identity, with the table, the allowance and the servers that belong to it."""
        self.retired_prefixes.append(self.prefix)
        self.instance = instance
        self.applied = 0
        self.send(
            Identity(
                instance=instance,
                incarnation=self.incarnation,
                table=table.to_wire(),
                allowance=allowance,
                known_servers=known_servers,
            )
        )
        self._sent(table)

    def acknowledged(self, epoch: int) -> None:
        """It has applied ``epoch``: of the tables sent, only the newest matters from now on."""
        self.applied = max(self.applied, epoch)
        if self._table is not None and self._table.epoch == epoch:
            self._servers = {}
            self._sent(self._table)

    def _sent(self, table: SlotTable) -> None:
        self._table = table
        for group in table.groups.values():
            for server in group.servers:
                masters = self._servers.setdefault(server, set())
                if server == group.master:
                    masters.add(group.id)

    async def receive(self) -> WorkerMessage | None:
        """Its next message; None once its channel has ended. Raises :class:`ChannelError`."""
        message = await self._channel.receive()
        self.silent_ticks = 0
        return message

    async def ended(self) -> int:
        """Close the channel, make sure that the process ends, and give its status (negative: the signal)."""
        self._channel.close()
        try:
            return await asyncio.wait_for(self._process.wait(), EXIT_SECONDS)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End the process at once."""
        if self._process.returncode is None:
            self._process.kill()

    def describe(self) -> dict[str, Any]:
        """For log events."""
        return {"worker": self.index, "pid": self.pid, "incarnation": self.incarnation}
