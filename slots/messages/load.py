"""What a proxy counts of its traffic, as its messages carry it: by slot, by server and by user, the keys that are asked
for most, and requests that are worth a look.

Counts are of the time since the last message; what has no room in one comes with the next. They are statistics: a
message that is lost takes its counts with it.
"""

from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from slots.fields import LARGEST, MOST_TEXT
from slots.limitshares import WHOLE
from slots.messages.message import VISIBLE, Number, Time
from slots.slot import MAXIMUM_SLOTS

ROW_BYTES = 26
"""Of one slot in :data:`SlotRows`."""
MOST_HOT_KEYS = 256
"""Keys that one message may name."""
MOST_NOTABLE = 64
"""Notable requests that one message may tell."""
MOST_USERS = 10_000
"""Users that one message may name."""
MOST_LIMITED = 1000
"""Users that may have limits."""
KEY_BYTES = 128
"""Of a key that is longer, only the first bytes are told."""


def _whole_base64(text: str) -> str:
    if len(text) % 4:
        raise ValueError("it is no whole base64 text")
    return text


SlotRows: TypeAlias = Annotated[
    str, Field(max_length=4 * -(-MAXIMUM_SLOTS * ROW_BYTES // 3)), AfterValidator(_whole_base64)
]
"""Base64 of the rows of :mod:`slots.slotload`, which checks them."""
KeyText: TypeAlias = Annotated[str, Field(max_length=4 * -(-KEY_BYTES // 3)), AfterValidator(_whole_base64)]
"""Base64 of a key's first :data:`KEY_BYTES` bytes: keys may have any bytes."""
PartOfLimit: TypeAlias = Annotated[int, Field(ge=0, le=WHOLE)]
UserName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256), VISIBLE]
CommandName: TypeAlias = Annotated[str, Field(min_length=1, max_length=64), VISIBLE]
ClientAddress: TypeAlias = Annotated[str, Field(max_length=64), VISIBLE]
ServerAddress: TypeAlias = Annotated[str, Field(max_length=MOST_TEXT), VISIBLE]
SlotOrNone: TypeAlias = Annotated[int, Field(ge=-1, lt=MAXIMUM_SLOTS)]
Why: TypeAlias = Literal["big_request", "big_reply", "big_collection", "slow"]
Microseconds: TypeAlias = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]


class Traffic(NamedTuple):
    """Of a user."""

    requests: Number
    errors: Number
    bytes_in: Number
    """Of requests, from clients."""
    bytes_out: Number
    """Of replies, to clients."""


class UserDemand(NamedTuple):
    """What a user with limits asked for at a worker."""

    requests: Number
    """In a second, also those that were refused or still wait."""
    bytes: Number
    """Likewise, of requests and replies."""
    delayed: Number
    """Requests since the last message that have waited for their turn, or wait."""
    refused: Number
    """Requests since the last message that were refused."""
    worked: Number
    """Microseconds since the last message that the worker worked for it, if that has a limit."""


class Share(NamedTuple):
    """Whose part of a user's limits is how large, in parts of :data:`slots.limitshares.WHOLE`."""

    requests: PartOfLimit
    bytes: PartOfLimit


class HeldShare(NamedTuple):
    """What a user with limits asks for at a proxy in a second, and the share of the limits that the proxy has."""

    requests: Number
    bytes: Number
    share_of_requests: PartOfLimit
    share_of_bytes: PartOfLimit


class Connections(NamedTuple):
    """Of a user whose connections are limited, at a worker or at a proxy (:mod:`slots.connectionshares`)."""

    limit: Number
    """That it may have, at all proxies together."""
    open: Number
    wanted: Number
    """Clients that were refused in one of the last seconds, for want of a larger share."""
    share: Number
    """That the worker, or the proxy, was told last."""
    held: Number
    """What others cannot have: the share, or what is open if that is more."""


class ServerTraffic(NamedTuple):
    """Of a server: what proxies sent it, and its replies."""

    requests: Number
    """That were answered."""
    errors: Number
    bytes_in: Number
    bytes_out: Number
    microseconds: Microseconds
    """Sum over the timed requests, from when one was queued for the server until its reply was there."""
    timed: Number
    """Requests, without those over connections of their own: those that wait at the server, such as BLPOP, and those of
    transactions with WATCH. A request that never joined a queue is not among them, either."""


class HotKey(NamedTuple):
    """One of the keys that were asked for most of late."""

    database: Number
    slot: Number
    key: KeyText
    """With ``hash_hot_keys`` not the key itself, but a hash of it."""
    length: Number
    """Of the whole key, in bytes; of a hash, its own."""
    rate: Microseconds
    """Requests a second, by the sample; too high by ``excess`` at most."""
    excess: Microseconds
    """Requests a second by which ``rate`` may be too high."""


class Notable(NamedTuple):
    """A request that took long, or whose bytes, or whose reply's bytes or elements, are many. No value is told."""

    why: Why
    """The first that holds, in this order."""
    command: CommandName
    """In lower case, as the statistics name it: ``hgetall``, ``config|get``."""
    database: Number
    slot: SlotOrNone
    """-1: of no slot, or of several."""
    key: KeyText
    """With ``hash_hot_keys`` not the key itself, but a hash of it. Empty if the key is not known."""
    length: Number
    """Of the whole key, in bytes; of a hash, its own. 0 if the key is not known."""
    user: UserName
    client: ClientAddress
    """``host:port``; empty if it has left."""
    server: ServerAddress
    """``host:port``; empty if the proxy answered, or several servers did."""
    seconds: Time
    """How long before the message it was answered: clocks of machines differ."""
    microseconds: Microseconds
    """From when the proxy had read it until its reply was there."""
    bytes_in: Number
    """Of the request."""
    bytes_out: Number
    """Of the reply."""
    elements: Number
    """That the reply shows: of an array, a map or a set; or the length that ``LLEN``, ``LPUSH`` and their like tell."""
