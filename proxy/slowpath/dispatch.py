"""The slow path's front door: which family answers a command, or by which keys it is routed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.engine.session import ANY_SERVER, Session
from proxy.slowpath import replies
from proxy.slowpath.connection import ConnectionCommands
from proxy.slowpath.server import ServerCommands
from slots import commands
from slots.commands import Command, CommandError, KeysError, Route

Outcome = bytes | list[bytes] | Coroutine[Any, Any, bytes] | object
"""A reply; the keys to route by; a reply later; or ANY_SERVER or QUIT of :mod:`proxy.engine.session`."""
Handler = Callable[[Session, list[bytes]], Outcome]

BEFORE_AUTHENTICATION = {"AUTH", "HELLO", "QUIT", "RESET"}


class SlowPath:
    """Decides on every request that the engine does not decide on by itself.

    Args:
        connection, server: the families of commands.
    """

    def __init__(self, connection: ConnectionCommands, server: ServerCommands) -> None:
        self._handlers: dict[str, Handler] = {**connection.handlers(), **server.handlers()}
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, session: Session, argv: list[bytes]) -> Outcome:
        """What to do with a request; called by the engine, in the order of the session's requests."""
        try:
            command = commands.find(argv)
            session.last_command = command.name.lower().encode()
            if session.gated and command.name not in BEFORE_AUTHENTICATION:
                return b"-NOAUTH Authentication required.\r\n"
            if command.route in (Route.KEYED, Route.MOVABLE, Route.SPLIT):
                return self._keys(command, argv)
        except (CommandError, KeysError) as error:
            return replies.error(str(error))
        handler = self._handlers.get(command.name)
        if handler is None or command.route not in (Route.LOCAL,):
            return replies.error(commands.refusal(command))
        return handler(session, argv)

    def _keys(self, command: Command, argv: list[bytes]) -> Outcome:
        if command.name in ("XREAD", "XREADGROUP") and _blocks(argv):
            return replies.error(f"ERR {command.name} with BLOCK is not served by this version of Slotferry")
        keys = commands.keys_of(command, argv)
        # A script without keys may run anywhere: it has promised not to touch any.
        return keys if keys else ANY_SERVER

    def keep(self, task: "asyncio.Task[None]") -> None:
        """Hold on to a task of a reply that comes later, until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _blocks(argv: list[bytes]) -> bool:
    """Whether the options of XREAD or XREADGROUP, which stand before STREAMS, have BLOCK."""
    position = 1
    while position < len(argv):
        word = argv[position].upper()
        if word == b"STREAMS":
            return False
        if word == b"BLOCK":
            return True
        position += {b"COUNT": 2, b"GROUP": 3}.get(word, 1)
    return False
