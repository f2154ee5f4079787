"""What can go wrong with Sentinels, as types."""

from topom.errors import Conflict, Invalid, NotFound


class SentinelsOff(Conflict):
    """Groups are not left to Sentinels."""


class SentinelKnown(Conflict):
    """The Sentinel is known already."""


class TooManySentinels(Invalid):
    """There are as many as topom will ask."""


class SentinelNotFound(NotFound):
    """topom knows no such Sentinel."""


class SentinelUnusable(Conflict):
    """What is at the address does not answer, or is no Sentinel."""


class SentinelWatches(Conflict):
    """A Sentinel could not be told to leave a group to topom for a moment."""


class SentinelsRemember(Conflict):
    """Sentinels count the server to another group, and would take it back there."""


class StillElectable(Conflict):
    """Sentinels could elect the server before it holds a whole copy."""
