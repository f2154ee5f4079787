"""SUNION, SINTER, SDIFF, SINTERCARD, ZUNION, ZINTER, ZDIFF and ZINTERCARD of keys of several slots, and those that
store what they find: SUNIONSTORE and its like.

Where all keys share a slot, their server does it, and the request does not come here as a rule. Else each key is read
at its owner at one moment, not all keys at the same moment, and the proxy computes the reply.

What is to be stored is written by one command: RESTORE, which replaces what is there, or DEL if nothing was found. So
whoever reads the key sees what was there before, or the whole of what was found. The command goes the way of every
write: it waits for a locked slot, and in a migration until the key has left the source (**absent-first**,
**drained**). It is sent once: if its outcome is unknown, the client gets the error. A destination that is also a source
is refused: an element that was added there after the read would not be in what replaces it, though it was acknowledged.

Options that the proxy does not understand, mostly because they are wrong, are left to the first key's server: it gets
the request with this key in all places, and its error is the reply. A request that stores goes to no server so.

**bounded**: see :mod:`proxy.commands.keyreads`. A computation over more than :data:`SMALL` bytes waits until no
other such one is under way: elements that are Python objects take several times the bytes of their replies.
"""

import asyncio
from contextlib import nullcontext

from proxy.commands import replies
from proxy.commands.family import Decided, Family, Handler
from proxy.commands.keyreads import MOST_KEYS, Held, too_many_keys
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.sets import scores
from proxy.commands.sets.computing import Computation
from proxy.commands.sets.reading import Sets
from proxy.commands.sets.request import sources, understand
from proxy.engine.backend import command as make_request
from proxy.engine.outcomes import Outcome, clear
from proxy.engine.session import Session
from proxy.servers import slotrequests
from slots import commands
from slots.commands import Command

SMALL = 262_144
DESTINATION_IS_READ = (
    "its destination is also a source, and what others write there between the read and the write would be lost"
)


class SetCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        versions: the versions of the servers, which write scores in different ways.
        held: what all requests of the worker keep.
    """

    def __init__(self, services: Services, versions: ServerVersions, held: Held) -> None:
        self._router = services.router
        self._versions = versions
        self._held = held
        self._large = asyncio.Lock()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        rows = commands.table().values()
        return {command.name: self.compute for command in rows if command.computed or command.stored}

    def compute(self, session: Session, argv: list[bytes]) -> Decided:
        """SUNION key [key ...] and its like."""
        command = commands.find(argv)
        keys = commands.keys_of(command, argv)
        slots = {self._router.slot_of_key(session.database, key) for key in keys}
        if len(slots) == 1:
            return keys
        if command.stored and keys[0] in sources(command, keys):
            return replies.refused_over_slots(command.name, DESTINATION_IS_READ)
        if len(sources(command, keys)) > MOST_KEYS:
            return too_many_keys(command.name)
        return self._compute(session, command, argv)

    async def _compute(self, session: Session, command: Command, argv: list[bytes]) -> Outcome:
        asked = understand(command, argv)
        with Sets(self._router, session, command.name, self._held) as sets:
            if isinstance(asked, str) and command.name == "SINTERCARD":
                # Redis looks at its options first, and at the keys of all others.
                return await self._of_first_key(sets, command, argv)
            read = sets.sorted_sets if command.name.startswith("Z") else sets.sets
            said = await read(sources(command, commands.keys_of(command, argv)))
            if isinstance(asked, str):
                return replies.error(asked) if command.stored else await self._of_first_key(sets, command, argv)
            computation = Computation(asked, sets.without_scores, session.protocol, self._write)
            async with self._large if sets.bytes > SMALL else nullcontext():
                if asked.destination is None:
                    return await computation.reply(said)
                count, value = await computation.stored(said)
            return await self._store(session, asked.destination, count, value)

    async def _store(self, session: Session, key: bytes, count: int, value: bytes) -> bytes:
        """Have the key's server replace what it has; the reply is the number of elements."""
        request = make_request((b"RESTORE", key, b"0", value, b"REPLACE") if count else (b"DEL", key))
        slot, address = await clear([key], len(request))
        backend = self._router.shared(session, address)

        def finish(reply: bytes) -> bytes:
            return reply if reply.startswith(b"-") else replies.integer(count)

        return await slotrequests.send(self._router, slot, backend, request, 0, finish)

    async def _of_first_key(self, sets: Sets, command: Command, argv: list[bytes]) -> bytes:
        """What is wrong with a request, in the words of its first key's server."""
        places = commands.key_positions(command, argv)
        first = argv[places[0]]
        request = list(argv)
        for place in places:
            request[place] = first
        said = await (await sets.ask(first, request))
        if said.startswith(b"-"):
            return said
        return replies.refused_over_slots(command.name, "the proxy does not know one of its options")

    @property
    def _write(self) -> scores.Write:
        return scores.writer(self._versions.lowest)
