"""What a Redis server says of its replication: the reply to INFO REPLICATION, read."""

from dataclasses import dataclass

from proxy.engine.backend import command

QUESTION = command(("INFO", "REPLICATION"))


@dataclass(frozen=True, slots=True)
class Replication:
    """Where a server is in its stream of writes.

    ``stream`` names the stream; a master begins another one whenever its past cannot be gone on from. ``offset`` is
    how much of it the server has run, in bytes: offsets compare within one stream only. ``link_up`` and
    ``silent_seconds``, the time since it last heard from its master, are a replica's.
    """

    is_master: bool
    stream: str
    offset: int
    link_up: bool = True
    silent_seconds: int = 0


def read(reply: bytes) -> Replication | None:
    """What a reply to :data:`QUESTION` says; None for an error, or where something is missing."""
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
            # Not what was received: a write counts once it was run.
            int(fields["slave_repl_offset"]),
            # While it loads what its master sent, it has neither the old keys nor all of the new ones.
            fields["master_link_status"] == "up" and fields.get("master_sync_in_progress", "0") == "0",
            int(fields["master_last_io_seconds_ago"]),
        )
    except (KeyError, ValueError):
        return None
