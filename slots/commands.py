"""The command table: the properties of each command of Redis 7, the places of its keys, and its treatment by the proxy.

The rows are in ``commands.tsv`` beside this file. The columns ``name`` to ``categories`` are what a Redis server
reports (``scripts/command-table`` reads them); the others are written by hand. :class:`Command` says what they mean. A
new command of Redis is one row. Every command has a row, even a command that is not served. If the proxy does not know
a command's keys, the command could reach a server that does not own them (**one-owner**). So a command without a row is
refused as unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources

from slots.keys import KeysError as KeysError
from slots.keys import positions


class Route(StrEnum):
    """How the proxy treats a command."""

    KEYED = "keyed"
    """Sent to the owner of its keys, which must share a slot and stand at fixed places."""
    MOVABLE = "movable"
    """As keyed, but the arguments tell where the keys are. XREAD and XREADGROUP are so without BLOCK only."""
    SPLIT = "split"
    """Sent in parts to the owners of its keys; the replies are put together again."""
    LOCAL = "local"
    """The proxy answers."""
    SPREAD = "spread"
    """Asked of, or done at, every server."""
    ANY = "any"
    """Any server answers as well as another."""
    BLOCKING = "blocking"
    """Waits at the owner of its keys, on a connection of the session's own."""
    REFUSED = "refused"
    """Refused, because it means something at one server only. ``reason`` says what to do instead, or is Redis's whole
    error."""


class CommandError(ValueError):
    """A request names no command, or has too few or too many arguments. The message is the error reply to give."""


class UnknownCommandError(CommandError):
    """The table has no such command or subcommand."""


class Multi(StrEnum):
    """What becomes of a command between MULTI and EXEC, beyond what its route says."""

    QUEUED = ""
    """It is queued, if it is for the owner of its keys."""
    NOW = "now"
    """It is not queued."""
    ANYWHERE = "anywhere"
    """It is queued; any one server can run it, though otherwise it is not for one server."""
    CHANNEL = "channel"
    """It is queued; its channel decides where the transaction goes, but only if no key does."""


class Right(StrEnum):
    """What counts when it is decided who may use a command, beyond its flags."""

    LOGIN = "login"
    """It may be used before the login."""
    SUBSCRIBED = "subscribed"
    """A RESP2 session may still use it once it has a subscription."""
    WRITES = "writes"
    """It does not have the flag ``write``, and a read-only user may not use it all the same: a script may write."""
    DATABASE = "database"
    """It has no keys, and concerns those of the session's database."""
    DATABASES = "databases"
    """It is not for users limited to some databases: a script may SELECT another one, and scripts and functions are
    shared by all."""
    ADMIN = "admin"
    """It is for administrators only, as commands with the flag ``admin``: it ends what other clients run."""


class Code(StrEnum):
    """Which code a command runs or brings."""

    NONE = ""
    TEXT = "text"
    """It runs the script that it brings."""
    DIGEST = "digest"
    """It runs the script that it names."""
    FUNCTION = "function"
    """It calls a function."""
    LOAD = "load"
    """It brings a script, and does not run it."""


CodeRequests = Sequence[tuple[Code, list[bytes]]]
"""Requests that run or bring code, each with its kind."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """Where the timeout of a command stands among its arguments, counted from the end if negative; and its unit."""

    place: int
    milliseconds: bool


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table.

    ``name`` is upper case, a subcommand's is ``OBJECT|ENCODING``. ``arity`` counts the name (and the subcommand);
    negative means at least as many. ``first``, ``last`` and ``step`` are the places of the keys with the name at 0, a
    negative ``last`` counted from the end; all are 0 when there are no keys, or when ``keys`` finds them. ``keys`` is a
    rule of :mod:`slots.keys`; where it is set, it alone counts. ``reason`` ends the sentence of a refusal.
    ``container`` is set for a command that has subcommands: look at those first, as :func:`find` does. ``learned`` rows
    come from a server (:mod:`slots.learned`). ``at_source`` says that the command may run at the source of a moving
    slot while its keys are there (**absent-first**). Such a command looks at nothing but its named keys, changes no
    stored data, waits for nothing, and runs no code of a client. ``keeps`` says that a writing command never removes
    one of its keys, neither at once nor with the last element. These two are the column ``source``. ``replica`` says
    that a read means the same at every server of its group. It is ``no`` for a cursor, which is valid only at the
    server that gave it: another server has the same elements in another order. ``split`` says how the replies to the
    parts of a split command are put together: their ``elements``, one ``status``, or the ``sum``. For a command of
    another route it says what the proxy does where the keys are of several slots: ``computed`` if it reads each key and
    computes the reply, ``stored`` if it writes what it computes to the first key, ``joined`` if it joins the replies
    about each, ``first`` if it takes from the first key that has something. ``categories`` are those of Redis's ACL.
    ``access`` says what the command does with the values of its keys, see :mod:`slots.keyaccess`; it is empty if there
    are no keys.
    """

    name: str
    arity: int
    first: int
    last: int
    step: int
    flags: frozenset[str]
    route: Route
    keys: str = ""
    reason: str = ""
    container: bool = False
    learned: bool = False
    at_source: bool = False
    keeps: bool = False
    replica: bool = True
    multi: Multi = Multi.QUEUED
    rights: frozenset[Right] = frozenset()
    code: Code = Code.NONE
    timeout: Timeout | None = None
    split: str = ""
    categories: frozenset[str] = frozenset()
    access: str = ""

    @property
    def writes(self) -> bool:
        """Whether the command may change a key, or do something else that others notice."""
        return "write" in self.flags or Right.WRITES in self.rights

    @property
    def apart(self) -> bool:
        """Whether its keys are of one slot as a rule, and the proxy has a way if they are of several."""
        return self.route is not Route.SPLIT and self.split != ""

    @property
    def computed(self) -> bool:
        """Whether the proxy computes the reply if the keys are of several slots."""
        return self.split == "computed"

    @property
    def stored(self) -> bool:
        """Whether the proxy computes what the first key gets if the keys are of several slots."""
        return self.split == "stored"

    @property
    def takes_away(self) -> bool:
        """Whether the command may remove a key that it names; true where that is not known."""
        return not self.keeps and "readonly" not in self.flags

    @property
    def from_replica(self) -> bool:
        """Whether the command changes nothing and means the same at every server of its group."""
        return "readonly" in self.flags and self.replica


