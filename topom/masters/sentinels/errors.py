"""The errors about Sentinels."""

from topom.errors import Conflict, Invalid, NotFound
from topom.reasons import Kind


class SentinelsOff(Conflict):
    """Groups are not left to Sentinels."""


class SentinelKnown(Conflict):
    """The Sentinel is known already."""


class TooManySentinels(Invalid):
    """There are as many Sentinels as topom can ask."""


class SentinelNotFound(NotFound):
    """topom knows no such Sentinel."""


class SentinelUnusable(Conflict):
    """The address does not answer, or is not that of a Sentinel."""

    kind = Kind.SENTINEL


class SentinelWatches(Conflict):
    """A Sentinel could not be told to leave a group to topom for a moment."""

    kind = Kind.SENTINEL


class SentinelsRemember(Conflict):
    """Sentinels count the server to another group, and would take it back there."""

    kind = Kind.SENTINEL


class StillElectable(Conflict):
    """Sentinels could elect the server before it holds a whole copy."""

    kind = Kind.SENTINEL


class NobodyReplaces(Conflict):
    """Sentinels could replace no master that fails."""

    kind = Kind.SENTINEL
