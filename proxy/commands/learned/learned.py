"""Commands that the proxy learned from servers: those of modules, and of versions newer than the command table.

Most of them are routed by their keys like any other. This module handles the others. Of some, only a server can find
the keys, request by request. Others may keep their connection waiting: from outside, it is not known how long, and they
cannot be ended with a certain outcome. So such a command has a connection of its own without a limit. **drained** waits
for its reply: its slot is not handed over before.
"""

import math

import hiredis

from proxy.commands import replies
from proxy.commands.family import Family
from proxy.commands.learned.learning import Learning
from proxy.commands.services import Services
from proxy.commands.tracking import reads
from proxy.engine.backend import command
from proxy.engine.outcomes import GATED, IN_TRANSACTION, Outcome, nothing_owed
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers.everywhere import ask
from proxy.servers.owncommand import OwnCommand
from proxy.servers.ownconnections import OwnConnectionError
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
        if session.tracker is not None:
            reads.note_keys(session.tracker, row, keys)
        if row.route is not Route.BLOCKING:
            return keys
        # in-order: it uses another connection than the requests before it.
        await nothing_owed()
        try:
            connection, slot = await self._own.take_for(session, keys)
        except OwnConnectionError as error:
            return error.reply
        # drained: if the client leaves, the connection is closed, and ended by the server before a lock holds.
        with OwnCommand(self._own, self._router.loop, connection, slot) as running:
            return await running.ask(command(tuple(argv)), math.inf)

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
