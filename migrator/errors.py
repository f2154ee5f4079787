"""What can go wrong in a migration, as types whose message tells an operator what happened and what to do."""

from __future__ import annotations

import re
from enum import StrEnum


class MigrationError(Exception):
    """A migration did not reach **complete**. What has moved stays moved; the call may be made again."""

    passing = True
    """Whether it is likely to pass by itself, so that calling again after a short while makes sense."""


class Superseded(MigrationError):
    """A server was taken by a topom that leads in a later term: this one may do nothing there any more."""

    passing = False


class SourceUnavailable(MigrationError):
    """The source cannot be reached, closed the connection or did not answer in time."""


class TargetUnavailable(MigrationError):
    """The target cannot be reached, by us or by the source, or did not answer in time."""


class ServerUnavailable(MigrationError):
    """A server cannot be reached, closed the connection or did not answer in time."""


class TargetUnfit(MigrationError):
    """The target as it is cannot take the slots; nothing was sent to it."""

    passing = False


class NotMaster(TargetUnfit):
    """A server that keys are to move from or to is a replica."""


class NotApart(TargetUnfit):
    """Source and target are one server by two names, or nobody is sure that they are two."""


class StillLoading(TargetUnfit):
    """A server is reading its data from disk."""

    passing = True


class TooFewDatabases(TargetUnfit):
    """Keys are in databases of the source that the target does not have."""


class ModuleMissing(TargetUnfit):
    """The source has a module whose keys and commands the target would not know."""


class ReplicasMissing(TargetUnfit):
    """Fewer replicas follow the target than are to confirm keys."""

    passing = True


class ForeignKeys(TargetUnfit):
    """A server holds keys of slots that it does not own, and nobody but the operator knows what they are for."""


class NotEnoughMemory(TargetUnfit):
    """The keys would not fit below the target's maxmemory, or would have it evict others."""


class TooFewReplicas(MigrationError):
    """Fewer replicas of the target confirm keys than an operator wants; the source has the keys still."""


class SweepOvertaken(MigrationError):
    """A sweep of a server was broken off by another one, or because a slot came to the server."""


class KeysRemain(MigrationError):
    """Pass after pass finds keys that do not go away: something outside writes them, or they cannot move."""

    passing = False


class CannotBeCut(MigrationError):
    """A key of a type that no commands can take apart; it has to go whole, in one step."""

    passing = False


class KeyGone(MigrationError):
    """A key expired or was evicted at the source while it was copied in pieces; nothing of it is left to move."""


class CopyLost(MigrationError):
    """What was copied in pieces is not whole at the target; the source still has the key, and it goes again."""


class Refusal(StrEnum):
    """Why a server refused."""

    MEMORY = "memory"
    READ_ONLY = "read-only"
    LOADING = "loading"
    BUSY = "busy"
    VERSION = "version"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    DATABASE = "database"
    PERSISTENCE = "persistence"
    REPLICAS = "replicas"
    OTHER = "other"


# What an error reply begins with, why that is, and what to do about it. The first that fits counts.
_KINDS: tuple[tuple[str, Refusal, str], ...] = (
    ("OOM", Refusal.MEMORY, "it is at its maxmemory; raise that or free memory"),
    ("READONLY", Refusal.READ_ONLY, "it is a read-only replica; put the group's master first in its list of servers"),
    ("LOADING", Refusal.LOADING, "it is still loading its data from disk; this passes"),
    ("MASTERDOWN", Refusal.LOADING, "it is a replica that lost its master; put the group's master first"),
    ("BUSY ", Refusal.BUSY, "it runs a script that does not end; wait, or SCRIPT KILL it"),
    ("ERR DUMP payload version or checksum", Refusal.VERSION, "it cannot read the source's format; upgrade it"),
    ("ERR Bad data format", Refusal.VERSION, "it cannot read the source's format or lacks a module; upgrade it"),
    ("NOAUTH", Refusal.AUTHENTICATION, "it wants a password and none is configured"),
    ("WRONGPASS", Refusal.AUTHENTICATION, "the configured password is wrong"),
    ("ERR invalid password", Refusal.AUTHENTICATION, "the configured password is wrong"),
    ("ERR AUTH", Refusal.AUTHENTICATION, "a password is configured and the server has none"),
    ("ERR Client sent AUTH", Refusal.AUTHENTICATION, "a password is configured and the server has none"),
    ("NOPERM", Refusal.PERMISSION, "its user may not run a command that is needed; see the ACL of that server"),
    ("ERR DB index is out of range", Refusal.DATABASE, "it has fewer databases than are in use; raise `databases`"),
    ("ERR invalid DB index", Refusal.DATABASE, "it has fewer databases than are in use; raise `databases`"),
    ("NOREPLICAS", Refusal.REPLICAS, "it has too few good replicas for its min-replicas-to-write; see to them"),
    ("MISCONF", Refusal.PERSISTENCE, "it cannot save to its disk and takes no writes until it can"),
)


_IN_SCRIPT = re.compile(r"(?:ERR Error running script \(call to \w+\): )?(?:@user_script: ?\d*:? ?)+-?")
"""What servers before Redis 7 put before an error of a command that a script ran."""


def kind_of(reply: str) -> tuple[Refusal, str]:
    """The reason behind an error reply, and a clause that says what to do."""
    in_script = _IN_SCRIPT.match(reply)
    own = reply[in_script.end() :] if in_script else reply
    for beginning, refusal, advice in _KINDS:
        if own.startswith(beginning):
            return refusal, advice
    return Refusal.OTHER, "see the server's log"


def unknown_command(reply: str) -> bool:
    """Whether an error reply says that the server has no such command: it is older, or it was renamed."""
    return reply.startswith("ERR unknown command")


class Refused(MigrationError):
    """A server answered a command with an error.

    Attributes:
        address: ``host:port`` of the server.
        reply: its words, without the leading ``-``.
        reason: what kind of refusal it is.
    """

    role = "server"

    def __init__(self, address: str, reply: str, detail: str = "") -> None:
        self.address = address
        self.reply = reply
        self.reason, advice = kind_of(reply)
        self.passing = self.reason in (Refusal.LOADING, Refusal.BUSY)
        super().__init__(f'{self.role} {address} refuses: {advice}{detail} (it said "{reply}")')


class SourceRefused(Refused):
    """The source answered with an error."""

    role = "source"


class TargetRefused(Refused):
    """The target does not take keys, or does not let us in."""

    role = "target"
