"""Computes over sets and sorted sets that were read, as Redis does: their elements, and the elements' scores. Makes
the client's reply of what was found, or what RESTORE writes.

A large computation has many turns of the event loop, of :data:`TURN_SECONDS` each, so that the worker's other clients
are served meanwhile.
"""

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from itertools import islice
from typing import Any, TypeVar

import hiredis

from proxy.commands import replies
from proxy.commands.sets import payloads
from proxy.commands.sets.request import SetRequest
from proxy.commands.sets.scores import Write

TURN_SECONDS = 0.002
AT_ONCE = 512
"""Elements between two looks at the clock."""
PIECE = 65_536
"""Bytes of a reply that are parsed between two looks at the clock."""

Element = TypeVar("Element")


class UnexpectedReplyError(Exception):
    """A server's reply is no set."""


class Computation:
    """One computation, from the servers' replies to the client's, or to what is stored.

    Args:
        asked: what to compute.
        without_scores: the keys of sorted sets that have a set, whose scores are 1.
        protocol: the session's.
        write: writes scores.
    """

    def __init__(self, asked: SetRequest, without_scores: Collection[bytes], protocol: int, write: Write) -> None:
        self._asked = asked
        self._without_scores = without_scores
        self._protocol = protocol
        self._write = write
        self._turn_ends = time.monotonic() + TURN_SECONDS

    async def reply(self, said: dict[bytes, bytes]) -> bytes:
        """The client's reply.

        Args:
            said: the servers' replies by key. Each is taken out when it is read.
        """
        if self._asked.is_sorted:
            scores = await self._sorted(said)
            return await (self._number_of(scores) if self._asked.counts else self._sorted_reply(scores))
        members = await self._sets(said)
        return await (self._number_of(members) if self._asked.counts else self._set_reply(members))

    async def stored(self, said: dict[bytes, bytes]) -> tuple[int, bytes]:
        """The number of elements to store, and what RESTORE writes. ``said`` is the same."""
        if self._asked.is_sorted:
            scores = await self._sorted(said)
            count = len(scores)
            # In the order of a server's own snapshots: it finds the place of each at once.
            pairs = self._slices(await self._in_order(scores, highest_first=True))
            return count, await self._payload(payloads.SORTED_SET, count, pairs, payloads.scored)
        members = await self._sets(said)
        count = len(members)
        return count, await self._payload(payloads.SET, count, self._taken_from(members), payloads.text)

    # -- sets ----------------------------------------------------------------------------------------------

    async def _sets(self, said: dict[bytes, bytes]) -> set[bytes]:
        sets: list[set[bytes]] = []
        for key in dict.fromkeys(self._asked.keys):
            members: set[bytes] = set()
            async for some in self._slices(await self._parsed(said.pop(key))):
                members.update(some)
            if self._asked.operation == "INTER" or not sets:
                sets.append(members)
            elif self._asked.operation == "UNION":
                async for some in self._taken_from(members):
                    sets[0].update(some)
            else:
                async for some in self._taken_from(members):
                    sets[0].difference_update(some)
        sets.sort(key=len)
        found = sets.pop(0)
        for other in sets:
            kept: set[bytes] = set()
            async for some in self._taken_from(found):
                kept.update(member for member in some if member in other)
            found = kept
        for other in sets:
            await self._give_up(other)
        if self._asked.operation == "DIFF" and self._asked.keys[0] in self._asked.keys[1:]:
            await self._give_up(found)
        return found

    async def _set_reply(self, found: set[bytes]) -> bytes:
        header = b"%b%d\r\n" % (b"~" if self._protocol == 3 else b"*", len(found))
        return await self._joined(header, self._taken_from(found), replies.bulk)

    # -- sorted sets ---------------------------------------------------------------------------------------

    async def _sorted(self, said: dict[bytes, bytes]) -> dict[bytes, float]:
        read: dict[bytes, dict[bytes, float]] = {}
        for key in dict.fromkeys(self._asked.keys):
            elements = await self._parsed(said.pop(key))
            read[key] = await (self._ones(elements) if key in self._without_scores else self._with_scores(elements))
        both = [(read[key], weight) for key, weight in zip(self._asked.keys, self._asked.weights, strict=True)]
        if self._asked.operation == "DIFF":
            found = both[0][0]
            for other, _ in both[1:]:
                kept: dict[bytes, float] = {}
                async for some in self._slices(found.items()):
                    kept.update(pair for pair in some if pair[0] not in other)
                found = kept
        else:
            # As Redis does: the order decides on the last digits of a sum.
            both.sort(key=lambda one: len(one[0]))
            found = await (self._union(both) if self._asked.operation == "UNION" else self._intersection(both))
        both.clear()
        for scores in read.values():
            if scores is not found:
                await self._give_up(scores)
        return found

    async def _sorted_reply(self, found: dict[bytes, float]) -> bytes:
        header = b"*%d\r\n" % (len(found) * (2 if self._asked.with_scores and self._protocol == 2 else 1))
        return await self._joined(header, self._slices(await self._in_order(found)), self._form())

    async def _in_order(self, found: dict[bytes, float], highest_first: bool = False) -> Iterable[tuple[float, bytes]]:
        runs: list[list[tuple[float, bytes]]] = []
        async for pairs in self._taken_from(found):
            runs.append(sorted(((score, member) for member, score in pairs), reverse=highest_first))
        return heapq.merge(*runs, reverse=highest_first)

    async def _with_scores(self, elements: list[Any]) -> dict[bytes, float]:
        """Members with their scores; RESP3 has pairs, RESP2 has them one after the other."""
        scores: dict[bytes, float] = {}
        members = iter(elements)
        pairs = elements if elements and isinstance(elements[0], list) else zip(members, members, strict=True)
        async for some in self._slices(pairs):
            scores.update((member, float(score)) for member, score in some)
        return scores

    async def _ones(self, members: list[Any]) -> dict[bytes, float]:
        scores: dict[bytes, float] = {}
        async for some in self._slices(members):
            scores.update(dict.fromkeys(some, 1.0))
        return scores

    async def _union(self, both: list[tuple[dict[bytes, float], float]]) -> dict[bytes, float]:
        combine = COMBINE[self._asked.aggregate]
        found: dict[bytes, float] = {}
        for scores, weight in both:
            async for some in self._slices(scores.items()):
                for member, score in some:
                    weighted = _number(score * weight)
                    found[member] = combine(found[member], weighted) if member in found else weighted
        return found

    async def _intersection(self, both: list[tuple[dict[bytes, float], float]]) -> dict[bytes, float]:
        combine = COMBINE[self._asked.aggregate]
        found: dict[bytes, float] = {}
        (smallest, first_weight), *others = both
        async for some in self._slices(smallest.items()):
            for member, score in some:
                if all(member in other for other, _ in others):
                    total = _number(score * first_weight)
                    for other, weight in others:
                        total = combine(total, other[member] * weight)
                    found[member] = total
        return found

    def _form(self) -> Callable[[tuple[float, bytes]], bytes]:
        if not self._asked.with_scores:
            return lambda pair: replies.bulk(pair[1])
        write = self._write
        if self._protocol == 3:
            return lambda pair: b"*2\r\n%b,%b\r\n" % (replies.bulk(pair[1]), write(pair[0]).encode())
        return lambda pair: replies.bulk(pair[1]) + replies.bulk(write(pair[0]))

    # -- in turns ------------------------------------------------------------------------------------------

    async def _pause(self) -> None:
        """Let others go first if this turn is over."""
        if time.monotonic() > self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = time.monotonic() + TURN_SECONDS

    async def _slices(self, elements: Iterable[Element]) -> AsyncIterator[list[Element]]:
        left = iter(elements)
        while some := list(islice(left, AT_ONCE)):
            yield some
            await self._pause()

    async def _taken_from(self, elements: Any) -> AsyncIterator[list[Any]]:
        """As ``_slices``, of a set or a dictionary, which is empty afterwards: to free much at once takes long."""
        take = elements.popitem if isinstance(elements, dict) else elements.pop
        while elements:
            yield [take() for _ in range(min(AT_ONCE, len(elements)))]
            await self._pause()

    async def _give_up(self, elements: Any) -> None:
        async for _ in self._taken_from(elements):
            pass

    async def _parsed(self, reply: bytes) -> list[Any]:
        """The elements of a reply. Raises :class:`UnexpectedReplyError`."""
        reader = hiredis.Reader()
        found: Any = False
        for start in range(0, len(reply), PIECE):
            reader.feed(reply, start, min(PIECE, len(reply) - start))
            found = reader.gets()
            await self._pause()
        if not isinstance(found, list):
            raise UnexpectedReplyError(f"a server answered {reply[:40]!r} for a set")
        return found

    async def _joined(
        self, header: bytes, slices: AsyncIterator[list[Element]], form: Callable[[Element], bytes]
    ) -> bytes:
        parts = [header]
        async for some in slices:
            parts.append(b"".join(map(form, some)))
        return b"".join(parts)

    async def _payload(
        self, kind: bytes, count: int, slices: AsyncIterator[list[Element]], form: Callable[[Element], bytes]
    ) -> bytes:
        made = payloads.Payload(kind, count)
        async for some in slices:
            made.add(b"".join(map(form, some)))
        return made.end()

    async def _number_of(self, found: set[bytes] | dict[bytes, float]) -> bytes:
        limit, number = self._asked.limit, len(found)
        await self._give_up(found)
        return replies.integer(min(number, limit) if limit else number)


def _number(score: float) -> float:
    """Infinity times nothing, and infinity less infinity, are nothing to Redis."""
    return 0.0 if math.isnan(score) else score


COMBINE: dict[bytes, Callable[[float, float], float]] = {
    b"SUM": lambda one, other: _number(one + other),
    # The first of equal ones stays, and so does any number beside one that is none.
    b"MIN": lambda one, other: other if other < one else one,
    b"MAX": lambda one, other: other if other > one else one,
}
