"""Asks the proxies what they have counted, and writes what they answer into the book.

A proxy is asked every :data:`ASK_SECONDS` over its control stream, or sooner in a small fleet, one question at a time:
one that does not answer is not asked again over that stream. A stream on which an answer comes that nobody asked for,
that is too long, or that has no meaning, is ended. What has a meaning but cannot be true is left out: a wrong statistic
does not cost a proxy its stream.

**bounded**: all proxies together tell :data:`MOST_ROWS` slots and :data:`MOST_NAMES` servers and users a second at
most; each has the same share. What has no room comes with a later answer.
"""

import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from slots.messages.control import Load, TellLoad
from slots.messages.load import KEY_BYTES, ROW_BYTES, HotKey, Notable, ServerTraffic, Traffic
from slots.table import SlotTable
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.load.book import Book
from topom.load.measured import Counts
from topom.periodic import Look, Loop
from topom.proxies.member import Link, Member, Refused
from topom.proxies.members import Members

log = structlog.get_logger(__name__)

ASK_SECONDS = 5.0
"""Between two questions to a proxy of a large fleet, and how long a period of the book lasts."""
SOON_SECONDS = 1.5
"""Between two questions to a proxy of a small one: a worker tells its hot keys each second and an answer of the API is
kept for two, so a key that becomes hot is there within five."""
QUESTIONS_A_SECOND = 50.0
"""To a fleet that is neither."""
LOOK_SECONDS = 0.5
"""Between two looks at whom to ask."""
MOST_ROWS = 200_000
"""Slots that all proxies together tell, a second."""
MOST_NAMES = 5_000
"""Servers and users that all proxies together tell, a second."""
LEAST = 64
"""Slots, and names, of one answer, however many proxies there are."""
ROWS_OF_AN_ANSWER = 8_192
"""Slots, however few proxies there are: with :data:`NAMES_OF_AN_ANSWER` of the longest names, an answer fits a frame of
a megabyte."""
NAMES_OF_AN_ANSWER = 400
MOST_A_SECOND = 10_000_000.0
"""Requests of one proxy that are believed."""
MOST_BYTES_A_SECOND = 1e12
"""Of one proxy, that are believed."""
MOST_OF_A_REQUEST = 1e12
"""Of bytes, elements or microseconds of one request, that are believed."""
LONG_SECONDS = 1.5 * ASK_SECONDS
"""More time in which this topom, or the stream of a proxy, stood still: one answer is all that came of it."""
LATE_SECONDS = 5.0
"""Longer than this time has passed since the last answer, an answer may be of: messages take time."""
TELLING_SECONDS = 3 * ASK_SECONDS
"""For how long a proxy counts as one that tells its load, after its last answer."""


@dataclass
class _Asked:
    """What is going on over one proxy's stream."""

    link: Link
    due: float
    """When the next question is, by the clock."""
    told_at: float | None
    """When the proxy was asked what it answered last, over this stream or an earlier one; None if this topom has yet to
    hear it, or to hear it again."""
    between: float = ASK_SECONDS
    """Seconds between two questions."""
    number: int = 0
    """Of the latest question; 0 for none."""
    waiting: bool = False
    at: float = 0.0
    """When that was asked."""
    rows: int = 0
    names: int = 0
    doubted: bool = False
    """Whether an answer was not believed."""


class _NotBelieved(Exception):
    """What an answer says cannot be true."""


