"""Whether a replica follows the master itself, and not by way of another replica.

A replica has what its own master had when it was filled. If that is a replica which takes writes, or took some, those
are in the snapshot of everything behind it, under the replication id of the first master. So that id is not enough: the
data has to come from the master itself.

INFO does not tell that for sure: names and addresses are written differently at each end, and a master lists a lost
replica for a minute. But the link is one TCP connection. The replica names its own end of it, and the master the other
one's end: ``CLIENT LIST`` has both. Where a relay stands in between, or addresses are translated, the two differ; then
the replica is passed over.

What a replica had before it was given this master cannot be seen.
"""

from __future__ import annotations

from migrator.connection import Connection
from slots.connections import parse_client_list
from slots.replies import text_of


async def links_of(master: Connection) -> frozenset[str]:
    """The far ends of the connections over which a server feeds its replicas. Raises as its connection."""
    return frozenset(one["addr"] for one in await _listed(master, "replica") if one.get("addr"))


async def link_of(replica: Connection) -> str:
    """The near end of the connection by which a server follows its master; "" if it names none. Raises as its
    connection."""
    ends = [one.get("laddr", "") for one in await _listed(replica, "master")]
    return ends[0] if len(ends) == 1 else ""


async def _listed(server: Connection, type: str) -> list[dict[str, str]]:
    said = await server.call("CLIENT", "LIST", "TYPE", type)
    with server.understood("CLIENT LIST"):
        return parse_client_list(text_of(said).decode(errors="replace"))
