"""Which leader's migrators may use a server: those of the newest term that it has heard of.

A topom may be paused in the middle of anything and go on when another has long led, perhaps turned the move round, or
had the slots moved back. By its own clock its lease may even seem to last. A step of it would then take keys away
from their owner (**one-way**), and the permit from its successor. So each server keeps the newest term in the hash
:data:`slots.moving.LEADER`, and every connection of a migrator asks there before it does anything else:

- of an older term, it is turned away;
- of a newer one, it notes its term, and has the server end all connections of migrators of other topoms. Whatever they
  had connected before is found by name; whatever they connect later finds the mark.

A leader comes to both servers of a move before it takes the move any step on, so from then on its predecessor can do
nothing there. What that had done before, it did to a slot on its way, in the direction that is stored. Proxies need no
term, for they go by the table's epoch.

The mark outlives the move: a process may be paused for any time. A FLUSHALL sent to the server itself removes it; then
only the late one's own clock is left.
"""

from __future__ import annotations

from migrator.connection import Connection
from migrator.errors import Superseded
from slots.connections import PREFIX, end_connections
from slots.moving import LEADER

MIGRATORS = f"{PREFIX}.migrator"
"""What the names of all connections of a migrator begin with, whatever they are for."""

# The first write is one that is let through at maxmemory; after it a script may write anything.
_TAKE = """
redis.call('SELECT', '0')
redis.call('HDEL', KEYS[1], '')
local newest = tonumber(redis.call('HGET', KEYS[1], 'term') or '0')
if newest < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'term', ARGV[1]) end
return {newest, tonumber(redis.call('HGET', KEYS[1], 'alone') or '0')}
"""
_ALONE = """
redis.call('SELECT', '0')
redis.call('HDEL', KEYS[1], '')
if redis.call('HGET', KEYS[1], 'term') == ARGV[1] then redis.call('HSET', KEYS[1], 'alone', ARGV[1]) end
"""


async def take(connection: Connection, term: int, instance: str) -> None:
    """Have a server serve migrators of no earlier term any more, if it does not yet.

    Args:
        connection: to the server, with a name.
        term: of this leader; 0 where there can be no other.
        instance: part of the names of this leader's connections.

    Raises:
        Superseded: the server has heard of a later term.
        Errors of the connection.
    """
    if not term:
        return
    newest, alone = (int(part) for part in await connection.call("EVAL", _TAKE, 1, LEADER, term))
    if newest > term:
        raise Superseded(
            f"server {connection.address} has been used by the topom of term {newest}, and this one leads in term "
            f"{term}: another leads by now. If the topoms were given a new store, delete the key {LEADER.decode()} in "
            "database 0 of the server"
        )
    # Until it is noted that they were ended, they may not have been: whoever was to do it may have died.
    if alone != term:
        own = f".{instance}."
        await end_connections(connection, MIGRATORS, keep=lambda name: own in name)
        await connection.call("EVAL", _ALONE, 1, LEADER, term)
