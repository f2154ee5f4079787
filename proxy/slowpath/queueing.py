"""What may stand between MULTI and EXEC, and what is kept of it until EXEC.

EXEC runs at the one server that owns the slot of the transaction's keys. What is for the proxy itself to do, or for
every server, cannot be part of that and is refused when it is sent, which spoils the transaction as in Redis. What
Redis would take in and answer with an error within EXEC's reply gets just that: the error stands in its place.

**bounded**: a transaction takes no more than ``session_max_request_bytes``, what it costs to keep it included.
"""

from collections.abc import Callable, Sequence

from proxy.engine.backend import command as make_request
from slots import commands
from slots.commands import Command, KeysError, Route
from slots.keys import KeysRefused

MULTI = make_request(("MULTI",))
EXEC = make_request(("EXEC",))

AT_ANY_SERVER = frozenset({"ECHO", "PING", "SCRIPT|LOAD", "TIME", "UNWATCH", "WAIT", "WAITAOF"})
"""Commands that the proxy answers or spreads otherwise, and that one server can do as well within a transaction."""
CHANNEL = frozenset({"PUBLISH", "SPUBLISH"})
"""Their argument is routed by as if it were a key, but every server will do."""
SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO", "SCRIPT|LOAD"})
"""What the families of scripts and functions have to see before it runs."""

COMMAND_COST = 160
"""Bytes that keeping a command costs beyond its own: its replies have to be waited for and counted."""
KEY_COST = 128

NOT_ALLOWED = "ERR Command not allowed inside a transaction"
CROSSSLOT = "CROSSSLOT Keys in request don't hash to the same slot"
GIVE_ERROR = "return redis.error_reply(ARGV[1])"


class QueueError(ValueError):
    """A command cannot be part of the transaction. The message is the error reply to give, with its code."""


class Transaction:
    """What stands between MULTI and EXEC, so far.

    Args:
        slot: the slot that all keys have to be of; None where the first key decides.
        limit: the most bytes it may take.
        slot_of: gives the slot of a key.
    """

    __slots__ = (
        "_limit",
        "_payload",
        "_size",
        "_slot_of",
        "channel",
        "count",
        "executing",
        "keys",
        "scripts",
        "scripts_known",
        "slot",
        "spoiled",
    )

    def __init__(self, slot: int | None, limit: int, slot_of: Callable[[bytes], int]) -> None:
        self.slot = slot
        self.count = 0
        """Commands."""
        self.keys: dict[bytes, None] = {}
        """Every key that is named, once."""
        self.channel: bytes | None = None
        """The first channel that is published to."""
        self.scripts: list[list[bytes]] = []
        """The requests that are about scripts."""
        self.scripts_known = False
        """Whether the scripts were asked for by name at the other workers."""
        self.spoiled = False
        """Whether a command was refused, and so EXEC will be."""
        self.executing = False
        """Whether EXEC has been looked at."""
        self._payload = bytearray(MULTI)
        self._size = 0
        self._limit = limit
        self._slot_of = slot_of

    def add(self, command: Command, argv: Sequence[bytes]) -> None:
        """Keep a command for EXEC.

        Raises:
            QueueError: it cannot be part of the transaction, which is spoilt by that.
        """
        try:
            request, keys = self._admit(command, argv)
        except QueueError:
            self.spoil()
            raise
        if self.spoiled:
            # As in Redis: queued as far as the client can see.
            return
        self._payload += request
        self.count += 1
        self.keys |= dict.fromkeys(keys)
        if self.channel is None and command.name in CHANNEL:
            self.channel = argv[1]
        if command.name in SCRIPTS:
            self.scripts.append(list(argv))

    def _admit(self, command: Command, argv: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """The request to send for a command, and the keys that it names."""
        refused = refusal(command)
        if refused is not None:
            raise QueueError(refused)
        try:
            request = make_request(tuple(argv))
            keys = _keys_of(command, argv)
        except KeysRefused as error:
            raise QueueError(str(error)) from error
        except KeysError as error:
            keys = []
            # A function is looked for before its keys are counted: the server has the right error, whichever it is.
            if command.name not in ("FCALL", "FCALL_RO"):
                request = make_request(("EVAL", GIVE_ERROR, 0, str(error)))
        if not self.spoiled:
            self._check_slot(keys)
            self._check_size(command, request, keys)
        return request, keys

    def _check_slot(self, keys: list[bytes]) -> None:
        slot = self.slot
        for key in keys:
            if slot is None:
                slot = self._slot_of(key)
            elif self._slot_of(key) != slot:
                raise QueueError(CROSSSLOT)
        self.slot = slot

    def _check_size(self, command: Command, request: bytes, keys: list[bytes]) -> None:
        # bounded: a script's arguments are kept a second time.
        copies = 2 if command.name in SCRIPTS else 1
        self._size += len(request) * copies + COMMAND_COST
        self._size += sum(len(key) + KEY_COST for key in keys if key not in self.keys)
        if self._size > self._limit:
            raise QueueError(
                f"ERR the transaction takes more than {self._limit} bytes, the proxy's limit"
                " (setting session_max_request_bytes)"
            )

    def spoil(self) -> None:
        """A command was refused. What was kept is of no use any more."""
        self.spoiled = True
        self._payload = bytearray()
        self._size = self.count = 0
        self.keys = {}
        self.scripts = []

    def payload(self) -> bytes:
        """MULTI, the commands and EXEC, in one piece."""
        return b"".join((self._payload, EXEC))


def refusal(command: Command) -> str | None:
    """The error for a command that may not stand in a transaction; None for one that may."""
    if "no_multi" in command.flags:
        return NOT_ALLOWED
    name = command.name.replace("|", " ")
    if command.name in AT_ANY_SERVER:
        return None
    match command.route:
        case Route.REFUSED if not _fails_anyway(command):
            return commands.refusal(command)
        case Route.LOCAL:
            return f"ERR {name} is refused by Slotferry within MULTI: it is for the proxy, and EXEC runs at a server"
        case Route.SPREAD:
            return f"ERR {name} is refused by Slotferry within MULTI: it is for every server, and EXEC runs at one"
    return None


def _fails_anyway(command: Command) -> bool:
    """Whether it is Redis itself that refuses the command, when it is run."""
    return command.route is Route.REFUSED and command.reason.startswith("ERR ")


def _keys_of(command: Command, argv: Sequence[bytes]) -> list[bytes]:
    if _fails_anyway(command):
        raise KeysError(command.reason)
    if command.name in CHANNEL or command.route in (Route.LOCAL, Route.SPREAD, Route.ANY):
        return []
    return commands.keys_of(command, argv)
