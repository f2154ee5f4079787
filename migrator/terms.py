"""Which leader's migrators may use a server: those of the newest term that the server knows, and of its format.

A topom may be paused in the middle of a step, and go on when another topom has long been leading. By then the move may
have been turned round, or the slots moved back. By the paused topom's own clock its lease may even seem valid. Its step
would then take keys away from their owner (**one-way**), and the permit from its successor. So each server keeps the
newest term in the hash :data:`slots.reserved.LEADER`. Every connection of a migrator reads it before anything else:

- if its own term is older, it is turned away;
- if its own term is newer, it writes its term there, and has the server end all connections of other topoms' migrators.
  Connections made before are found by name. Connections made later find the newer term.

A leader uses both servers of a move before it takes the move any step on. From then on its predecessor can do nothing
there. The predecessor's earlier steps concerned a slot on its way, in the direction that is stored. Proxies need no
term, because they follow the table's epoch.

The same hash may have a field ``format``: that of all of Slotferry's keys there (:data:`slots.formats.SERVERS`). A
version that gives one of these keys another meaning writes its own number there before anything else. A migrator that
does not know that number does nothing at the server. A server without the field has the first format.

The mark outlives the move, because a process may be paused for any time. A FLUSHALL sent to the server itself removes
it. Then only the late process's own clock protects.
"""

from __future__ import annotations

from migrator.connection import Connection
from migrator.errors import OtherFormat, Superseded
from slots.connections import PREFIX, end_connections
from slots.formats import SERVERS, WRITER
from slots.reserved import LEADER
from slots.scripts import load

MIGRATORS = f"{PREFIX}.migrator"
"""The prefix of the names of all connections of a migrator, of any kind."""

_TAKE = load("term_take")
_ENDED = load("term_ended")


async def take(connection: Connection, term: int, instance: str) -> None:
    """Look whether a server has the format that is known here, and have it turn away migrators of earlier terms.

    Args:
        connection: to the server, with a name.
        term: of this leader; 0 where there can be no other.
        instance: part of the names of this leader's connections.

    Raises:
        OtherFormat: the server was used by a version of Slotferry whose keys are not known here.
        Superseded: the server knows a later term.
        Errors of the connection.
    """
    said = await connection.call("EVAL", _TAKE.text, 1, LEADER, term, SERVERS.number)
    if len(said) == 1:
        kept = f"what Slotferry has kept at server {connection.address}"
        raise OtherFormat(
            SERVERS.refusal(kept, said[0].decode(errors="replace")),
            f"{WRITER}; only if none uses this server any more, remove the field format of {LEADER.decode()} in its "
            "database 0",
        )
    newest, ended = map(int, said)
    if not term:
        return
    if newest > term:
        raise Superseded(
            f"server {connection.address} has been used by the topom of term {newest}, and this one leads in term "
            f"{term}: another leads by now",
            f"if the topoms were given a new store, delete the key {LEADER.decode()} in database 0 of the server",
        )
    # Until the server records that they were ended, they may still be there: the process that had to end them may have
    # died.
    if ended != term:
        own = f".{instance}."
        await end_connections(connection, MIGRATORS, keep=lambda name: own in name)
        await connection.call("EVAL", _ENDED.text, 1, LEADER, term)
