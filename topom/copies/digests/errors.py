"""What can go wrong with a digest check, as types."""

from migrator.errors import MigrationError, Refused
from topom.errors import Conflict, NotFound, Unavailable
from topom.reasons import Kind


class CheckRuns(Conflict):
    """The group is being checked or filled anew already, or was changed just now."""


class NothingToCheck(Conflict):
    """The group has no replica, or none that is known to differ."""


class NoCheck(NotFound):
    """This topom has not checked the group since it came to lead."""


class CheckFailed(Unavailable):
    """A check could not go on. What it has found counts; it says nothing about the rest."""

    kind = Kind.SERVER


class ServerSilent(MigrationError):
    """A server does not answer the check."""


class ServerRefuses(Refused):
    """A server refuses a command of the check."""
