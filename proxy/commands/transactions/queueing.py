"""The commands between MULTI and EXEC: which are allowed, and how they are kept until EXEC.

EXEC runs at the one server that owns the slot of the transaction's keys. A command that the proxy itself or every
server has to run cannot be part of it. It is refused when it is sent, which spoils the transaction as in Redis. Redis
queues some commands and answers them with an error within EXEC's reply. The same happens here: the error takes their
place.

SELECT may be part of a transaction. All sessions of a database share a connection, and that connection has to be in the
same database when EXEC is over. So if a transaction ends in another database, a last SELECT leads back to the first
one. With EXEC all commands are run or none, so that SELECT always runs.

**bounded**: a transaction takes at most ``session_max_request_bytes``, including the cost of keeping it.
"""

from collections.abc import Callable, Sequence

from proxy.commands.blocking import streamreads
from proxy.commands.databases import databases
from proxy.commands.databases.databases import DatabaseError
from proxy.engine.backend import command as make_request
from proxy.engine.framing import EXEC, MULTI
from proxy.engine.multi import COMMAND_COST, KEY_COST
from proxy.engine.refusals import crossslot
from proxy.servers.everywhere import words
from slots import commands, sorting
from slots.commands import Code, Command, KeysError, Multi, Route
from slots.keys import KeysRefused
from slots.prefixes import NAMING
from slots.reserved import REFUSAL, RESERVED

DIGEST_LENGTH = 40
"""The form of a script's SHA1 in EVALSHA."""
NOT_ALLOWED = "ERR Command not allowed inside a transaction"
GIVE_ERROR = "return redis.error_reply(ARGV[1])"

Refusal = Callable[[int], bytes | None]
"""The error for a database that the client may not use; None if it may."""
Place = tuple[int, bytes]
"""A database, and a key in it."""


class QueueError(ValueError):
    """A command cannot be part of the transaction. The message is the error reply to give, with its code."""


