"""What may stand between MULTI and EXEC, and what is kept of it until EXEC.

EXEC runs at the one server that owns the slot of the transaction's keys. What is for the proxy itself to do, or for
every server, cannot be part of that and is refused when it is sent, which spoils the transaction as in Redis. What
Redis would take in and answer with an error within EXEC's reply gets just that: the error stands in its place.

SELECT may be part of it. All sessions of a database share a connection, and it is in no other one when EXEC is over:
the last command of a transaction that ends elsewhere is a SELECT of the database that it began in. With EXEC all
commands are run or none, so that one is not left out.

**bounded**: a transaction takes no more than ``session_max_request_bytes``, what it costs to keep it included.
"""

from collections.abc import Callable, Sequence

from proxy.engine.backend import command as make_request
from proxy.slowpath import databases, streamreads
from proxy.slowpath.databases import DatabaseError
from slots import commands, sorting
from slots.commands import Command, KeysError, Route
from slots.keys import KeysRefused
from slots.reserved import REFUSAL, RESERVED

MULTI = make_request(("MULTI",))
EXEC = make_request(("EXEC",))

AT_ANY_SERVER = frozenset({"ECHO", "PING", "SCRIPT|LOAD", "TIME", "UNWATCH", "WAIT", "WAITAOF"})
"""Commands that the proxy answers or spreads otherwise, and that one server can do as well within a transaction."""
CHANNEL = frozenset({"PUBLISH", "SPUBLISH"})
"""Their argument is routed by as if it were a key, but every server will do."""
SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO", "SCRIPT|LOAD"})
"""What the families of scripts and functions have to see before it runs."""

DIGEST_LENGTH = 40
"""Of a script's SHA1, as EVALSHA takes it."""
COMMAND_COST = 160
"""Bytes that keeping a command costs beyond its own: its replies have to be waited for and counted."""
KEY_COST = 128

NOT_ALLOWED = "ERR Command not allowed inside a transaction"
CROSSSLOT = "CROSSSLOT Keys in request don't hash to the same slot"
GIVE_ERROR = "return redis.error_reply(ARGV[1])"

Refusal = Callable[[int], bytes | None]
"""The error for a database that the client may not use; None if it may."""
Place = tuple[int, bytes]
"""A database, and a key in it."""


class QueueError(ValueError):
    """A command cannot be part of the transaction. The message is the error reply to give, with its code."""


