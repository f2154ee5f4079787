"""Follows one source as a replica would, and spools all that it sends: a snapshot, then the stream of changes.

A link has a thread of its own, which only receives and writes to disk. So it keeps up with the source whatever event
loops and other threads do. It reads nothing in what it receives.

What the source sees of it:

- It acknowledges offset 0 each second, so the source keeps the connection, and WAIT does not count it for any write.
- A source of Redis 7 or Valkey that is shut down waits for it in vain, for ``shutdown-timeout`` (10 s). No write is
  taken meanwhile.
- The rest is told in :mod:`migrator.stream.handshake`.

After a cut the link asks for the stream where it ended, of the same process (**run-id**) and with the same replication
id. So a replica that becomes a master, or is given another one, ends it (:mod:`migrator.stream.standing`). A source
that has no more of the stream in its ``repl-backlog-size`` offers a snapshot, which ends the link, too. A replica that
its master fills anew does so.

**bounded**: every wait and the number of cuts have limits; at a limit the link fails. What a failed link has spooled of
the stream can still be read.
"""

from __future__ import annotations

import threading
import time

import structlog

from migrator.errors import MigrationError, SourceRefused, SourceUnavailable
from migrator.stream import handshake
from migrator.stream.errors import LinkClosed, LinkCut, NotFollowable, SnapshotCut, SnapshotNeeded
from migrator.stream.handshake import MARK_BYTES, SILENCE_SECONDS, Form, Origin
from migrator.stream.sourceconnection import SourceConnection
from migrator.stream.spool import Spool
from slots.access import ServerAccess
from slots.kinds import Kind

log = structlog.get_logger()

BUFFER_BYTES = 1024 * 1024
ACKNOWLEDGE_SECONDS = 1.0
GO_ON_SECONDS = 60.0
"""How long a cut may last."""
PAUSE_SECONDS = 0.5
"""Between two tries to go on after a cut."""
MOST_CUTS = 100
CLOSE_SECONDS = 20.0
"""How long to wait for the thread to end; a name that is looked up may take longer."""


