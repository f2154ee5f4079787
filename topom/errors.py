"""What can go wrong with an operator's request or with the store, as types.

Each says what happened and, in a field of its own, what to do (:class:`slots.kinds.Explained`). The HTTP API answers
with ``status`` and names the type, so a program can tell the errors apart without reading the sentence. Something that
topom tries again by itself waits for the ``kind`` of thing that the error names (:mod:`topom.reasons`).
"""

from typing import ClassVar

from slots.kinds import Explained, Kind


class TopomError(Explained):
    """The base of all errors by which topom refuses something or fails."""

    status: ClassVar[int] = 500
    """The HTTP status that the API answers with."""


class Invalid(TopomError):
    """The request does not ask for something that topom can do."""

    status = 422
    kind = Kind.OPERATOR


class NotFound(TopomError):
    """The request names something that is not there."""

    status = 404
    kind = Kind.OPERATOR


class Conflict(TopomError):
    """The request is understood, but the present state does not allow it."""

    status = 409
    kind = Kind.BUSY


class Unavailable(TopomError):
    """topom cannot change anything now."""

    status = 503
    kind = Kind.STORE


class NotLeading(Unavailable):
    """Another topom leads, or none; this one changes nothing."""


class LeaderSilent(Unavailable):
    """The topom that leads was asked, and does not answer."""

    status = 504


class TokensDiffer(Unavailable):
    """The topom that was asked takes the token, and the one that leads does not."""

    kind = Kind.OPERATOR


class BodyNotTaken(Invalid):
    """The request has a body, but this route takes none."""


class InvalidAddress(Invalid):
    """Not a ``host:port``."""


class InvalidDatacenter(Invalid):
    """A name that no datacenter may have."""


class InvalidNode(Invalid):
    """A name that no node may have."""


class InvalidGroup(Invalid):
    """A group id that no group may have."""


class InvalidHours(Invalid, ValueError):
    """A text that names no hours of the day, or no time zone that this computer knows."""


class InvalidSlots(Invalid):
    """Slots that do not exist, or a list of them that cannot be read."""


class GroupNotFound(NotFound):
    """No group of that id."""


class ServerNotFound(NotFound):
    """The group has no such server."""


class ProxyNotFound(NotFound):
    """No proxy of that id."""


class GroupExists(Conflict):
    """A group of that id is there already."""

    kind = Kind.OPERATOR


class GroupInUse(Conflict):
    """The group owns slots, or slots are on their way to it."""


class GroupEmpty(Conflict):
    """The group has no server, so it can own no slot."""

    kind = Kind.OPERATOR


class GroupLocked(Conflict):
    """Another server of the group is being made its master."""


class SentinelsDecide(Conflict):
    """Redis Sentinels say which server is master, so topom does not choose one."""

    kind = Kind.SENTINEL


class GroupLeaving(Conflict):
    """The group is on its way out and gets nothing new."""


class NodeLeaving(Conflict):
    """The node is on its way out and gets nothing new, and its servers go with it."""


class InPool(Conflict):
    """The server is in the pool, so it cannot be in a group as well."""

    kind = Kind.OPERATOR


class SweepUnderWay(Conflict):
    """Keys of slots are being deleted at the server that they are to come to."""


class OldKeysLeft(Conflict):
    """The group may have old keys of slots that are to come to it."""


class ServerInUse(Conflict):
    """The server belongs to a group already, or its group cannot do without it."""

    kind = Kind.OPERATOR


class TakesNoWrites(Conflict):
    """The server follows another one, and is not to be the master of a group."""

    kind = Kind.SERVER


class SlotsInAction(Conflict):
    """Slots are being moved and have to come to rest first."""


class RulesChanging(Conflict):
    """The slot rules are being changed; no slot changes its group meanwhile."""


class SlotsOwned(Conflict):
    """Slots have an owner; only offline slots can be assigned at once."""


class SlotsOffline(Conflict):
    """Slots have no owner that they could be moved from."""

    kind = Kind.OPERATOR


class ProxiesNotReady(Conflict):
    """Proxies did not acknowledge the current slot table in time."""

    kind = Kind.PROXY


class ServersUnreachable(Conflict):
    """Servers at which a proxy has to be fenced do not answer."""

    kind = Kind.SERVER


class TooMany(Conflict):
    """The cluster has as many of these as are allowed."""


class NotReady(Conflict):
    """The server cannot become its group's master now."""

    kind = Kind.SERVER