@cache
def table() -> dict[str, Command]:
    """All commands by name. The dictionary is shared: do not change it."""
    text = resources.files("slots").joinpath("commands.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    containers = {row["name"].partition("|")[0] for row in rows if "|" in row["name"]}
    return {
        row["name"]: Command(
            name=row["name"],
            arity=int(row["arity"]),
            first=int(row["first"]),
            last=int(row["last"]),
            step=int(row["step"]),
            flags=frozenset(filter(None, row["flags"].split(","))),
            route=Route(row["route"]),
            keys=row["keys"],
            reason=row["reason"],
            at_source=row["source"] == "reads",
            keeps=row["source"] == "keeps",
            container=row["name"] in containers,
            replica=row["replica"] != "no",
            multi=Multi(row["multi"]),
            rights=frozenset(map(Right, filter(None, row["rights"].split(",")))),
            code=Code(row["code"]),
            timeout=_timeout(row["timeout"]),
            split=row["split"],
            categories=categories(row["flags"].split(","), filter(None, row["categories"].split(","))),
            access=row["access"],
        )
        for row in rows
    }


def categories(flags: Collection[str], declared: Iterable[str]) -> frozenset[str]:
    """The ACL categories of a command: those that it declares, and those that follow from its flags."""
    found = set(declared) | {flag for flag in ("write", "admin", "pubsub", "fast", "blocking") if flag in flags}
    if "admin" in flags:
        found.add("dangerous")
    if "readonly" in flags and "scripting" not in found:
        found.add("read")
    return frozenset(found if "fast" in found else found | {"slow"})


def _timeout(text: str) -> Timeout | None:
    place, _, unit = text.partition(" ")
    return Timeout(int(place), {"s": False, "ms": True}[unit]) if text else None


def find(argv: Sequence[bytes], known: Mapping[str, Command] | None = None) -> Command:
    """The row of a request, in :func:`table` or in ``known``. Where it has a subcommand, that has a row of its own.

    Raises:
        UnknownCommandError: for an unknown command or subcommand.
        CommandError: for a wrong number of arguments. Both in Redis's own words.
    """
    commands = known if known is not None else table()
    # A subcommand's row has a name that no client may say as one word.
    command = commands.get(_upper(argv[0])) if b"|" not in argv[0] else None
    if command is None:
        shown = ""
        for argument in argv[1:]:
            if len(shown) >= 128:
                break
            shown += f"'{_shown(argument, 128 - len(shown))}' "
        raise UnknownCommandError(f"ERR unknown command '{_shown(argv[0], 128)}', with args beginning with: {shown}")
    if command.container and len(argv) > 1:
        subcommand = commands.get(f"{command.name}|{_upper(argv[1])}")
        if subcommand is None:
            raise UnknownCommandError(f"ERR unknown subcommand '{_shown(argv[1], 128)}'. Try {command.name} HELP.")
        command = subcommand
    if (len(argv) != command.arity) if command.arity >= 0 else (len(argv) < -command.arity):
        raise CommandError(_wrong_number(command))
    return command


def key_positions(command: Command, argv: Sequence[bytes]) -> list[int]:
    """Places in ``argv`` of the command's keys; none for a command without keys.

    Raises:
        KeysError: the arguments are inconsistent. The message is Redis's own error.
    """
    if (len(argv) != command.arity) if command.arity >= 0 else (len(argv) < -command.arity):
        raise KeysError(_wrong_number(command))
    if command.keys:
        return positions(command.keys, argv)
    if not command.first:
        return []
    last = command.last if command.last >= 0 else len(argv) + command.last
    # The keys of MSET have values between them, the last one too.
    if last >= len(argv) or (command.last == -1 and (len(argv) - command.first) % command.step):
        raise KeysError(_wrong_number(command))
    return list(range(command.first, last + 1, command.step))


def keys_of(command: Command, argv: Sequence[bytes]) -> list[bytes]:
    """The keys a request names, in their order, each as often as it is named. Raises as :func:`key_positions`."""
    return [argv[position] for position in key_positions(command, argv)]


def refusal(command: Command) -> str:
    """The error reply for a command that is refused, with its code."""
    if command.reason.startswith("ERR "):
        return command.reason
    return f"ERR {command.name.replace('|', ' ')} is refused by Slotferry: {command.reason}"


def _wrong_number(command: Command) -> str:
    return f"ERR wrong number of arguments for '{command.name.lower()}' command"


def _upper(name: bytes) -> str:
    return name.decode("ascii", "replace").upper()


def _shown(text: bytes, limit: int) -> str:
    """At most ``limit`` bytes of what a client sent, fit for an error reply, which is one line.

    Redis takes the argument for a C string and shows its bytes unchanged. Bytes that are not UTF-8 are escaped as
    surrogates.
    """
    shown = text.partition(b"\0")[0][:limit].decode("utf-8", "surrogateescape")
    return shown.replace("\r", " ").replace("\n", " ")
