"""The command table: the properties of each command of Redis 7, the places of its keys, and its treatment by the proxy.

The rows are in ``commands.tsv`` beside this file. The columns ``name`` to ``flags`` are what a Redis server reports
(``scripts/command-table`` reads them); ``route``, ``keys``, ``source`` and ``reason`` are written by hand. Every
command has a row, even a command that is not served. If the proxy does not know a command's keys, the command could
reach a server that does not own them (**one-owner**). So a command without a row is refused as unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
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


MAY_WRITE = frozenset({"EVAL", "EVALSHA", "FCALL", "PUBLISH", "SCRIPT|FLUSH", "SPUBLISH"})
"""Commands without the flag ``write`` that a read-only user may not run: a script may write."""


CURSORS = frozenset({"HSCAN", "SSCAN", "ZSCAN"})
"""Reads whose reply is only valid at the server that gave it: another server has the same elements in another order."""


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
    one of its keys, neither at once nor with the last element.
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

    @property
    def writes(self) -> bool:
        """Whether the command may change a key, or do something else that others notice."""
        return "write" in self.flags or self.name in MAY_WRITE

    @property
    def takes_away(self) -> bool:
        """Whether the command may remove a key that it names; true where that is not known."""
        return not self.keeps and "readonly" not in self.flags

    @property
    def from_replica(self) -> bool:
        """Whether the command changes nothing and means the same at every server of its group."""
        return "readonly" in self.flags and self.name not in CURSORS


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
        )
        for row in rows
    }


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
