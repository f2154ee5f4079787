"""Commands that the proxy learned from servers: those of modules, and of versions newer than the command table.

Most of them are routed by their keys like any other. This module handles the others. Of some, only a server can find
the keys, request by request. Others may keep their connection waiting: from outside, it is not known how long, and they
cannot be ended with a certain outcome. So such a command has a connection of its own without a limit. **drained** waits
for its reply: its slot is not handed over before.
"""

import asyncio
import hashlib
import math
from collections import OrderedDict
from functools import partial
from typing import Any

import hiredis

from proxy.commands import replies
from proxy.commands.family import Family, Outcome
from proxy.commands.learned.learning import Learning
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.session import AFTER_OWED, AGAIN, GATED, IN_TRANSACTION, Cleared, Session, Waiting
from proxy.servers.everywhere import NO_SERVER, ask
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from slots import commands, learned
from slots.commands import Command, Route, UnknownCommandError
from slots.table import SlotTable

REMEMBERED_ANSWERS = 1024
"""Requests whose keys are remembered, so that the server is not asked again about a request that has to wait."""
REMEMBERED_BYTES = 16 * 1024 * 1024
"""The most bytes of those keys."""


class LearnedCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._own = services.own
        self._learning = Learning(
            commands.table(), services.settings.any_server_commands, services.router, services.masters
        )
        self._answers: OrderedDict[bytes, list[bytes]] = OrderedDict()
        self._answer_bytes = 0
        self._running: set[asyncio.Task[bytes]] = set()

    def find(self, argv: list[bytes]) -> Command:
        """The row of a request. Raises :class:`slots.commands.CommandError`."""
        return commands.find(argv, self._learning.commands)

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force: there may be a new server."""
        self._learning.keep_servers()
        self._learning.begin()

    def tick(self) -> None:
        """Look from time to time for servers to ask."""
        self._learning.tick()

    async def close(self) -> None:
        """The worker ends."""
        await self._learning.close()

    # -- unknown commands ----------------------------------------------------------------------------------

    def unknown(self, session: Session, argv: list[bytes]) -> Waiting | None:
        """Decide on an unknown command: None gives an error; otherwise servers are asked first."""
        # Clients try the subcommands of the newest servers whenever they connect; servers are not asked about those.
        subcommand = argv[0].decode("ascii", "replace").upper() in self._learning.commands
        if subcommand or session.attention & (GATED | IN_TRANSACTION) or not self._learning.may_help():
            return None
        return Waiting(self._known_later(argv))

    async def _known_later(self, argv: list[bytes]) -> Any:
        unknown = ""
        # Twice, for the question that is under way may have been sent too early.
        for _ in range(2):
            if not self._learning.may_help():
                break
            await self._learning.wait()
            try:
                self.find(argv)
            except UnknownCommandError as error:
                unknown = str(error)
            except commands.CommandError:
                return AGAIN
            else:
                return AGAIN
        return replies.error(unknown) if unknown else AGAIN

    # -- running -------------------------------------------------------------------------------------------

    def run(self, session: Session, row: Command, argv: list[bytes]) -> Outcome:
        """A command with keys that was learned.

        Raises:
            KeysError: the arguments are inconsistent.
        """
        if row.keys == learned.ASKED:
            name = _digest(argv)
            keys = self._answers.get(name)
            if keys is None:
                return Waiting(self._ask_keys(session, row, argv, name))
        else:
            keys = commands.keys_of(row, argv)
        if not keys:
            # The same holds for every learned command without keys.
            return replies.error(f"ERR {row.name.replace('|', ' ')} is refused by Slotferry: {learned.WITHOUT_KEYS}")
        if row.route is not Route.BLOCKING:
            return keys
        if session.owed:
            # in-order: it uses another connection than the requests before it.
            return AFTER_OWED
        return Cleared(keys, partial(self._block, argv))

    async def _ask_keys(self, session: Session, row: Command, argv: list[bytes], name: bytes) -> Any:
        """Ask a server which arguments are keys; AGAIN once that is known, else the error."""
        address = self._learning.source(row.name.partition("|")[0]) or self._router.any_address()
        if address is None:
            return NO_SERVER
        reply = await ask(self._router.shared_backend(address), command(("COMMAND", "GETKEYS", *argv)))
        if reply.startswith(b"-"):
            return reply
        parser = hiredis.Reader()
        parser.feed(reply)
        self._remember(name, parser.gets())
        return AGAIN

    def _remember(self, name: bytes, keys: list[bytes]) -> None:
        self._answer_bytes += sum(map(len, keys)) - sum(map(len, self._answers.get(name, ())))
        self._answers[name] = keys
        self._answers.move_to_end(name)
        # The newest entry is never removed: the request needs it next.
        while len(self._answers) > 1 and (
            len(self._answers) > REMEMBERED_ANSWERS or self._answer_bytes > REMEMBERED_BYTES
        ):
            self._answer_bytes -= sum(map(len, self._answers.popitem(last=False)[1]))

    def _block(self, argv: list[bytes], session: Session, slot: int, address: str) -> Outcome:
        # A task of its own: even if the client leaves, the slot is held until the server is done.
        self._router.loop.hold_slot(slot)
        task = asyncio.get_running_loop().create_task(
            self._ask_alone(argv, address, session.database, session.protocol)
        )
        self._running.add(task)
        task.add_done_callback(partial(self._over, slot))
        return Waiting(self._reply_of(task))

    def _over(self, slot: int, task: "asyncio.Task[bytes]") -> None:
        # drained: a connection that was closed with a reply owed is settled at the server before a lock holds.
        self._running.discard(task)
        self._router.loop.release_slot(slot)

    async def _ask_alone(self, argv: list[bytes], address: str, database: int, protocol: int) -> bytes:
        """Send a request over a connection of its own, and wait without a limit."""
        connection: OwnConnection | None = None
        try:
            connection = await self._own.take(address, database, protocol)
            return await connection.ask(command(tuple(argv)), math.inf)
        except OwnConnectionError as error:
            return error.reply
        finally:
            if connection is not None:
                self._own.give_back(connection)

    async def _reply_of(self, task: "asyncio.Task[bytes]") -> bytes:
        """The reply. If the client leaves before it comes, the connection is closed."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            raise


def _digest(argv: list[bytes]) -> bytes:
    """A short name for a request."""
    found = hashlib.blake2b(digest_size=16)
    for argument in argv:
        found.update(b"%d:" % len(argument))
        found.update(argument)
    return found.digest()
