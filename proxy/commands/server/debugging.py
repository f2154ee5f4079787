"""DEBUG subcommands for the proxy or for one key. They need the setting ``debug_commands``."""

import asyncio
import math
import re
from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.family import Decided, Family, Handler
from proxy.commands.services import Services
from proxy.engine.session import Session

NOT_ALLOWED = (
    b"-ERR DEBUG command not allowed. Set debug_commands in the settings of the proxy to allow DEBUG SLEEP and the"
    b" subcommands about keys.\r\n"
)
LONGEST_SLEEP_SECONDS = 3600.0
"""bounded: a client that asks for more sleeps this long."""

OF_KEYS: dict[bytes, Callable[[list[bytes]], list[bytes]]] = {
    b"OBJECT": lambda argv: argv[2:3],
    b"LISTPACK": lambda argv: argv[2:3],
    b"QUICKLIST": lambda argv: argv[2:3],
    b"SDSLEN": lambda argv: argv[2:3],
    b"HTSTATS-KEY": lambda argv: argv[2:3],
    b"DIGEST-VALUE": lambda argv: argv[2:],
}
"""The subcommands that concern keys, with the places of the keys."""
NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")


class DebugCommand(Family):
    """The family's handler.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._allowed = services.settings.debug_commands

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"DEBUG": self.debug}

    def debug(self, session: Session, argv: list[bytes]) -> Decided:
        """DEBUG SLEEP seconds | OBJECT key | ..."""
        if not self._allowed:
            return NOT_ALLOWED
        subcommand = argv[1].upper()
        if subcommand == b"SLEEP" and len(argv) == 3:
            return _sleep(_seconds(argv[2]))
        keys = OF_KEYS[subcommand](argv) if subcommand in OF_KEYS else []
        if keys:
            return keys
        shown = argv[1].decode(errors="replace")[:128]
        return replies.error(
            f"ERR DEBUG {shown} is refused by Slotferry: it is about one server of many; ask the server itself"
        )


def _seconds(text: bytes) -> float:
    """The seconds as Redis reads them: 0 for anything that is not a number."""
    return float(text) if NUMBER.fullmatch(text) else 0.0


async def _sleep(seconds: float) -> bytes:
    """Sleep; only this client waits."""
    await asyncio.sleep(min(max(seconds, 0.0), LONGEST_SLEEP_SECONDS) if math.isfinite(seconds) else 0.0)
    return replies.OK
