"""How many clients get a message: what PUBLISH and SPUBLISH answer with ``publish_counts_clients``.

A server's own answer counts a worker once for the channel, and once for each pattern of it that matches, however many
of its clients are subscribed. Workers say the numbers of their clients by :mod:`~proxy.commands.pubsub.counts`. Those
of the channel and of the patterns that match are asked for together with the publishing, in one transaction, so all of
it holds for one moment.

A server does not list its patterns, but the channels that announce them. A worker keeps that list. If a server's answer
counts more subscriptions than those of the channel and of the listed patterns, there are new patterns: the worker asks
for the list, and then for their clients. A subscription that no list explains is of somebody who is subscribed at the
server by itself, or of a proxy that does not announce its patterns. It counts as one.

**bounded**: after such a subscription, the list is asked for again :data:`UNEXPLAINED_SECONDS` later. It is asked for
the less often the longer it is, for it holds up the server and the worker. At most :data:`MOST_LISTED` patterns are
kept, and at most :data:`MOST_MATCHING` asked for with a message. Others count as one for each worker.
"""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from functools import lru_cache

from proxy.commands import replies
from proxy.commands.family import Decided
from proxy.commands.keyspace.listedkeys import keys_of
from proxy.commands.pubsub import counts
from proxy.commands.pubsub.messages import Kind
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Channel, Later, Outcome, clear
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots.requests.glob import match

REMEMBERED, REMEMBERED_BYTES = 1000, 200
"""Channels whose part of a request is kept, with names of so many bytes at most: 2 MB."""
UNEXPLAINED_SECONDS = 1.0
MOST_LISTED = 10_000
MOST_MATCHING = 100
ODD = replies.error("ERR a server gave an odd reply to PUBSUB")
MULTI, EXEC = command(("MULTI",)), command(("EXEC",))
LIST = command(("PUBSUB", "CHANNELS", counts.ANNOUNCES + b"*"))
ABORTED = b"-EXECABORT"
REFUSED = replies.error("ERR the server refuses this or PUBSUB, which publish_counts_clients needs; nothing was sent")
NOBODY = replies.integer(0)
RUN = b"*2\r\n"
"""The beginning of EXEC's reply."""
PUBLISHED = re.compile(rb"\*2\r\n:([0-9]+)\r\n")
"""... where the server has published the message."""


def question(kind: Kind, names: Sequence[bytes]) -> bytes:
    """The request for the numbers of channels, which :func:`numbers_in` reads."""
    word = "SHARDNUMSUB" if kind is Kind.SHARD else "NUMSUB"
    head = b"*%d\r\n" % (2 + len(names) * counts.ASKED_EACH)
    asked = (_remembered(name) if len(name) <= REMEMBERED_BYTES else _asked(name) for name in names)
    return b"".join((head, replies.bulk("PUBSUB"), replies.bulk(word), *asked))


def _asked(name: bytes) -> bytes:
    return b"".join(map(replies.bulk, counts.asked(name)))


_remembered = lru_cache(REMEMBERED)(_asked)


def numbers_in(reply: bytes, names: Sequence[bytes]) -> list[list[int]] | None:
    """For each channel the numbers that :mod:`~proxy.commands.pubsub.counts` understands; None of another reply."""
    count = len(names) * counts.ASKED_EACH
    if not reply.startswith(b"*%d\r\n" % (2 * count)):
        return None
    lines = reply.split(b"\r\n")
    # Most names have no end of a line within: after the head, there are a name's length, the name, and its number.
    plain = len(lines) == 1 + 3 * count + 1
    found = [int(line[1:]) for line in lines[3::3]] if plain else _numbers_behind_names(reply)
    return [found[start : start + counts.ASKED_EACH] for start in range(0, count, counts.ASKED_EACH)]


def _numbers_behind_names(reply: bytes) -> list[int]:
    found = []
    position = reply.index(b"\r\n") + 2
    while position < len(reply):
        end = reply.index(b"\r\n", position)
        if reply[position : position + 1] == b"$":
            position = end + 2 + int(reply[position + 1 : end]) + 2
        else:
            found.append(int(reply[position + 1 : end]))
            position = end + 2
    return found


