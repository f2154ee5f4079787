"""What can go wrong with a digest check, as types."""

from migrator.errors import MigrationError, Refused
from topom.errors import Conflict, NotFound, Unavailable
from topom.reasons import Kind


class CheckRuns(Conflict):
    """The group is being checked already."""


class NothingToCheck(Conflict):
    """The group has no replica, or no master."""


class NoCheck(NotFound):
    """This topom has not checked the group since it came to lead."""


class CheckFailed(Unavailable):
    """A check could not go on: what it found until then stands, and it says nothing of the rest."""

    kind = Kind.SERVER


class ServerSilent(MigrationError):
    """A server does not answer the check."""


class ServerRefuses(Refused):
    """A server refuses a command of the check."""
