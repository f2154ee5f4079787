"""Has a replica be given a whole new copy by its master.

``REPLICAOF NO ONE`` gives a server a history of its own, so its master cannot go on from where it was and sends it
everything (tried on Redis 6.2.14, 7.0.15 and Valkey 9.1.2). Both that and the ``REPLICAOF`` back go in one MULTI:
nobody ever sees the server as a master, and no write gets in between. Until it is filled, its link is down: proxies do
not read from it, and topom does not promote it. If its master fails meanwhile, the group has one copy less to go on
with.
"""

import asyncio

from redis.asyncio import Redis

from topom.digests.errors import NotResynced
from topom.replication import REPLICAOF, Replication, ServerFailed, ServerReplication, Servers
from topom.topology import parse_address

LOOK_SECONDS = 0.1


async def begin(servers: Servers, replication: ServerReplication, server: str, master: str) -> None:
    """Have the replica forget what it has and ask for everything.

    Raises:
        NotResynced: it is no replica of this master, does not answer, or refuses.
        ServerFailed: one of them does not answer.
    """
    ahead, behind = await replication.look(master), await replication.look(server)
    if not ahead.is_master or behind.is_master or not behind.follows(master):
        raise NotResynced(f"{server} does not follow {master}, so it is not filled anew; look at the group's servers")
    host, port = parse_address(master)

    async def refill(client: Redis) -> None:
        async with client.pipeline(transaction=True) as both:
            both.execute_command(REPLICAOF, "NO", "ONE")
            both.execute_command(REPLICAOF, host, str(port))
            await both.execute()

    if not replication.may_change():
        raise NotResynced("this topom does not lead any more; ask again")
    reason = await servers.guarded(server, refill)
    if reason is not None:
        raise NotResynced(f"{server} was not told to be filled anew, or it is not known whether it was: {reason}")


async def done(replication: ServerReplication, server: str, master: str, seconds: float) -> bool:
    """Wait until the replica holds a whole new copy; False if it does not in time. Raises nothing."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    ahead, behind = await replication.look(master), await replication.look(server)
                except ServerFailed:
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                if is_filled(ahead, behind):
                    return True
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return False


def is_filled(ahead: Replication, behind: Replication) -> bool:
    """Whether a replica whose history was cut has been given that of its master, which comes with a whole copy."""
    return ahead.is_master and not behind.is_master and behind.link_up and behind.stream == ahead.stream