class Receivers:
    """Publishes, and counts the clients that get it.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._now = services.now
        self._patterns: list[bytes] = []
        self._learning = asyncio.Lock()
        self._not_before = 0.0

    def publish(self, session: Session, argv: list[bytes]) -> Decided:
        """PUBLISH or SPUBLISH channel message."""
        # With CLIENT REPLY OFF and SKIP, nobody is told a number.
        return Channel(argv[1]) if session.muted else self._publish(session, argv)

    async def _publish(self, session: Session, argv: list[bytes]) -> Outcome:
        kind = Kind.SHARD if argv[0].upper() == b"SPUBLISH" else Kind.CHANNEL
        channel = argv[1]
        names = [channel, *(self._announcing(channel) if kind is Kind.CHANNEL else ())]
        payload = b"".join((MULTI, command(tuple(argv)), question(kind, names), EXEC))
        slot, address = await clear(Channel(channel), len(payload))
        refused = session.gives_way(address)
        if refused is not None:
            return refused
        backend = self._router.shared(session, address)
        answer = slotrequests.send(self._router, slot, backend, payload, 3, slotrequests.as_it_came)
        return Later(self._number(kind, names, address, answer))

    async def _number(self, kind: Kind, names: list[bytes], address: str, answer: Awaitable[bytes]) -> bytes:
        """The reply to the client."""
        reply = await answer
        published = PUBLISHED.match(reply)
        if published is not None and published[1] == b"0":
            return NOBODY
        numbers = numbers_in(reply[published.end() :], names) if published is not None else None
        if reply.startswith(ABORTED):
            return REFUSED
        if published is None or numbers is None:
            line = reply.removeprefix(RUN).partition(b"\r\n")[0]
            return line + b"\r\n" if line.startswith(b"-") else ODD
        subscriptions = int(published[1])
        known, further = self._count(names, numbers)
        if subscriptions > known and kind is not Kind.SHARD:
            async with self._learning:
                further += await self._of_new_patterns(names, address, subscriptions - known)
        return replies.integer(subscriptions + further)

    async def _of_new_patterns(self, names: list[bytes], address: str, missing: int) -> int:
        """The further clients of patterns that were not listed when the message was published."""
        asked, further = {*names}, 0
        for learns in (False, True):
            if learns:
                if self._now() < self._not_before:
                    return further
                await self._learn(address)
            # Others may have learned meanwhile.
            new = [name for name in self._announcing(names[0]) if name not in asked]
            asked.update(new)
            reply = await self._ask(address, question(Kind.CHANNEL, new)) if new else b""
            numbers = numbers_in(reply, new)
            if numbers is not None:
                known, more = self._count(new, numbers)
                missing, further = missing - known, further + more
            if missing <= 0:
                return further
        self._not_before = max(self._not_before, self._now() + UNEXPLAINED_SECONDS)
        return further

    def _count(self, names: list[bytes], numbers: list[list[int]]) -> tuple[int, int]:
        """The workers that are subscribed to these, and their further clients. Patterns that nobody has are
        forgotten."""
        for name, of_name in zip(names, numbers, strict=True):
            pattern = name.removeprefix(counts.ANNOUNCES)
            if pattern != name and not any(of_name) and pattern in self._patterns:
                self._patterns.remove(pattern)
        return sum(of_name[0] for of_name in numbers), sum(map(counts.further, numbers))

    def _announcing(self, channel: bytes) -> list[bytes]:
        """The channels that announce the listed patterns of a channel."""
        found = [counts.ANNOUNCES + pattern for pattern in self._patterns if match(pattern, channel)]
        return found[:MOST_MATCHING]

    async def _learn(self, address: str) -> None:
        reply = await self._ask(address, LIST)
        if not reply.startswith(b"*"):
            # What one server refuses is no word on the patterns at others.
            return
        listed = sorted(keys_of(reply))
        self._not_before = self._now() + UNEXPLAINED_SECONDS * (len(listed) // MOST_LISTED)
        self._patterns = [name.removeprefix(counts.ANNOUNCES) for name in listed[:MOST_LISTED]]

    async def _ask(self, address: str, request: bytes) -> bytes:
        return await self._router.shared_backend(address).ask(request)