class Transaction:
    """The commands since MULTI.

    Args:
        ruling: the router's count of the slot rules by which it begins.
        watched: the slot that all keys must have, and a key that has it; None if the first key decides.
        limit: the most bytes it may take.
        slot_of: gives the slot of a key of a database.
        slot_of_pattern: gives the slot of all keys of a pattern of SORT, in a database; -1 if they may have several.
        database: the database that it begins in.
        databases: how many there are.
        refusal: gives the error for a database that the client may not use.
    """

    __slots__ = (
        "_databases",
        "_first",
        "_limit",
        "_payload",
        "_refusal",
        "_size",
        "_slot_of",
        "_slot_of_pattern",
        "channel",
        "count",
        "database",
        "elsewhere",
        "home",
        "keys",
        "named",
        "patterns",
        "ruling",
        "scripts",
        "selects",
        "slot",
        "spoiled",
    )

    def __init__(
        self,
        ruling: int,
        watched: tuple[int, bytes] | None,
        limit: int,
        slot_of: Callable[[int, bytes], int],
        slot_of_pattern: Callable[[int, bytes], int],
        database: int = 0,
        databases: int = 1,
        refusal: Refusal = lambda database: None,
    ) -> None:
        self.ruling = ruling
        self.slot = watched[0] if watched is not None else None
        self._first = watched[1] if watched is not None else b""
        self.count = 0
        """Commands."""
        self.keys: dict[bytes, None] = {}
        """Every key that is named in the first database, once."""
        self.elsewhere: dict[tuple[int, bytes], None] = {}
        """Every key that is named in another database, with that database, once."""
        self.home = database
        """The database that it began in, and that its connection is in."""
        self.database = database
        """The database that it has reached."""
        self.selects = False
        """Whether a command changes the database."""
        self.named: dict[int, str] = {}
        """The commands whose replies name keys, by their places."""
        self.patterns = False
        """Whether the patterns of a SORT name keys."""
        self.channel: bytes | None = None
        """The first channel that it publishes to."""
        self.scripts: list[tuple[Code, list[bytes]]] = []
        """The requests that run or bring code."""
        self.spoiled = False
        """Whether a command was refused, so that EXEC will be refused, too."""
        self._payload = bytearray(MULTI)
        self._size = 0
        self._limit = limit
        self._slot_of = slot_of
        self._slot_of_pattern = slot_of_pattern
        self._databases = databases
        self._refusal = refusal

    def add(self, command: Command, argv: Sequence[bytes]) -> None:
        """Keep a command for EXEC.

        Raises:
            QueueError: it cannot be part of the transaction, which is spoilt then.
        """
        try:
            request, keys = self._admit(command, argv)
        except QueueError:
            self.spoil()
            raise
        if self.spoiled:
            # As in Redis, the client sees it as queued.
            return
        self._payload += request
        if command.name in NAMING:
            self.named[self.count] = command.name
        self.count += 1
        for database, key in keys:
            if database == self.home:
                self.keys[key] = None
            else:
                self.elsewhere[database, key] = None
        if self.channel is None and command.multi is Multi.CHANNEL:
            self.channel = argv[1]
        if command.code and _is_looked_at(command, argv):
            self.scripts.append((command.code, list(argv)))

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return self._size

    @property
    def uses_other_databases(self) -> bool:
        """Whether it does something in another database than its first one."""
        return self.selects or bool(self.elsewhere)

    @property
    def queued(self) -> int:
        """The number of commands that are sent."""
        return self.count + self.returns

    @property
    def returns(self) -> bool:
        """Whether the last command is a SELECT that leads back to the first database."""
        return self.database != self.home

    def _admit(self, command: Command, argv: Sequence[bytes]) -> tuple[bytes, list[Place]]:
        """The request to send for a command, and the keys that the command names."""
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
        """The keys of a command, each with its database."""
        keys = [(self.database, key) for key in _keys_of(command, argv)]
        if command.name in ("COPY", "MOVE"):
            database = databases.target(argv, self._databases)
            if database is not None:
                self._check_permission(database)
                keys.append((database, keys[-1][1]))
        if command.name in ("SORT", "SORT_RO"):
            for option, pattern in sorting.patterns(argv):
                if self._slot_of_pattern(self.database, pattern) != self._slot_of(self.database, argv[1]):
                    raise KeysRefused(sorting.denial(option))
                self.patterns = True
        return keys

    def _check_slot(self, keys: list[Place]) -> None:
        slot, first = self.slot, self._first
        for database, key in keys:
            if key.startswith(RESERVED):
                raise QueueError(REFUSAL)
            if slot is None:
                slot, first = self._slot_of(database, key), key
            elif (other := self._slot_of(database, key)) != slot:
                raise QueueError(words(crossslot(first, slot, key, other)))
        self.slot, self._first = slot, first

    def _check_size(self, command: Command, request: bytes, keys: list[Place]) -> None:
        # bounded: a script's arguments are kept a second time.
        copies = 2 if command.code else 1
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
        """A command was refused, so the kept commands are dropped."""
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
    if command.multi is Multi.ANYWHERE or command.name == "SELECT":
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
    """Whether Redis may find another error first: it looks for a function, and refuses an invalid SHA1, before it
    counts keys.

    Then the server gives the right error.
    """
    if command.code is Code.DIGEST:
        return len(argv[1]) != DIGEST_LENGTH
    return command.code is Code.FUNCTION


def _is_looked_at(command: Command, argv: Sequence[bytes]) -> bool:
    """Whether Redis gets as far as the script of a command: a command with too many keys leaves no script behind."""
    if command.code is Code.FUNCTION:
        return True
    try:
        _keys_of(command, argv)
    except KeysError:
        return False
    return True


def _fails_anyway(command: Command) -> bool:
    """Whether Redis itself refuses the command when it runs."""
    return command.route is Route.REFUSED and command.reason.startswith("ERR ")


def _keys_of(command: Command, argv: Sequence[bytes]) -> list[bytes]:
    if _fails_anyway(command):
        raise KeysError(command.reason)
    if command.multi is Multi.CHANNEL or command.route in (Route.LOCAL, Route.SPREAD, Route.ANY):
        return []
    if command.name in ("XREAD", "XREADGROUP"):
        # Read in Redis's order, so that the same error comes first.
        return [argv[place] for place in streamreads.parse(argv).keys]
    return commands.keys_of(command, argv)
