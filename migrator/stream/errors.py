"""The errors of following a source, as types. Each of them voids the copies that were made by it, if it does not say
otherwise."""

from __future__ import annotations

from migrator.errors import MigrationError, SourceRefused, SourceUnavailable, unknown_command
from slots.kinds import Kind


class FollowRefused(SourceRefused):
    """The source answered a step of being followed with an error."""

    def __init__(self, address: str, reply: str, step: str) -> None:
        """``step``: the command that it refuses."""
        super().__init__(address, reply, f", {step} in order to be followed")
        if unknown_command(reply):
            to_do = "see whether its configuration renames commands, or move these slots without `stream`"
            MigrationError.__init__(self, f"source {address} does not know {step}, so it cannot be followed", to_do)


class NotFollowable(MigrationError):
    """The source is loading, or a replica without its master."""


class CountsFollowers(MigrationError):
    """The source is a master that takes writes only while it has so many replicas, and it would count the link."""

    passing = False


class SourceReplaced(MigrationError):
    """Another process answers at the address of the source (**run-id**)."""

    passing = False


class HistoryChanged(MigrationError):
    """The server has another master, or became one, or is none any more: its stream is another one from there on."""


class ReplicaDiffers(MigrationError):
    """The replica may have other data than its master: writes or evictions of its own are in its snapshot, and in no
    stream."""

    passing = False


class NotDirect(MigrationError):
    """The replica may follow its master by way of another replica, whose own writes are in its data then."""


class ReplicaLost(MigrationError):
    """The replica that was followed cannot be followed any more. Its master, or another replica, can."""

    of_followed = True


class SnapshotCut(SourceUnavailable):
    """The connection ended before the snapshot was whole. No source sends the rest of one."""


class LinkCut(SourceUnavailable):
    """The connection was lost in the stream, and the stream could not go on in time."""


class SnapshotNeeded(MigrationError):
    """After a cut the source offers a new snapshot and not the rest of the stream."""


class LinkClosed(MigrationError):
    """Whoever opened the link or the spool has closed it."""

    kind = Kind.BUSY


class SpoolFull(MigrationError):
    """The spool is at its bound, or its disk is. The copy is given up, because a source must not wait for it."""

    passing = False


class SpoolUnusable(MigrationError):
    """The folder of spools cannot be written to."""

    kind = Kind.OPERATOR
    passing = False


class StreamBegun(MigrationError):
    """The replication stream that a copy was to share is another one, or has its snapshot already."""

    kind = Kind.BUSY


class NotNearlyLevel(MigrationError):
    """The copy is to be settled and was not nearly level before: too much may be missing for a lock."""

    kind = Kind.BUSY

    def __init__(self, target: str) -> None:
        super().__init__(f"the copy to {target} was not nearly level before its slots were locked; it begins anew")


class TooManyLate(MigrationError):
    """More keys than fit within a lock cannot be followed by the stream."""

    kind = Kind.DATA
    passing = False


class LeftBehind(MigrationError):
    """The spool is nearly full, and is kept for this copy more than for others. It is given up, so that they go on."""

    passing = False