class Link:
    """The link to one source. What it receives, and why it failed, is in its spool.

    Args:
        source: ``host:port``.
        access: how to log in.
        spool: takes what comes; it is the caller's to close, after the link.
        name: the connection's name in CLIENT LIST, see :func:`slots.connections.migrator_prefix`.
        run_id: the run id that the source has to have; "" for any.
        history: the replication id that its stream has to have, for a replica; "" if it has to be a master.

    Attributes:
        origin: where the stream begins; None until the source has begun a snapshot.
        cuts: how often the connection was lost in the stream.
    """

    def __init__(
        self, source: str, access: ServerAccess, spool: Spool, name: str, run_id: str = "", history: str = ""
    ) -> None:
        self.origin: Origin | None = None
        self.cuts = 0
        self._source = source
        self._access = access
        self._spool = spool
        self._name = name
        self._run_id = run_id
        self._history = history
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._connection: SourceConnection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    async def begun(self) -> Origin:
        """Wait until the source has begun a snapshot. Raises the error of the link."""
        await self._spool.waking.until(lambda: self.origin is not None)
        assert self.origin is not None
        return self.origin

    def close(self) -> None:
        """End it, and wait for its thread; not for an event loop's thread. The source notices at once."""
        self._stopped.set()
        if (connection := self._connection) is not None:
            connection.shut()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        self._spool.waking.fail(LinkClosed("the link is closed"))

    def _run(self) -> None:
        try:
            self._follow()
        except MigrationError as error:
            failure = error
        except Exception as error:  # whatever it is, who waits has to hear of it
            log.exception("link_failed", source=self._source)
            what = f"following {self._source} failed: {type(error).__name__}"
            failure = MigrationError(what, "the log says more", kind=Kind.FAULT)
        finally:
            self._end_connection()
        if self._stopped.is_set():
            failure = LinkClosed("the link is closed")
        self._spool.waking.fail(failure)

    def _follow(self) -> None:
        connection = self._connect()
        origin = handshake.ask_for_snapshot(connection, self._run_id, self._history)
        self._history = origin.replication_id
        self._spool.stream.begin(origin.offset)
        with self._spool.waking.condition:
            self.origin = origin
            self._spool.waking.wake()
        try:
            self._receive_snapshot(connection, handshake.snapshot_form(connection))
        except OSError as error:
            what = f"source {self._source} was lost within its snapshot: {error}"
            to_do = "see its log; it ends replicas that are beyond client-output-buffer-limit, and saves that fail"
            raise SnapshotCut(what, to_do) from error
        while True:
            self._go_on(self._receive_stream())

    def _connect(self) -> SourceConnection:
        """A connection over which the source knows us. Its run id is the same each time."""
        self._end_connection()
        self._require_open()
        self._connection = connection = SourceConnection(self._source, self._access)
        self._require_open()  # close() may have been called before it could shut this connection
        self._run_id = handshake.introduce(connection, self._access, self._name, self._run_id, self._history)
        return connection

    def _receive_snapshot(self, connection: SourceConnection, form: Form) -> None:
        """Raises OSError if the connection is lost."""
        snapshot = self._spool.snapshot
        snapshot.begin(form.size, withheld=len(form.mark))
        left = form.size
        tail = b""
        while left != 0 and (not form.mark or tail != form.mark):
            data = self._receive(connection, BUFFER_BYTES if left is None else min(left, BUFFER_BYTES))
            if not data:
                raise ConnectionResetError("it closed the connection")
            snapshot.write(data)
            if left is not None:
                left -= len(data)
            else:
                # The source sends nothing behind the mark before it has our acknowledgement.
                tail = (tail + data[-MARK_BYTES:])[-MARK_BYTES:]
        snapshot.finish()

    def _receive(self, connection: SourceConnection, most: int) -> memoryview:
        """What comes next. Raises OSError if the connection is lost or silent."""
        until = time.monotonic() + SILENCE_SECONDS
        while True:
            try:
                return self._buffer[: connection.receive_into(self._buffer[:most])]
            except TimeoutError:
                if time.monotonic() > until:
                    raise ConnectionAbortedError(f"it was silent for {SILENCE_SECONDS:g} s") from None
                self._require_open()

    def _receive_stream(self) -> str:
        """Receive until the connection is lost; gives how."""
        connection, stream = self._connection, self._spool.stream
        assert connection is not None
        acknowledged = -ACKNOWLEDGE_SECONDS
        heard = time.monotonic()
        try:
            while (now := time.monotonic()) - heard <= SILENCE_SECONDS:
                if now - acknowledged >= ACKNOWLEDGE_SECONDS:
                    connection.send("REPLCONF", "ACK", 0)
                    acknowledged = now
                try:
                    size = connection.receive_into(self._buffer)
                except TimeoutError:
                    continue
                if not size:
                    return "it closed the connection"
                heard = now
                stream.append(self._buffer[:size])
        except OSError as error:
            return str(error)
        return f"it was silent for {SILENCE_SECONDS:g} s"

    def _go_on(self, how: str) -> None:
        """Connect again after a cut, for the stream where it ended.

        Raises:
            LinkCut: that cannot be done in time.
            SnapshotNeeded: the source has no more of the stream.
            FollowRefused, SourceReplaced, HistoryChanged, ReplicaDiffers, CountsFollowers: as
                :func:`handshake.introduce` does.
        """
        self.cuts += 1
        what = f"the connection to source {self._source} was lost: {how}"
        if self.cuts > MOST_CUTS:
            raise LinkCut(f"{what}, for the {self.cuts}th time", "see to the network, and to the source's log")
        until = time.monotonic() + GO_ON_SECONDS
        while True:
            self._require_open()
            try:
                connection = self._connect()
                goes_on = handshake.ask_to_go_on(connection, self._history, self._spool.stream.end)
                break
            except (SourceUnavailable, SourceRefused, NotFollowable) as error:
                if not error.passing:
                    raise
                if time.monotonic() > until:
                    to_do = "see to the source and the network"
                    raise LinkCut(
                        f"{what}, and for {GO_ON_SECONDS:g} s not to be had again: {error.what}", to_do
                    ) from error
            self._stopped.wait(PAUSE_SECONDS)
        if not goes_on:
            raise SnapshotNeeded(
                f"{what}; the stream behind offset {self._spool.stream.end} is not to be had from it any more",
                "copies of it begin anew; if it happens again, raise the source's repl-backlog-size",
            )

    def _require_open(self) -> None:
        if self._stopped.is_set():
            raise LinkClosed("the link is closed")

    def _end_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
