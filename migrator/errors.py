"""The errors of a migration, as types. Each message tells an operator what happened and what to do."""

from __future__ import annotations

import re
from enum import StrEnum

from slots.failures import AT_MAXMEMORY
from slots.kinds import Explained, Kind


class MigrationError(Explained):
    """A migration did not reach **complete**. Keys that have moved stay there; the call may be made again."""

    kind = Kind.SERVER
    passing = True
    """Whether the error is likely to pass by itself, so that another call after a short while makes sense."""
    of_followed = False
    """Whether a copy by the replication stream ended because of the replica that it followed, so that the next one had
    better follow another server."""


class Superseded(MigrationError):
    """A topom of a later term has used a server: this topom may do nothing there any more."""

    kind = Kind.STORE
    passing = False


class UsedByOthers(MigrationError):
    """Proxies that are no members use a server: they would go on to write there by another table."""

    kind = Kind.PROXY


class OtherFormat(MigrationError):
    """Another version of Slotferry has used a server, and keeps there what this one does not understand."""

    kind = Kind.OPERATOR
    passing = False


class SourceUnavailable(MigrationError):
    """The source cannot be reached, closed the connection or did not answer in time."""


class TargetUnavailable(MigrationError):
    """The target cannot be reached, by us or by the source, or did not answer in time."""


class ServerUnavailable(MigrationError):
    """A server cannot be reached, closed the connection or did not answer in time."""


class TargetUnfit(MigrationError):
    """The target cannot take the slots as it is; nothing was sent to it."""

    passing = False


class NotMaster(TargetUnfit):
    """The source or the target is a replica."""


class NotApart(TargetUnfit):
    """Source and target are one server with two addresses, or it is not certain that they are two."""


class StillLoading(TargetUnfit):
    """A server is reading its data from disk."""

    passing = True


class TooFewDatabases(TargetUnfit):
    """Keys are in source databases that the target does not have."""


class ModuleMissing(TargetUnfit):
    """The source has a module whose keys and commands the target would not know."""


class ReplicasMissing(TargetUnfit):
    """The target has fewer replicas than have to confirm keys."""

    passing = True


class ForeignKeys(TargetUnfit):
    """A server holds keys of slots that it does not own, and only the operator can know what they are for."""

    kind = Kind.DATA


class NotEnoughMemory(TargetUnfit):
    """The keys would not fit below the target's maxmemory, or the target would evict other keys for them."""


class TooFewReplicas(MigrationError):
    """Fewer replicas of the target confirm keys than an operator wants; the source still has the keys."""


class SweepOvertaken(MigrationError):
    """A sweep of a server was stopped by another sweep, or because a slot came to the server."""

    kind = Kind.BUSY


class KeysRemain(MigrationError):
    """Pass after pass finds keys that stay: something outside writes them, or they cannot move."""

    kind = Kind.DATA
    passing = False


class CannotBeCut(MigrationError):
    """No commands can take apart a key of this type; it has to go whole, in one step."""

    kind = Kind.DATA
    passing = False


class KeyGone(MigrationError):
    """A key expired or was evicted at the source while it was copied in pieces; nothing of it is left to move."""

    kind = Kind.BUSY


class CopyLost(MigrationError):
    """A copy in pieces is not whole at the target. The source still has the key, and the copy is made again."""

    kind = Kind.BUSY


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


PUT_FIRST = "put the group's master first in its list of servers: slotferry group promote GROUP HOST:PORT --force"
_PASSWORD = "set the same password in the server and in the settings"

# For each kind of error reply: its beginning, the reason, what it means, and what to do about it. The first that fits
# counts.
_KINDS: tuple[tuple[str, Refusal, str, str], ...] = (
    ("OOM", Refusal.MEMORY, AT_MAXMEMORY, "raise that or free memory"),
    ("READONLY", Refusal.READ_ONLY, "it is a read-only replica", PUT_FIRST),
    ("LOADING", Refusal.LOADING, "it is still loading its data from disk", ""),
    ("MASTERDOWN", Refusal.LOADING, "it is a replica that lost its master", PUT_FIRST),
    ("NOMASTERLINK", Refusal.LOADING, "it is a replica without a link to its master", "see why it has lost its master"),
    ("BUSY ", Refusal.BUSY, "it runs a script that does not end", "wait, or SCRIPT KILL it"),
    ("ERR DUMP payload version or checksum", Refusal.VERSION, "it cannot read the source's format", "upgrade it"),
    ("ERR Bad data format", Refusal.VERSION, "it cannot read the source's format or lacks a module", "upgrade it"),
    ("NOAUTH", Refusal.AUTHENTICATION, "it wants a password and none is configured", _PASSWORD),
    ("WRONGPASS", Refusal.AUTHENTICATION, "the configured password is wrong", _PASSWORD),
    ("ERR invalid password", Refusal.AUTHENTICATION, "the configured password is wrong", _PASSWORD),
    ("ERR AUTH", Refusal.AUTHENTICATION, "a password is configured and the server has none", _PASSWORD),
    ("ERR Client sent AUTH", Refusal.AUTHENTICATION, "a password is configured and the server has none", _PASSWORD),
    ("NOPERM", Refusal.PERMISSION, "its user may not run a command that is needed", "see the ACL of that server"),
    ("ERR DB index is out of range", Refusal.DATABASE, "it has fewer databases than are in use", "raise `databases`"),
    ("ERR invalid DB index", Refusal.DATABASE, "it has fewer databases than are in use", "raise `databases`"),
    ("NOREPLICAS", Refusal.REPLICAS, "it has too few good replicas for its min-replicas-to-write", "see to them"),
    (
        "ERR unknown command",
        Refusal.OTHER,
        "it lacks a command that is needed: it is too old or renames it",
        "upgrade it",
    ),
    ("MISCONF", Refusal.PERSISTENCE, "it cannot save to its disk and takes no writes until it can", "see to its disk"),
)


_IN_SCRIPT = re.compile(r"(?:ERR Error running script \(call to \w+\): )?(?:@user_script: ?\d*:? ?)+-?")
"""The text that servers before Redis 7 put in front of an error of a command in a script."""


def refusal_of(reply: str) -> tuple[Refusal, str, str]:
    """Why a server refuses, by its error reply; a clause that says so, and a clause that says what to do."""
    in_script = _IN_SCRIPT.match(reply)
    own = reply[in_script.end() :] if in_script else reply
    for beginning, refusal, what, to_do in _KINDS:
        if own.startswith(beginning):
            return refusal, what, to_do
    return Refusal.OTHER, "it gives no ground that is known", "see the server's log"


def unknown_command(reply: str) -> bool:
    """Whether an error reply says that the server does not know the command: it is older, or the command was
    renamed."""
    return reply.startswith("ERR unknown command")


class Refused(MigrationError):
    """A server answered a command with an error.

    Attributes:
        address: ``host:port`` of the server.
        reply: its words, without the leading ``-``.
        refusal: why the server refuses.
    """

    role = "server"

    def __init__(self, address: str, reply: str, detail: str = "") -> None:
        self.address = address
        self.reply = reply
        self.refusal, what, to_do = refusal_of(reply)
        self.passing = self.refusal in (Refusal.LOADING, Refusal.BUSY)
        super().__init__(f'{self.role} {address} refuses: {what}{detail} (it said "{reply}")', to_do)


class SourceRefused(Refused):
    """The source answered with an error."""

    role = "source"


class TargetRefused(Refused):
    """The target does not take keys, or refuses the login."""

    role = "target"
