"""DBSIZE, KEYS, RANDOMKEY and LASTSAVE: every master is asked, see :mod:`proxy.commands.keyspace.fanout`."""

import random
from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.keyspace.fanout import ALWAYS_MOVING, ATTEMPTS, FanOut, FanOutError
from proxy.commands.keyspace.listedkeys import PAGE, joined, keys_of, only_key
from proxy.commands.keyspace.moves import Moves
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session
from slots.reserved import RESERVED_KEYS
from slots.scripts import load

RANDOM_ATTEMPTS = 3
"""How many times RANDOMKEY counts the keys again after servers with keys gave none: keys expire, and move."""
MOST_LOOKS = 100
"""How many times RANDOMKEY asks again after it got a key that the server does not own (**owned**)."""
SEARCH_COUNT = 1_000
"""COUNT of RANDOMKEY's search: about a millisecond of a server's time."""
PLACES = 1 << 32
"""The places from which the search may begin: cursors of SCAN."""
DBSIZE = command(("DBSIZE",))
DBSIZE_OF_CLIENTS = load("dbsize")
LASTSAVE = command(("LASTSAVE",))
RANDOMKEY = command(("RANDOMKEY",))
NULLS = (b"$-1\r\n", b"_\r\n")


class KeyspaceCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        moves: brings the worker's view of moves up to date, and gives it.
    """

    def __init__(self, services: Services, moves: Callable[[], Moves]) -> None:
        self._router = services.router
        self._moves = moves
        self._fan_out = FanOut(services, moves)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "DBSIZE": self.dbsize,
            "KEYS": self.keys,
            "RANDOMKEY": self.randomkey,
            "LASTSAVE": self.lastsave,
        }

    async def dbsize(self, session: Session, argv: list[bytes]) -> Outcome:
        """DBSIZE: the sum. While slots move key by key, one that has just moved may count twice; none is left out."""
        return replies.integer(sum((await self._sizes(session)).values()))

    async def _sizes(self, session: Session) -> dict[str, int]:
        try:
            said = await self._fan_out.ask(
                session,
                command(("EVAL", DBSIZE_OF_CLIENTS.text, len(RESERVED_KEYS), *RESERVED_KEYS, session.database)),
            )
        except FanOutError as error:
            if not error.reply.startswith(b"-NOPERM"):
                raise
            # Without scripts nothing moves.
            said = await self._fan_out.ask(session, DBSIZE)
        return {address: int(reply[1:]) for address, reply in said.latest.items()}

    async def keys(self, session: Session, argv: list[bytes]) -> Outcome:
        """KEYS pattern: one array made of all arrays, with each key once."""
        said = await self._fan_out.ask(session, command(tuple(argv)))
        return await joined(
            self._router,
            session.database,
            [(array, said.shown.at(address)) for address, array in said.all],
            session.hides,
        )

    async def randomkey(self, session: Session, argv: list[bytes]) -> Outcome:
        """RANDOMKEY: every key with about the same chance, unless it is searched; nil only if there is none."""
        for _ in range(RANDOM_ATTEMPTS):
            sizes = {address: size for address, size in (await self._sizes(session)).items() if size}
            looks = 0
            while sizes:
                [address] = random.choices(list(sizes), list(sizes.values()))
                switches = (await self._fan_out.settled()).switches
                reply = await self._fan_out.ask_one(session, address, RANDOMKEY)
                if reply in NULLS:
                    del sizes[address]
                    continue
                key = only_key(reply)
                moves = self._moves()
                # hidden: behind a switch, the key may have been the target's by the time of this answer.
                if (
                    key is not None
                    and moves.switches == switches
                    and moves.shown.has(address, self._router.home_of_key(session.database, key))
                ):
                    return reply
                looks += 1
                if looks == MOST_LOOKS:
                    found = await self._search(session, address)
                    if found is not None:
                        return found
                    del sizes[address]
                    looks = 0
        for address in self._moves().masters.values():
            # If a switch was given up at its last moment, the source's keys count as hidden until it is swept.
            found = await self._search(session, address)
            if found is not None:
                return found
        return replies.null(session.protocol)

    async def _search(self, session: Session, address: str) -> bytes | None:
        """One of the keys of a server that it owns, which may be few among many others; None if it has none.

        The search begins anywhere, and goes on from the first place. So a key that comes soon after another one in the
        server's order is found less often.

        Raises :class:`FanOutError`, also if copied slots switch during each of so many attempts at one page.
        """
        attempts = 0
        for position in (random.randrange(1, PLACES), 0):
            while True:
                moves = await self._fan_out.settled()
                shown, switches = moves.shown.at(address), moves.switches
                page = await self._fan_out.ask_one(session, address, command(("SCAN", position, "COUNT", SEARCH_COUNT)))
                found = PAGE.match(page)
                if found is None:
                    return None
                if self._moves().switches != switches:
                    attempts += 1
                    if attempts == ATTEMPTS:
                        raise FanOutError(replies.error(ALWAYS_MOVING))
                    continue
                attempts = 0
                array = await joined(self._router, session.database, [(page[found.end() :], shown)])
                keys = keys_of(array)
                if keys:
                    return replies.bulk(random.choice(keys))
                position = int(found[1])
                if not position:
                    break
        return None

    async def lastsave(self, session: Session, argv: list[bytes]) -> Outcome:
        """LASTSAVE: the oldest one, so that everything written before it is saved everywhere."""
        said = await self._fan_out.ask(session, LASTSAVE)
        return replies.integer(min(int(reply[1:]) for _, reply in said.all))
