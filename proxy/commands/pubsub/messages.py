"""Messages of pub/sub, in the forms of a RESP3 server's push and of clients.

A RESP3 client gets a message unchanged. A RESP2 client gets it as an array, which differs only in the first byte. So a
message is read only up to the name of the subscription, and encoded at most once.
"""

from collections.abc import Collection, Iterator
from enum import Enum

from proxy.commands import replies
from proxy.engine.backend import command
from slots.prefixes import LIKE_EVENTS, without

NAMES_AT_ONCE = 1000
"""The most names in one request to a server."""


MOST_DIGITS = 9
"""Of the number of a database; a client may publish to a channel that looks like a server's."""


class Kind(Enum):
    """The kinds of subscriptions. The values are the words of the confirmations, which are also the commands."""

    CHANNEL = ("subscribe", "unsubscribe", b">3\r\n$7\r\nmessage\r\n$")
    PATTERN = ("psubscribe", "punsubscribe", b">4\r\n$8\r\npmessage\r\n$")
    SHARD = ("ssubscribe", "sunsubscribe", b">3\r\n$8\r\nsmessage\r\n$")

    def __init__(self, joining: str, leaving: str, head: bytes) -> None:
        self.joining: str = joining
        self.leaving: str = leaving
        self.head = head
        """The beginning of its messages, up to the length of the channel or pattern."""


class Message:
    """One message, as pushed for one channel or one pattern.

    Args:
        kind: the kind of its subscription.
        name: the channel or the pattern subscribed to.
        resp3: the push.
        end: where in ``resp3`` the name's bulk string ends.
    """

    __slots__ = ("_end", "_hidden", "_resp2", "kind", "mark", "name", "resp3")

    def __init__(self, kind: Kind, name: bytes, resp3: bytes, end: int) -> None:
        self.kind = kind
        self.name = name
        self.resp3 = resp3
        self.mark = 0
        """The latest mark (:mod:`~proxy.commands.pubsub.subscriptions`) that its server had answered before this."""
        self._end = end
        self._resp2: bytes | None = None
        self._hidden: dict[bytes, bytes] = {}

    @property
    def resp2(self) -> bytes:
        """The message for a RESP2 client."""
        if self._resp2 is None:
            self._resp2 = b"*" + self.resp3[1:]
        return self._resp2

    def form(self, protocol: int, prefix: bytes) -> bytes:
        """The message for a client of whose names a prefix is taken off; empty if it is not for such a client: an event
        of another one's key."""
        if not prefix:
            return self.resp3 if protocol == 3 else self.resp2
        if prefix not in self._hidden:
            self._hidden[prefix] = self._without(prefix)
        found = self._hidden[prefix]
        return found if protocol == 3 else b"*" + found[1:] if found else b""

    def _without(self, prefix: bytes) -> bytes:
        channel, end = _bulk(self.resp3, self._end + 1) if self.kind is Kind.PATTERN else (self.name, self._end)
        rest = self.resp3[end:]
        if channel.startswith(LIKE_EVENTS):
            event = self.event
            if event is None or not event[1].startswith(prefix):
                return b""
            if channel.startswith(b"__keyevent"):
                rest = replies.bulk(event[1].removeprefix(prefix))
        names = (self.name, channel) if self.kind is Kind.PATTERN else (channel,)
        return self.kind.head[:-1] + b"".join(replies.bulk(without(prefix, name)) for name in names) + rest

    @property
    def channel(self) -> bytes:
        """The channel it was published to."""
        return _bulk(self.resp3, self._end + 1)[0] if self.kind is Kind.PATTERN else self.name

    @property
    def event(self) -> tuple[int, bytes] | None:
        """The database and the key of a keyspace notification; None for any other message."""
        # Few messages pass this test for the prefix of notification channels.
        if b"__key" not in self.resp3:
            return None
        channel, end = _bulk(self.resp3, self._end + 1) if self.kind is Kind.PATTERN else (self.name, self._end)
        kind, _, rest = channel.partition(b"@")
        database, _, name = rest.partition(b"__:")
        if not database.isdigit() or len(database) > MOST_DIGITS:
            return None
        if kind == b"__keyevent":
            return int(database), _bulk(self.resp3, end + 1)[0]
        return (int(database), name) if kind == b"__keyspace" else None


def read(push: bytes) -> Message | None:
    """The message in a push; None for any other push, such as the confirmation of a subscription."""
    for kind in Kind:
        if push.startswith(kind.head):
            name, end = _bulk(push, len(kind.head))
            return Message(kind, name, push, end)
    return None


def _bulk(data: bytes, start: int) -> tuple[bytes, int]:
    """The bulk string whose length is at ``start``, and the place where it ends."""
    begin = data.index(b"\r\n", start) + 2
    end = begin + int(data[start : begin - 2])
    return data[begin:end], end + 2


def requests(word: str, names: Collection[bytes]) -> Iterator[bytes]:
    """Requests such as SUBSCRIBE, with at most :data:`NAMES_AT_ONCE` names each; none if there are no names."""
    ordered = list(names)
    for start in range(0, len(ordered), NAMES_AT_ONCE):
        yield command((word.upper(), *ordered[start : start + NAMES_AT_ONCE]))
