"""What users may do, in the form for the engine, and in the form of error replies."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from proxy.commands import replies
from proxy.commands.scripting.scriptcalls import ScriptCalls
from proxy.engine.prefix import FIRST, IN_ERROR, NOTHING, STREAMS, Prefix
from proxy.engine.rights import DECIDED, FREE, KEYED, CommandRights
from proxy.users import User
from slots import commands, prefixes
from slots.commands import Code, Command, Route
from slots.keyaccess import most
from slots.rights import CHANNELS, Rights

if TYPE_CHECKING:
    from proxy.engine.statistics import Statistics

SCRIPTS = frozenset({Code.TEXT, Code.DIGEST})
ENGINES_PATTERNS = 64
"""With more patterns of keys, plain Python decides."""


class UserRights:
    """The rights of one worker's users.

    Args:
        statistics: numbers the commands for the engine.
        scripts: knows what scripts call.
    """

    def __init__(self, statistics: "Statistics", scripts: ScriptCalls) -> None:
        self._statistics = statistics
        self._scripts = scripts
        self._engines: dict[tuple[Rights, bool], CommandRights | None] = {}
        self._way_givers: dict[Rights, bytes] = {}
        self._prefixes: dict[bytes, Prefix] = {}

    def forget(self) -> None:
        """There are other users."""
        self._engines.clear()
        self._way_givers.clear()
        self._prefixes.clear()

    def way_givers(self, user: User) -> bytes:
        """Which requests of a user are refused while their server is slow, in the form for the engine."""
        which = user.sheddable
        if which is None:
            return b""
        if which not in self._way_givers:
            found = {number: which.allows(row) for number, row in self._rows().items()}
            others = which.words[0] == "+@all"
            self._way_givers[which] = bytes(
                [others, *(found.get(number, others) for number in range(1, max(found) + 1))]
            )
        return self._way_givers[which]

    def _rows(self) -> dict[int, Command]:
        """Commands that the engine has rows for, by their numbers."""
        return {
            self._statistics.number(name.lower()): row
            for name, row in commands.table().items()
            if "|" not in name or row.route is Route.KEYED
        }

    def engines(self, user: User) -> CommandRights | None:
        """What the engine has to know of a user; None if it may let every request pass."""
        if user.rights.whole:
            return None
        kind = (user.rights, user.proves_scripts)
        if kind not in self._engines:
            self._engines[kind] = self._made(user)
        return self._engines[kind]

    def prefix(self, user: User) -> Prefix | None:
        """What the engine has to know of a user's prefix; None if it has none."""
        if user.prefix and user.prefix not in self._prefixes:
            kinds = dict.fromkeys(prefixes.NAME_FIRST, FIRST) | dict.fromkeys(prefixes.NAME_STREAMS, STREAMS)
            kinds |= dict.fromkeys(prefixes.NAME_IN_ERROR, IN_ERROR)
            naming = {self._statistics.number(name.lower()): kind for name, kind in kinds.items()}
            table = bytes(naming.get(number, NOTHING) for number in range(max(naming) + 1))
            self._prefixes[user.prefix] = Prefix(user.prefix, table, partial(prefixes.changed, user.prefix))
        return self._prefixes.get(user.prefix)

    def _made(self, user: User) -> CommandRights:
        needs = {number: _need(user, row) for number, row in self._rows().items()}
        patterns = [(one.pattern, one.allows) for one in user.rights.keys or ()]
        return CommandRights(bytes(needs.get(number, DECIDED) for number in range(max(needs) + 1)), patterns)

    def refusal(self, user: User, command: Command, argv: Sequence[bytes]) -> bytes | None:
        """The error for a request that a user may not send, whatever its database; None if it may.

        Raises:
            KeysError: its arguments are inconsistent.
        """
        refused = user.refusal(command, argv)
        return replies.error(refused.error) if refused is not None else self._script_refusal(user, command, argv)

    def verdict(self, user: User, command: Command, argv: Sequence[bytes]) -> str | None:
        """The same in the words of ACL DRYRUN."""
        refused = user.refusal(command, argv)
        if refused is not None:
            return refused.verdict
        error = self._script_refusal(user, command, argv)
        return error[1:].decode("utf-8", "surrogateescape").rstrip() if error is not None else None

    def _script_refusal(self, user: User, command: Command, argv: Sequence[bytes]) -> bytes | None:
        if not user.proves_scripts or command.code not in SCRIPTS:
            return None
        calls = self._scripts.calls(command, argv)
        if isinstance(calls, bytes):
            return calls
        for name in sorted(calls):
            row = commands.table()[name]
            if name in user.refused or (name in CHANNELS and user.rights.channels is not None):
                return replies.error(f"NOPERM the script calls '{row.name.lower()}', which this user may not")
        return None


def _need(user: User, command: Command) -> int:
    """What the engine has to look at for a request."""
    rights = user.rights
    if command.name in user.refused or (user.proves_scripts and command.code in SCRIPTS):
        return DECIDED
    if user.prefix and (command.name in prefixes.NAMING or command.name == "SCAN"):
        # Its reply is looked at, or it lists keys of others.
        return DECIDED
    if rights.channels is not None and (command.name in CHANNELS or command.name == "PSUBSCRIBE"):
        return DECIDED
    if rights.keys is None or not command.access:
        return FREE
    if len(rights.keys) <= ENGINES_PATTERNS and not command.keys and command.route in (Route.KEYED, Route.SPLIT):
        return KEYED | most(command)
    return DECIDED
