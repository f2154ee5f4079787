"""What a link tells a source in order to be sent its snapshot and stream, and what the source may answer.

To the source the link is a replica, one that nobody takes for a server:

- It names :data:`ADDRESS` as its own address, so it is recognised in INFO, ROLE, CLIENT LIST and the source's log.
  Sentinel takes the first ``port=`` in the line of a replica, and lists none whose number no port can have. It looks up
  no host either.
- It says what it understands of the ways to send a snapshot, and to a Valkey also a version: the source's own. Without
  one Valkey writes an older format, and fails at a hash with deadlines of fields.
- A master with ``min-replicas-to-write`` would count it among those that have each write, which is wrong. Such a master
  is refused. A replica of the group can be followed instead: nobody counts what follows a replica.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from migrator.stream.errors import FollowRefused, SourceReplaced
from migrator.stream.sourceconnection import REPLY_SECONDS, SourceConnection
from migrator.stream.standing import another_stream, require_followable
from slots.access import ServerAccess
from slots.replies import LARGEST, Info, NotUnderstood
from slots.reserved import FOLLOWER

ADDRESS = f"{FOLLOWER},port=-1"
"""Most programs understand INFO so that the link's host is :data:`slots.reserved.FOLLOWER` and its port 0."""
START_SECONDS = 900.0
"""For the beginning of a snapshot. A source waits for others (``repl-diskless-sync-delay``), for a save or a rewrite
that runs, and saves to disk first if ``repl-diskless-sync`` is off."""
SILENCE_SECONDS = 60.0
"""A source that says nothing for so long is lost. It says something each ``repl-ping-replica-period``, 10 s."""
_FULL = re.compile(rb"\+FULLRESYNC ([0-9a-f]{40}) (\d{1,19})")
_CONTINUE = re.compile(rb"\+CONTINUE(?: ([0-9a-f]{40}))?")
_SIZE = re.compile(rb"\$(\d{1,18})")
_MARK = re.compile(rb"\$EOF:(.{40})", re.DOTALL)
MARK_BYTES = 40


class Origin(NamedTuple):
    """Where a stream begins.

    ``replication_id`` is the source's, ``offset`` how much of the stream the snapshot has in it, ``run_id`` the
    source's process.
    """

    replication_id: str
    offset: int
    run_id: str


class Form(NamedTuple):
    """How a snapshot comes: with its ``size``, or None and ended by ``mark``."""

    size: int | None
    mark: bytes


def introduce(
    connection: SourceConnection, access: ServerAccess, name: str, run_id: str = "", history: str = ""
) -> str:
    """Log in, look at the server, and say who we are; gives its run id.

    Args:
        connection: without anything sent.
        access: user and password.
        name: of the connection, in CLIENT LIST.
        run_id: the run id that it has to have; "" for any.
        history: the replication id that it has to have, see :func:`require_followable`.

    Raises:
        FollowRefused, SourceUnavailable: as :meth:`SourceConnection.call` does.
        SourceReplaced: the server has another run id.
        NotFollowable, HistoryChanged, ReplicaDiffers, CountsFollowers: as :func:`require_followable` does.
    """
    if access.login:
        connection.call(*access.login)
    connection.call("CLIENT", "SETNAME", name)
    said = connection.call("INFO")
    try:
        info = Info.parse(said)
        found = info.run_id
        if run_id in ("", found):
            require_followable(connection.address, info, history)
        valkey = info.text("valkey_version", "")
    except NotUnderstood as error:
        raise connection.not_understood("INFO", str(error).encode()) from error
    # run-id: asked over the connection that is used.
    if run_id not in ("", found):
        what = f"another process ({found}) than the source ({run_id}) answers at {connection.address}"
        raise SourceReplaced(what, "copies of it begin anew")
    connection.call("REPLCONF", "ip-address", ADDRESS, "listening-port", 0)
    connection.call("REPLCONF", "capa", "eof", "capa", "psync2")
    if valkey:
        with suppress(FollowRefused):  # Valkey 7 does not know it, and has one format only
            connection.call("REPLCONF", "version", valkey)
    return found


def ask_for_snapshot(connection: SourceConnection, run_id: str, history: str = "") -> Origin:
    """Ask for a snapshot, and wait until the source begins it; ``history`` as for :func:`introduce`.

    Raises FollowRefused, SourceUnavailable and HistoryChanged.
    """
    line = _ask(connection, "?", -1, START_SECONDS)
    if (full := _FULL.fullmatch(line)) is None or int(full[2]) > LARGEST:
        raise connection.not_understood("PSYNC", line)
    _require_same(connection.address, history or full[1].decode(), full[1].decode())
    return Origin(full[1].decode(), int(full[2]), run_id)


def ask_to_go_on(connection: SourceConnection, replication_id: str, offset: int) -> bool:
    """Ask for the stream from ``offset`` on; gives False if the source offers a snapshot instead.

    Raises FollowRefused, SourceUnavailable, and HistoryChanged: the stream goes on as another one.
    """
    # The number of the first byte that is wanted. A source that has it says so at once.
    line = _ask(connection, replication_id, offset + 1, REPLY_SECONDS)
    if (goes_on := _CONTINUE.fullmatch(line)) is not None:
        _require_same(connection.address, replication_id, (goes_on[1] or b"").decode() or replication_id)
        return True
    if _FULL.fullmatch(line) is None:
        raise connection.not_understood("PSYNC", line)
    return False


def _require_same(address: str, history: str, found: str) -> None:
    # level: the server may have become a master, or another one's replica, since its INFO was read.
    if found != history:
        raise another_stream(address, history, found)


def snapshot_form(connection: SourceConnection) -> Form:
    """Wait for the snapshot's first line. Raises FollowRefused and SourceUnavailable."""
    line = connection.line("PSYNC", START_SECONDS, SILENCE_SECONDS)
    if (size := _SIZE.fullmatch(line)) is not None and int(size[1]):
        return Form(int(size[1]), b"")
    if (mark := _MARK.fullmatch(line)) is not None:
        return Form(None, mark[1])
    raise connection.not_understood("PSYNC", line)


def _ask(connection: SourceConnection, replication_id: str, number: int, seconds: float) -> bytes:
    try:
        connection.send("PSYNC", replication_id, number)
    except OSError as error:
        raise connection.lost(error) from error
    return connection.line("PSYNC", seconds, SILENCE_SECONDS)
