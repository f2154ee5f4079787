"""Reads a Redis server's reply to INFO REPLICATION."""

from dataclasses import dataclass

from proxy.engine.backend import command

QUESTION = command(("INFO", "REPLICATION"))


@dataclass(frozen=True, slots=True)
class Replication:
    """A server's place in its stream of writes.

    ``stream`` names the stream; a master begins another one if it cannot continue its past. ``offset`` is how much of
    it the server has run, in bytes: offsets are comparable within one stream only. ``link_up`` and ``silent_seconds``,
    the time since it last heard from its master, are set for a replica.
    """

    is_master: bool
    stream: str
    offset: int
    link_up: bool = True
    silent_seconds: int = 0


def read(reply: bytes) -> Replication | None:
    """The content of a reply to :data:`QUESTION`; None for an error, or where something is missing."""
    if not reply.startswith(b"$"):
        return None
    lines = reply.decode(errors="replace").splitlines()
    fields = {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
    try:
        if fields["role"] == "master":
            return Replication(True, fields["master_replid"], int(fields["master_repl_offset"]))
        return Replication(
            False,
            fields["master_replid"],
            # Not the offset that was received: a write counts once it has run.
            int(fields["slave_repl_offset"]),
            # While it loads its master's data, it has neither the old keys nor all of the new ones.
            fields["master_link_status"] == "up" and fields.get("master_sync_in_progress", "0") == "0",
            int(fields["master_last_io_seconds_ago"]),
        )
    except (KeyError, ValueError):
        return None
