"""Commands that the proxy learned from servers: those of modules, and of versions newer than the command table.

Most of them are routed by their keys like any other. This module handles the others. Of some, only a server can find
the keys, request by request. Others may keep their connection waiting: from outside, it is not known how long, and they
cannot be ended with a certain outcome. So such a command has a connection of its own without a limit. **drained** waits
for its reply: its slot is not handed over before.
"""

import asyncio
import math
from functools import partial

import hiredis

from proxy.commands import replies
from proxy.commands.family import Family
from proxy.commands.learned.learning import Learning
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import GATED, IN_TRANSACTION, Outcome, clear, nothing_owed
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers.everywhere import ask
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from slots import commands, learned
from slots.commands import Command, Route, UnknownCommandError
from slots.table import SlotTable


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

    def may_know_later(self, session: Session, argv: list[bytes]) -> bool:
        """Whether servers should be asked for an unknown command."""
        # Clients try the subcommands of the newest servers whenever they connect; servers are not asked about those.
        subcommand = argv[0].decode("ascii", "replace").upper() in self._learning.commands
        return not subcommand and not session.attention & (GATED | IN_TRANSACTION) and self._learning.may_help()

    async def ask_for(self, argv: list[bytes]) -> bytes | None:
        """Ask servers for an unknown command. Gives the error if they do not know it either."""
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
                return None
            else:
                return None
        return replies.error(unknown) if unknown else None

    # -- running -------------------------------------------------------------------------------------------

    async def run(self, session: Session, row: Command, argv: list[bytes]) -> Outcome:
        """A command with keys that was learned.

        Raises:
            KeysError: the arguments are inconsistent.
        """
        keys = await self._ask_keys(row, argv) if row.keys == learned.ASKED else commands.keys_of(row, argv)
        if isinstance(keys, bytes):
            return keys
        if not keys:
            # The same holds for every learned command without keys.
            return replies.error(f"ERR {row.name.replace('|', ' ')} is refused by Slotferry: {learned.WITHOUT_KEYS}")
        if row.route is not Route.BLOCKING:
            return keys
        # in-order: it uses another connection than the requests before it.
        await nothing_owed()
        slot, address = await clear(keys)
        # A task of its own: even if the client leaves, the slot is held until the server is done.
        self._router.loop.hold_slot(slot)
        task = asyncio.get_running_loop().create_task(
            self._ask_alone(argv, address, session.database, session.protocol)
        )
        self._running.add(task)
        task.add_done_callback(partial(self._over, slot))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The client has left, so the connection is closed.
            task.cancel()
            raise

    async def _ask_keys(self, row: Command, argv: list[bytes]) -> list[bytes] | bytes:
        """Ask a server which arguments are keys; give them, or the error."""
        address = self._learning.source(row.name.partition("|")[0]) or self._router.any_address()
        if address is None:
            return NO_SERVER
        reply = await ask(self._router.shared_backend(address), command(("COMMAND", "GETKEYS", *argv)))
        if reply.startswith(b"-"):
            return reply
        parser = hiredis.Reader()
        parser.feed(reply)
        keys: list[bytes] = parser.gets()
        return keys

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
