"""What a target can do that not every server can, as far as it decides by which commands a value is made."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.connection import Connection


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server can do.

    Attributes:
        field_deadlines: fields of hashes can have deadlines (HPEXPIREAT: Redis 7.4, Valkey 9).
        counts_entries: it counts entries added and read of a stream (XSETID with ENTRIESADDED: Redis 7.0).
        makes_consumers: it makes consumers that have nothing pending (XGROUP CREATECONSUMER: Redis 6.2).
    """

    field_deadlines: bool = True
    counts_entries: bool = True
    makes_consumers: bool = True


async def read_abilities(server: Connection) -> Abilities:
    """Ask a server. Raises as :meth:`migrator.connection.Connection.call` does."""
    return Abilities(await has_field_deadlines(server), await counts_entries(server), await _makes_consumers(server))


async def has_field_deadlines(server: Connection) -> bool:
    """Whether the server supports deadlines of fields."""
    return bool(await _about(server, "HPEXPIRETIME"))


async def counts_entries(server: Connection) -> bool:
    """Whether a server counts entries added and read: its XSETID then takes more than two arguments."""
    about = await _about(server, "XSETID")
    return about is not None and about[1] < 0


async def _makes_consumers(server: Connection) -> bool:
    # CREATECONSUMER is an argument, of which COMMAND tells nothing there; XAUTOCLAIM came with it.
    return bool(await _about(server, "XAUTOCLAIM"))


async def _about(server: Connection, command: str) -> list[int] | None:
    """The row of a command; None if the server does not have it."""
    reply = await server.call("COMMAND", "INFO", command)
    with server.understood("COMMAND"):
        (about,) = reply
        if about and not isinstance(about[1], int):
            raise TypeError(f"{about!r:.50} is no row of a command")
    return about or None