class Transaction:
    """What stands between MULTI and EXEC, so far.

    Args:
        slot: the slot that all keys have to be of; None where the first key decides.
        limit: the most bytes it may take.
        slot_of: gives the slot of a key.
        database: the one that it begins in.
        databases: how many there are.
        refusal: which of them the client may not use.
    """

    __slots__ = (
        "_databases",
        "_limit",
        "_payload",
        "_refusal",
        "_size",
        "_slot_of",
        "channel",
        "count",
        "database",
        "elsewhere",
        "executing",
        "executing_at",
        "home",
        "keys",
        "patterns",
        "scripts",
        "scripts_known",
        "selects",
        "slot",
        "spoiled",
    )

    def __init__(
        self,
        slot: int | None,
        limit: int,
        slot_of: Callable[[bytes], int],
        database: int = 0,
        databases: int = 1,
        refusal: Refusal = lambda database: None,
    ) -> None:
        self.slot = slot
        self.count = 0
        """Commands."""
        self.keys: dict[bytes, None] = {}
        """Every key that is named in the database it began in, once."""
        self.elsewhere: dict[tuple[int, bytes], None] = {}
        """Every key that is named in another database, with that, once."""
        self.home = database
        """The database that it began in, and that its connection is in."""
        self.database = database
        """The database that it has come to."""
        self.selects = False
        """Whether a command changes the database."""
        self.patterns = False
        """Whether keys are named by the patterns of a SORT."""
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
        self.executing_at = 0
        """How many requests the session had taken before that EXEC."""
        self._payload = bytearray(MULTI)
        self._size = 0
        self._limit = limit
        self._slot_of = slot_of
        self._databases = databases
        self._refusal = refusal

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
        for database, key in keys:
            if database == self.home:
                self.keys[key] = None
            else:
                self.elsewhere[database, key] = None
        if self.channel is None and command.name in CHANNEL:
            self.channel = argv[1]
        if command.name in SCRIPTS and _is_looked_at(command, argv):
            self.scripts.append(list(argv))

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self._size

    @property
    def crosses(self) -> bool:
        """Whether it does something in another database than the one it began in."""
        return self.selects or bool(self.elsewhere)

    @property
    def queued(self) -> int:
        """Commands that are sent."""
        return self.count + self.returns

    @property
    def returns(self) -> bool:
        """Whether the last command sent is one that leads back to the database it began in."""
        return self.database != self.home

    def _admit(self, command: Command, argv: Sequence[bytes]) -> tuple[bytes, list[Place]]:
        """The request to send for a command, and the keys that it names."""
        refused = refusal(command)
        if refused is not None:
            raise QueueError(refused)
        keys: list[Place] = []
        try:
            request = make_request(tuple(argv))
            if command.name == "SELECT":
                self._select(argv)
            else:
                keys = self._places_of(command, argv)
        except KeysRefused as error:
            raise QueueError(str(error)) from error
        except (DatabaseError, KeysError) as error:
            if not _counts_keys_later(command, argv):
                request = make_request(("EVAL", GIVE_ERROR, 0, str(error)))
        if not self.spoiled:
            self._check_slot(keys)
            self._check_size(command, request, keys)
        return request, keys

    def _select(self, argv: Sequence[bytes]) -> None:
        database = databases.index(argv[1], self._databases)
        self._check_permission(database)
        self.database = database
        self.selects = self.selects or self.returns

    def _check_permission(self, database: int) -> None:
        refused = self._refusal(database)
        if refused is not None:
            raise QueueError(refused[1:].decode().rstrip())

    def _places_of(self, command: Command, argv: Sequence[bytes]) -> list[Place]:
        """The keys of a command, each with the database that it is in."""
        keys = [(self.database, key) for key in _keys_of(command, argv)]
        if command.name in ("COPY", "MOVE"):
            database = databases.target(argv, self._databases)
            if database is not None:
                self._check_permission(database)
                keys.append((database, keys[-1][1]))
        if command.name in ("SORT", "SORT_RO"):
            for option, pattern in sorting.patterns(argv):
                if self._slot_of(pattern) != self._slot_of(argv[1]):
                    raise KeysRefused(sorting.denial(option))
                self.patterns = True
        return keys

    def _check_slot(self, keys: list[Place]) -> None:
        slot = self.slot
        for _, key in keys:
            if key.startswith(RESERVED):
                raise QueueError(REFUSAL)
            if slot is None:
                slot = self._slot_of(key)
            elif self._slot_of(key) != slot:
                raise QueueError(CROSSSLOT)
        self.slot = slot

    def _check_size(self, command: Command, request: bytes, keys: list[Place]) -> None:
        # bounded: a script's arguments are kept a second time.
        copies = 2 if command.name in SCRIPTS else 1
        self._size += len(request) * copies + COMMAND_COST
        self._size += sum(
            len(key) + KEY_COST
            for database, key in keys
            if (database, key) not in self.elsewhere and (database != self.home or key not in self.keys)
        )
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
        self.elsewhere = {}
        self.scripts = []

    def payload(self) -> bytes:
        """MULTI, the commands and EXEC, in one piece."""
        back = make_request(("SELECT", self.home)) if self.returns else b""
        return b"".join((self._payload, back, EXEC))


def refusal(command: Command) -> str | None:
    """The error for a command that may not stand in a transaction; None for one that may."""
    if "no_multi" in command.flags:
        return NOT_ALLOWED
    name = command.name.replace("|", " ")
    if command.name in AT_ANY_SERVER or command.name == "SELECT":
        return None
    match command.route:
        case Route.REFUSED if not _fails_anyway(command):
            return commands.refusal(command)
        case Route.LOCAL:
            return f"ERR {name} is refused by Slotferry within MULTI: it is for the proxy, and EXEC runs at a server"
        case Route.SPREAD:
            return f"ERR {name} is refused by Slotferry within MULTI: it is for every server, and EXEC runs at one"
    return None


def _counts_keys_later(command: Command, argv: Sequence[bytes]) -> bool:
    """Whether Redis may have another error first: it looks for a function, and refuses what is no SHA1, before.

    Then the server has the right error, whichever it is.
    """
    if command.name in ("EVALSHA", "EVALSHA_RO"):
        return len(argv[1]) != DIGEST_LENGTH
    return command.name in ("FCALL", "FCALL_RO")


def _is_looked_at(command: Command, argv: Sequence[bytes]) -> bool:
    """Whether Redis gets as far as to the script of a command: one with too many keys leaves no script behind."""
    if command.name in ("FCALL", "FCALL_RO"):
        return True
    try:
        _keys_of(command, argv)
    except KeysError:
        return False
    return True


def _fails_anyway(command: Command) -> bool:
    """Whether it is Redis itself that refuses the command, when it is run."""
    return command.route is Route.REFUSED and command.reason.startswith("ERR ")


def _keys_of(command: Command, argv: Sequence[bytes]) -> list[bytes]:
    if _fails_anyway(command):
        raise KeysError(command.reason)
    if command.name in CHANNEL or command.route in (Route.LOCAL, Route.SPREAD, Route.ANY):
        return []
    if command.name in ("XREAD", "XREADGROUP"):
        # Read in Redis's order, which tells what is wrong as it does.
        return [argv[place] for place in streamreads.parse(argv).keys]
    return commands.keys_of(command, argv)
