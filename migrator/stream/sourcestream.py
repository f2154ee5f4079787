"""One replication stream of a source that several copies share: one link, one spool, one snapshot.

The source has one connection and one fork, however many targets its slots go to. Each copy reads the spool by itself,
at the pace of its target (:mod:`migrator.stream.following`). So copies wait for each other nowhere: not for a target
that is slow or stands still, not in a rest for a latency goal, not within a lock. An error that a copy meets is its
own. If it is about the stream (a command that nobody can follow, a snapshot that cannot be read), each copy meets it
where it reads that. To read all once a copy is cheap: what is another copy's is stepped over, 16 million keys a second.

What ends them all is the link, or the spool at its bound: each copy fails once it has read what came before that.

The stream begins once each of its copies has found its target fit, or failed. It ends with the last copy.

**bounded**: a copy gives up a target that does not answer (:mod:`migrator.stream.applying`) or falls behind
(:mod:`migrator.stream.running`). What it has yet to read is kept meanwhile. When room for that gets short, the copy
that is furthest behind is given up, and then the next one: a full spool would end them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import structlog

from migrator.connection import Timeouts
from migrator.pair import ServerPair, copying_prefix
from migrator.stream.errors import LeftBehind, StreamBegun
from migrator.stream.followed import Followed
from migrator.stream.spool import Spool, SpoolReader
from slots.access import ServerAccess
from slots.messages.copies import MOST_OF_A_STREAM
from slots.replies import Info

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks at the room that is left."""


class Sharing(Protocol):
    """A copy that shares the stream."""

    target: str

    def start(self) -> None:
        """The stream begins: it calls :meth:`SourceStream.reader` in a task, and :meth:`SourceStream.leave` in any
        case."""


class SourceStream:
    """The stream of one source.

    Args:
        source: ``host:port``.
        run_id: that the source has to have.
        id: of the stream; part of the names of its connections.
        folder: for the spool.
        access: how to log in.
        instance, term: as for :func:`migrator.move.migrate`.
        timeouts: of the connections.
        replicas: of the source, ``host:port``; one of them is followed in its place if it can be
            (:mod:`migrator.stream.choosing`).

    Attributes:
        begun: whether copies have been started; no other copy joins it from then on.
    """

    def __init__(
        self,
        source: str,
        run_id: str,
        *,
        id: str,
        folder: Path,
        access: ServerAccess,
        instance: str,
        term: int = 0,
        timeouts: Timeouts | None = None,
        replicas: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.run_id = run_id
        self.id = id
        self.folder = folder
        self.access = access
        self.instance = instance
        self.term = term
        self.timeouts = timeouts or Timeouts()
        self.followed = Followed(source, replicas, access, instance, id, self.timeouts, folder)
        self.begun = False
        self._copies: list[Sharing] = []
        self._targets: dict[Sharing, Info] = {}
        self._readers: dict[Sharing, SpoolReader] = {}
        self._all_told = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, copy: Sharing) -> None:
        """Let a copy share the stream. Raises StreamBegun if it has begun, or has as many as it may have."""
        if self.begun:
            raise StreamBegun(f"the stream of {self.source} has begun without this copy; it begins anew, in another")
        if len(self._copies) >= MOST_OF_A_STREAM:
            raise StreamBegun(f"{MOST_OF_A_STREAM} copies share the stream of {self.source}, and no more may")
        self._copies.append(copy)

    def start(self) -> None:
        """Begin with the copies that have joined, if it has not begun."""
        if self.begun:
            return
        self.begun = True
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"stream of {self.source}")
        for copy in list(self._copies):
            copy.start()

    async def reader(self, copy: Sharing, target: Info) -> SpoolReader:
        """A reader of all that comes, once a snapshot has begun.

        Args:
            target: what the copy's target says of itself.

        Raises:
            MigrationError: neither the source nor a replica can be followed.
        """
        assert self._opened is not None, "it has begun"
        self._targets[copy] = target
        self._look_who_told()
        await asyncio.shield(self._opened)
        return self._readers[copy]

    def leave(self, copy: Sharing) -> None:
        """The copy has ended. With the last one the stream ends."""
        if copy not in self._copies:
            return  # the stream may be ending with it, which nothing is to break off
        self._copies.remove(copy)
        self._targets.pop(copy, None)
        reader = self._readers.pop(copy, None)
        if reader is not None:
            reader.close()
        self._look_who_told()
        if not self._copies and self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Return once the link is closed, if no copy shares the stream any more; else at once."""
        if not self._copies and self._task is not None:
            await asyncio.wait((self._task,))

    def _look_who_told(self) -> None:
        if len(self._targets) == len(self._copies):
            self._all_told.set()

    async def _run(self) -> None:
        opened = self._opened
        assert opened is not None, "it has begun"
        try:
            async with AsyncExitStack() as stack:
                await self._all_told.wait()
                spool = await self._open(stack)
                self._readers = {copy: spool.reader() for copy in self._copies}
                opened.set_result(None)
                await self._look_after(spool)
        except Exception as error:
            if opened.done():
                log.exception("stream_broke", source=self.source)
            else:
                opened.set_exception(error)
                opened.exception()  # no copy may be left to hear of it
        finally:
            opened.cancel()

    async def _open(self, stack: AsyncExitStack) -> Spool:
        log.info("stream_began", source=self.source, targets=[copy.target for copy in self._copies])
        async with AsyncExitStack() as own:
            pair = ServerPair(
                own,
                self.source,
                "",
                self.access,
                self.instance,
                self.timeouts,
                self.term,
                (self.run_id, ""),
                at_source=copying_prefix(self.id),
            )
            return await self.followed.begin(stack, await pair.connect_source(), list(self._targets.values()))

    async def _look_after(self, spool: Spool) -> None:
        """Give up copies that the spool is kept for, one at a time, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not await asyncio.to_thread(spool.is_short):
                continue
            last = spool.furthest_behind()
            for copy, reader in self._readers.items():
                if reader is last:
                    reader.close(
                        LeftBehind(
                            f"of those that share the stream of {self.source}, target {copy.target} is furthest "
                            f"behind, and the disk has little room left for the {spool.held} bytes that are kept",
                            "move fewer slots at a time, or in another way",
                        )
                    )
