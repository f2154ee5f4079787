"""SCAN over all groups: each page comes from one server, with its cursor replaced and its hidden keys removed.

:mod:`proxy.commands.keyspace.scanwalk` says where a scan goes, and why no key is missed while slots move.
"""

import re
from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.keyspace.fanout import ALWAYS_MOVING, ATTEMPTS
from proxy.commands.keyspace.listedkeys import PAGE, joined
from proxy.commands.keyspace.moves import Moves
from proxy.commands.keyspace.scancursor import EPOCHS, GROUPS, TOTAL_BITS, Cursor, CursorError
from proxy.commands.keyspace.scanwalk import FIRST, Walk
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome, unlocked
from proxy.engine.refusals import NO_SERVER
from proxy.engine.scans import Pages
from proxy.engine.session import Session
from proxy.servers import everywhere
from slots.keys import INTEGER
from slots.reserved import RESERVED
from slots.table import SlotTable

LATER_COUNT = 2_000
"""COUNT of the passes after the first. Such a page takes the worker 0.1 to 0.6 ms, the most if all slots are on their
way, for then each key is a Python object. Of 10,000 keys it takes up to 20 ms."""
PING = command(("PING",))
INVALID_CURSOR = b"-ERR invalid cursor\r\n"
EMPTY = replies.array([])
OVER = replies.array([replies.bulk("0"), EMPTY])

NUMBER = re.compile(rb"|([+-]?)0*([0-9]{1,20})")
"""The cursors that Redis can read, with strtoul."""


class Scanning(Family):
    """The family's handler.

    Args:
        services: the worker's parts.
        moves: brings the worker's view of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._router = services.router
        self._moves = moves
        self._walk = Walk(moves())

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"SCAN": self.scan}

    def table_applied(self, table: SlotTable) -> None:
        """Every table counts, even those between two pages."""
        self._moves()

    async def scan(self, session: Session, argv: list[bytes]) -> Outcome:
        """SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]."""
        packed = read_cursor(argv[1])
        if packed is None:
            return INVALID_CURSOR
        for _ in range(ATTEMPTS):
            await unlocked(lambda: self._moves().switching)
            moves = self._moves()
            switches = moves.switches
            self._give_pages(moves)
            cursor = self._walk.resume(Cursor.unpack(packed)) if packed else self._walk.begin()
            if cursor is None:
                return NO_SERVER
            options = argv[2:] if cursor.number == FIRST else with_count(argv[2:], LATER_COUNT)
            master, shown = moves.masters.get(cursor.group), moves.shown
            # A group without slots has no keys to give.
            page = OVER
            if master is not None:
                request = command(("SCAN", cursor.position, *options))
                page = await self._router.shared(session, master).ask(request)
            if self._moves().switches == switches:
                break
            # hidden: by the time of this answer, keys may have been the target's.
        else:
            return replies.error(ALWAYS_MOVING)
        found = PAGE.match(page)
        if found is None:
            return page
        position = int(found[1])
        if not position:
            unreached = await self._reach_all(session)
            if unreached is not None:
                return unreached
        self._moves()
        following = self._walk.advance(cursor, position)
        # A page has a key twice only if the server's page did.
        keys = (
            await joined(self._router, session.database, [(page[found.end() :], shown.at(master))], session.hides)
            if master is not None
            else EMPTY
        )
        if keys.startswith(b"-"):
            return keys
        try:
            packed = following.pack() if following is not None else 0
        except CursorError as error:
            return replies.error(str(error))
        return b"*2\r\n%b%b" % (replies.bulk(str(packed)), keys)

    def _give_pages(self, moves: Moves) -> None:
        """Tell the engine what it needs for pages in the middle of a group's server, until there is another table."""
        router = self._router
        if router.pages is None or router.pages.generation != router.generation:
            groups = {
                Cursor(FIRST, moves.epoch % EPOCHS, group, 0).pack(): (master, moves.shown.at(master))
                for group, master in moves.masters.items()
                if group < GROUPS
            }
            router.pages = Pages(router.generation, groups, next(iter(groups), None), RESERVED)

    async def _reach_all(self, session: Session) -> bytes | None:
        """None once every master has answered anything at all: none has fenced this proxy off. Else the error."""
        masters = self._moves().masters.values()
        said = await everywhere.ask_each([self._router.shared(session, master) for master in masters], PING)
        return next((reply for address, reply in said.items() if everywhere.unheard(address, reply)), None)


def read_cursor(text: bytes) -> int | None:
    """A cursor as Redis reads it; None if it is not one, or if no proxy can have given it."""
    read = NUMBER.fullmatch(text)
    if read is None:
        return None
    number = int(read[2] or 0)
    # Redis reads a negative cursor as a large number, of more bits than any cursor given here.
    return None if number >> TOTAL_BITS or (number and read[1] == b"-") else number


def with_count(options: list[bytes], least: int) -> list[bytes]:
    """SCAN's options with a COUNT of at least ``least``; options that cannot be read stay as they are."""
    given = 0
    for name, value in zip(options[::2], options[1::2], strict=False):
        if name.upper() == b"COUNT":
            if not INTEGER.fullmatch(value):
                return options
            given = int(value)
            if given < 1:
                return options
    if len(options) % 2 or given >= least:
        return options
    # The last COUNT counts.
    return [*options, b"COUNT", b"%d" % least]
