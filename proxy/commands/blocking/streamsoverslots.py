"""XREAD of streams of several slots: each stream is read at its owner, and the proxy joins the replies.

A stream's read goes the way of every command about one key, with its own id (:mod:`proxy.commands.keyreads`). Where
something is wrong with several, the error is that of the first one, as in Redis.

With BLOCK, a client that has found nothing waits (:mod:`proxy.commands.blocking.waitedkeys`), and nothing is under way
for it. When streams may have new entries, it reads these, and waits again if there are none for it. ``$`` becomes the
stream's last generated id before the client waits, and ``+`` of Redis 7.4, which has found no entry, becomes 0-0. So
what is added later is found by whichever read comes after it.

Nothing is taken. So a read that has failed is made again, and a reply that never reaches its client loses no entry.
"""

from collections.abc import Iterable, Sequence

from proxy.commands.blocking import streamreads
from proxy.commands.blocking.blockingrequest import nothing_came
from proxy.commands.blocking.keywait import STREAM, KeyWait, WaitedKey
from proxy.commands.blocking.streamreads import NOTHING_YET, StreamRead, last_generated
from proxy.commands.blocking.waitedkeys import FULL as NO_ROOM
from proxy.commands.blocking.waitedkeys import NOT_NOW, FullError, WaitedKeys
from proxy.commands.blocking.waiter import UNBLOCKED, Waiter
from proxy.commands.keyreads import FULL, MOST_KEYS, WRONG_TYPE, Held, KeyReads, too_many_keys
from proxy.commands.services import Services
from proxy.engine.outcomes import Answered, Reply
from proxy.engine.refusals import LEFT
from proxy.engine.session import Session
from proxy.servers import everywhere

NAME = "XREAD"
NOTHING = (b"*-1\r\n", b"_\r\n")
"""Replies about one stream without such entries."""
ONE_STREAM = (b"*1\r\n", b"%1\r\n")
"""The beginnings of replies with entries of one stream."""


def joined(said: Iterable[bytes], protocol: int) -> bytes | None:
    """The client's reply from those about one stream each: the entries, or the first error. None if there are none."""
    found = []
    for reply in said:
        if reply in NOTHING:
            continue
        if not reply.startswith(ONE_STREAM):
            return reply
        found.append(reply[len(ONE_STREAM[0]) :])
    if not found:
        return None
    return b"%b%d\r\n%b" % (b"%" if protocol == 3 else b"*", len(found), b"".join(found))


class StreamsOverSlots:
    """The requests of one worker.

    Args:
        services: the worker's parts.
        held: what all requests of the worker keep.
        keys: the keys that its clients wait for.
    """

    def __init__(self, services: Services, held: Held, keys: WaitedKeys) -> None:
        self._router = services.router
        self._held = held
        self._keys = keys

    async def read(self, session: Session, argv: Sequence[bytes], how: StreamRead) -> bytes:
        """XREAD without BLOCK.

        Raises:
            Answered: a key was not let through.
        """
        if len(how.keys) > MOST_KEYS:
            return too_many_keys(NAME)
        with self._reads(session) as reads:
            asked = [await reads.ask(argv[key], how.of_one(argv, key)) for key in how.keys]
            reply = joined([await said for said in asked], session.protocol)
        return nothing_came(session.protocol) if reply is None else reply

    async def wait(self, waiter: Waiter) -> bytes:
        """XREAD with BLOCK: the client's reply, or UNBLOCKED if the waiter was stopped.

        Raises:
            Answered: a key was not let through.
        """
        argv = waiter.request.argv
        how = streamreads.parse(argv)
        if len(how.keys) > MOST_KEYS:
            return too_many_keys(NAME)
        reply = await self._first(waiter, how)
        if reply is not None:
            return reply
        try:
            wait = self._keys.add(waiter, STREAM, list(dict.fromkeys(argv[key] for key in how.keys)))
        except FullError:
            return NO_ROOM
        event_loop = self._router.loop.event_loop
        try:
            with wait.limited(event_loop, waiter.request.deadline):
                while True:
                    over = await wait.look_out(event_loop)
                    if over is not None:
                        return over
                    reply = await self._look(waiter, wait, how)
                    if reply is not None:
                        return reply
        finally:
            self._keys.remove(wait)

    async def _first(self, waiter: Waiter, how: StreamRead) -> bytes | None:
        """The reply before the client waits; None if there is nothing yet. Then each id is one of an entry."""
        session, request = waiter.session, waiter.request
        argv = request.words()
        newest = how.newest(argv)
        said = []
        with self._reads(session) as reads:
            asked = []
            for key in how.keys:
                if waiter.stopped:
                    return UNBLOCKED
                place = key + len(how.keys)
                last = place in newest and argv[place] == b"$"
                words = [b"XINFO", b"STREAM", argv[key]] if last else how.of_one(argv, key)
                asked.append((place, last, await reads.ask(argv[key], words)))
            for place, last, answer in asked:
                reply = await answer
                found = last_generated(reply) if last else None
                if found is not None:
                    request.ids[place] = found
                    reply = NOTHING[0]
                said.append(reply)
            whole = joined(said, session.protocol)
        if whole is None:
            request.ids.update({place: NOTHING_YET for place in newest if place not in request.ids})
        return UNBLOCKED if whole is None and waiter.stopped else whole

    async def _look(self, waiter: Waiter, wait: KeyWait, how: StreamRead) -> bytes | None:
        """Read the streams that may have changed: the reply, or None if it has to wait on."""
        session, argv = waiter.session, waiter.request.words()
        changed = {key.name: key for key in wait.take_changed()}
        found = []
        failed = None
        with self._reads(session) as reads:
            asked: list[tuple[WaitedKey, Reply[bytes]]] = []
            for place in how.keys:
                key = changed.get(argv[place])
                if key is None:
                    continue
                if not self._keys.can_be_asked(session, key):
                    self._keys.has_to_read_later(key)
                    continue
                try:
                    asked.append((key, await reads.ask(key.name, how.of_one(argv, place))))
                except Answered as answered:
                    if session.closed or answered.reply == LEFT:
                        raise
                    # The key was not let through, and may be later.
                    self._keys.has_to_read_later(key)
            for key, answer in asked:
                said = await answer
                if said.startswith(ONE_STREAM):
                    found.append(said)
                elif said == FULL or said.startswith(NOT_NOW) or everywhere.is_of_no_server(said):
                    self._keys.has_to_read_later(key)
                elif said not in NOTHING and not said.startswith(WRONG_TYPE):
                    # As in Redis, a key of another type is none for those who wait.
                    failed = failed or said
            return joined(found, session.protocol) or failed

    def _reads(self, session: Session) -> KeyReads:
        return KeyReads(self._router, session, NAME, self._held)
