"""The known state of a client: which reply belongs to which command, and which commands it may send now.

Commands that no proxy of several servers can do, or that this one documents as refused, are not sent to either side.
"""

from collections import deque
from dataclasses import dataclass, field

from proxy.commands.scripting.luakeys import keeps_to_keys
from slots import commands
from slots.commands import CommandError, KeysError, Route
from slots.keys import KeysRefused
from slots.keyslots import KeySlots
from slots.sorting import may_have_several_slots, patterns
from tests.differential.wire import Node, decode

Command = tuple[bytes, ...]

SUBSCRIBING = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"}
"""Commands with a reply for each channel."""
BLOCKING = {
    *("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"),
    *("XREAD", "XREADGROUP", "WAIT", "WAITAOF"),
}
COMPUTED = {"SUNION", "SINTER", "SDIFF", "SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD", "XREAD"}
"""Commands that the proxy computes over several slots."""
STORED = {"SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"}
"""Likewise, and writes what it has computed, unless it reads what it writes."""


def name(command: Command) -> str:
    """The command's name as the table has it."""
    return command[0].decode("latin-1").upper()


def refused(command: Command) -> bool:
    """Whether ``docs/commands.md`` says of it that it is refused."""
    try:
        found = commands.find(command)
        if found.route is Route.REFUSED:
            return True
        commands.key_positions(found, command)
    except KeysError as error:
        return isinstance(error, KeysRefused)
    except CommandError:
        return False
    return False


def for_every_server(command: Command) -> bool:
    """Whether the command is asked of or done at every server, which EXEC, that runs at one, cannot do."""
    try:
        return commands.find(command).route is Route.SPREAD
    except CommandError:
        return False


def sorting_keys(command: Command) -> list[bytes]:
    """The key of a SORT whose patterns name keys, and those patterns, which have to share its slot; or nothing."""
    try:
        named = patterns(command) if name(command) in ("SORT", "SORT_RO") else []
    except IndexError:
        return []
    return [command[1], *(pattern for _, pattern in named)] if named else []


def may_touch_others(command: Command) -> bool:
    """Whether a command may touch keys that it does not name, and so is not served while slots move."""
    match name(command):
        case "FCALL" | "FCALL_RO":
            return True
        case "EVAL" | "EVAL_RO" if len(command) > 1:
            return not keeps_to_keys(command[1])
    return bool(sorting_keys(command))


@dataclass
class Client:
    """One client's state, which is the same on both sides. ``key_slots``: the product's."""

    key_slots: KeySlots
    awaited: deque[Command] = field(default_factory=deque)
    """Commands whose replies have not come."""
    subscription: Command = ()
    """The command of the last step, when it has a reply for each channel."""
    queued: list[Command] = field(default_factory=list)
    """What EXEC will run."""
    in_transaction: bool = False
    bound: set[int] = field(default_factory=set)
    """The slot that the keys of WATCH and of the transaction share; none when there were no keys."""
    watched: bool = False
    """Whether it has ever watched keys."""
    muted: bool = False
    skipped: int = 0

    def may_send(self, command: Command, keys: list[bytes]) -> bool:
        """Whether a proxy could take the command as one Redis does. ``keys``: those Redis finds in it."""
        called = name(command)
        # What a pattern of SORT names is known to have one slot by some patterns only.
        if refused(command) or any(
            may_have_several_slots(pattern, 0, self.key_slots.rules) for pattern in sorting_keys(command)[1:]
        ):
            return False
        together = self._slots_of(keys)
        if self.in_transaction or called == "WATCH":
            if called in ("CLIENT", "CONFIG", *SUBSCRIBING) or for_every_server(command):
                return False
            return len(self.bound | together) <= 1
        if called in ("MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH", "LMPOP", "ZMPOP", *COMPUTED):
            return True
        if called in STORED and command[1] not in command[2:]:
            return True
        return len(together) <= 1

    def _slots_of(self, keys: list[bytes]) -> set[int]:
        return set(self.key_slots.slots_of(0, keys))

    def sent(self, command: Command, keys: list[bytes]) -> None:
        """Note a command that was sent."""
        called = name(command)
        if self.in_transaction or called == "WATCH":
            self.bound |= self._slots_of(keys)
        if called == "WATCH":
            self.watched = True
        if len(command) == 1:
            if called == "MULTI":
                self.in_transaction = True
            elif called in ("EXEC", "DISCARD", "RESET") or (called == "UNWATCH" and not self.in_transaction):
                self.in_transaction = False
                self.bound = set()
        if called in SUBSCRIBING:
            self.subscription = command
            return
        self.subscription = ()
        replying = (
            name((command[2],)) if called == "CLIENT" and len(command) == 3 and command[1].upper() == b"REPLY" else ""
        )
        if replying == "ON":
            self.muted, self.skipped = False, 0
        elif called == "RESET" and len(command) == 1:
            # A SKIP before it holds for its own reply.
            self.muted = False
        elif replying == "OFF":
            self.muted = True
        elif replying == "SKIP" and not self.muted:
            self.skipped = 2
        if self.muted or self.skipped:
            self.skipped = max(self.skipped - 1, 0)
            return
        self.awaited.append(command)

    def answered(self, reply: bytes) -> tuple[Command, tuple[Command, ...]]:
        """The command that Redis gave this reply to, and of EXEC the commands that ran."""
        if self.subscription and not self.awaited:
            return self.subscription, ()
        command = self.awaited.popleft() if self.awaited else (b"?",)
        if reply == b"+QUEUED\r\n":
            self.queued.append(command)
            return command, ()
        called = name(command)
        queued = tuple(self.queued)
        if called in ("EXEC", "DISCARD", "RESET", "MULTI") and not reply.startswith(b"-ERR"):
            self.queued = []
        return command, queued if called == "EXEC" else ()


def keys_in(reply: bytes) -> list[bytes]:
    """The keys in Redis's answer to COMMAND GETKEYS; empty if it finds none."""
    found: Node = decode(reply)
    return [node.text for node in found.items]