class Asking(Loop):
    """Asks every proxy that is connected, and ends the book's periods.

    Args:
        book: gets the answers.
        clock: seconds, growing.
    """

    name = "load"

    def __init__(
        self, ledger: Ledger, members: Members, book: Book, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._members = members
        self._book = book
        self._clock = clock
        self._asked: dict[int, _Asked] = {}
        self._heard: dict[int, float] = {}
        """When each member last told what was believed, or else was first seen."""
        self._known: set[int] = set()
        """Members that have told this topom, over any stream."""
        self._period_began: float | None = None
        self._servers: tuple[SlotTable | None, frozenset[str]] = (None, frozenset())

    @property
    def telling(self) -> int:
        """Proxies that tell their load."""
        now = self._clock()
        return sum(
            one.told_at is not None and now - one.told_at < TELLING_SECONDS for one in list(self._asked.values())
        )

    async def look(self) -> Look:
        """End the period if it is over, and ask whoever is due."""
        now = self._clock()
        if self._period_began is None:
            self._period_began = now
        members = self._members.all()
        if now - self._period_began >= ASK_SECONDS:
            self._heard = {member.record.id: self._heard.get(member.record.id, now) for member in members}
            self._known &= self._heard.keys()
            whole = all(now - at < TELLING_SECONDS for at in self._heard.values())
            self._book.end_period(min(now - self._period_began, LONG_SECONDS), self._ledger.table, whole)
            self._period_began = now
        connected = [member for member in members if member.link is not None]
        present = [member for member in connected if not member.lost]
        for proxy_id in self._asked.keys() - {member.record.id for member in present}:
            # A lost proxy that was only paused yet answers what it was asked.
            self._asked[proxy_id].told_at = None
            self._book.end_proxy(proxy_id)
        for proxy_id in self._asked.keys() - {member.record.id for member in connected}:
            del self._asked[proxy_id]
        for place, member in enumerate(present):
            self._ask(member, now, place, len(present))
        return Look(again=LOOK_SECONDS)

    def _ask(self, member: Member, now: float, place: int, number: int) -> None:
        link = member.link
        assert link is not None
        asked = self._asked.get(member.record.id)
        if asked is None or asked.link is not link:
            # The first questions to a large fleet are spread over time, and so are those that follow.
            spread = min(ASK_SECONDS, LOOK_SECONDS * (number // 50)) * place / number
            due, told_at = (now + spread, None) if asked is None else (asked.due, asked.told_at)
            asked = self._asked[member.record.id] = _Asked(link, due, told_at)
        if asked.waiting or now < asked.due:
            return
        between = min(ASK_SECONDS, max(SOON_SECONDS, number / QUESTIONS_A_SECOND))
        asked.number, asked.waiting, asked.at, asked.due = asked.number + 1, True, now, now + between
        asked.between = between
        asked.rows = _part(MOST_ROWS * between, number, ROWS_OF_AN_ANSWER)
        asked.names = _part(MOST_NAMES * between, number, NAMES_OF_AN_ANSWER)
        link.say(TellLoad(number=asked.number, slots=asked.rows, names=asked.names))

    def answered(self, member: Member, link: Link, load: Load) -> None:
        """A proxy has answered over this link. Raises :class:`~topom.proxies.member.Refused`."""
        asked = self._asked.get(member.record.id)
        if asked is None or asked.link is not link or not asked.waiting or asked.number != load.number:
            raise Refused("invalid", "the proxy tells its load without being asked")
        rows = _decoded(load.slots)
        keys = [(said, _decoded(said.key)) for said in load.hot_keys]
        notable = [(said, _decoded(said.key)) for said in load.notable]
        if len(rows) > asked.rows * ROW_BYTES or len(load.servers) + len(load.users) > asked.names:
            raise Refused("invalid", "the proxy tells more of its load than it was asked for")
        try:
            self._require_time(load, asked.told_at)
            _require_counts(load)
            # The book forgets a proxy that is not heard, but not the slots, servers and users of which it told.
            own = _share(load.seconds, asked.between if asked.told_at is None else None)
            share = _share(load.seconds, None) if member.record.id in self._known else own
            most, most_bytes = _most(load)
            self._book.by_slot.table.add_told(rows, most, most_bytes, share)
        except ValueError as error:
            raise Refused("invalid", str(error)) from error
        except (_NotBelieved, OverflowError) as error:
            self._doubt(asked, member, str(error))
        else:
            self._write(member.record.id, load, share, own)
            hot = [(said, key) for said, key in keys if self._can_be_hot(said, key)]
            believed = [(said, key) for said, key in notable if self._can_be(said, key)]
            if len(hot) + len(believed) < len(keys) + len(notable):
                self._doubt(asked, member, "it tells a hot key, or a notable request, that there cannot be")
            self._book.keys.take(member.record.id, hot, load.hashed)
            self._book.notable.take(member.record.id, believed, load.hashed)
        self._known.add(member.record.id)
        asked.waiting, asked.told_at = False, asked.at

    def _write(self, proxy_id: int, load: Load, share: float, own: float) -> None:
        book = self._book
        book.told()
        self._heard[proxy_id] = self._clock()
        book.by_proxy.add(proxy_id, _shared(load.all, own))
        known = self._known_servers()
        for server, traffic in load.servers.items():
            if server in known:
                book.by_server.add(server, _shared(traffic, share))
        for user, said in load.users.items():
            book.by_user.add(user, _shared(said, share))

    def _require_time(self, load: Load, before: float | None) -> None:
        if before is not None and load.seconds > self._clock() - before + LATE_SECONDS:
            raise _NotBelieved(f"its counts are of {load.seconds:g} s, and it told of an earlier time since")

    def _can_be_hot(self, said: HotKey, key: bytes) -> bool:
        """Whether there can be such a hot key. If not, it alone is left out."""
        return (
            said.slot < len(self._book.by_slot)
            and said.database < self._ledger.state.product.databases
            and _named(key, said.length)
            and said.excess <= said.rate <= MOST_A_SECOND
        )

    def _can_be(self, said: Notable, key: bytes) -> bool:
        """Whether there can be such a request. If not, it alone is left out."""
        return (
            said.slot < len(self._book.by_slot)
            and said.database < self._ledger.state.product.databases
            and _named(key, said.length)
            and max(said.microseconds, said.bytes_in, said.bytes_out, said.elements) <= MOST_OF_A_REQUEST
        )

    @staticmethod
    def _doubt(asked: _Asked, member: Member, reason: str) -> None:
        if not asked.doubted:
            asked.doubted = True
            log.warning("load_not_believed", proxy=member.record.id, reason=reason)

    def _known_servers(self) -> frozenset[str]:
        table = self._ledger.table
        if self._servers[0] is not table:
            self._servers = table, frozenset(all_servers(table))
        return self._servers[1]


def _share(seconds: float, first: float | None) -> float:
    """How much of what a proxy counted in so many seconds goes into the period.

    After a long time without an answer, a period gets no more than its own share. The first answer is also of time
    before this topom asked, and counts as one of the usual length, which is ``first``. Else all of it is of time since
    the last answer, over whichever stream that came.
    """
    usual, longest = (ASK_SECONDS, LONG_SECONDS) if first is None else (first, first)
    return 1.0 if seconds <= longest else usual / seconds


def _named(key: bytes, length: int) -> bool:
    """Whether these can be the first bytes of a key of this length."""
    return len(key) <= min(length, KEY_BYTES)


def _part(limit: float, proxies: int, most: int) -> int:
    """What one proxy may tell in an answer, of what all may tell between two of them."""
    return min(most, max(LEAST, int(limit / proxies)))


def _most(load: Load) -> tuple[float, float]:
    """Requests and bytes that an answer may have. A first answer may be of a short time."""
    seconds = load.seconds + 1.0
    return MOST_A_SECOND * seconds, MOST_BYTES_A_SECOND * seconds


def _require_counts(load: Load) -> None:
    most, most_bytes = _most(load)
    for traffic in _traffics(load):
        if max(traffic[:2]) > most or max(traffic[2:4]) > most_bytes:
            raise _NotBelieved(f"it counted {max(traffic[:4])} requests or bytes in {load.seconds:g} s")
    if any(server.microseconds > MOST_OF_A_REQUEST * (server.requests + 1) for server in load.servers.values()):
        raise _NotBelieved("a server took more time than there was")
    if any(server.timed > server.requests for server in load.servers.values()):
        raise _NotBelieved("a server took time for more requests than it had")


def _traffics(load: Load) -> Iterator[tuple[float, ...]]:
    yield load.all
    yield from load.servers.values()
    yield from load.users.values()


def _shared(traffic: Traffic | ServerTraffic, share: float) -> Counts:
    requests, errors, bytes_in, bytes_out, *time = (share * count for count in traffic)
    microseconds, timed = time or (0.0, 0.0)
    return Counts(requests, errors, bytes_in, bytes_out, microseconds, timed)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError) as error:
        raise Refused("invalid", f"the proxy's load is not written in base64: {error}") from error
