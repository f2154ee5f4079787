"""What a server says of itself when Sentinels name it as a master."""

from dataclasses import dataclass

from redis.asyncio import Redis

from topom.redis_servers import RedisServers

NO_STREAM = "0" * 40
"""The id of a stream that there never was."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a server is in its stream of writes.

    Attributes:
        is_master: whether it takes writes of its own.
        stream: the id of its stream; ``former`` of the one that it went on from.
        offset: bytes of the stream that it has run.
        keys: that it holds, over all databases.
    """

    is_master: bool
    stream: str
    former: str
    offset: int
    keys: int

    @property
    def has_a_past(self) -> bool:
        """Whether it has followed another server or holds data: an empty server just started has done neither.

        A group's replica has. What is at its address with nothing in it came up without its data, or is another one.
        """
        return self.keys > 0 or self.former not in ("", NO_STREAM)


async def standing_of(servers: RedisServers, address: str) -> Standing | None:
    """Ask a server; None when it does not answer in time."""
    found: list[Standing] = []

    async def ask(client: Redis) -> None:
        replication = await client.info("replication")
        keyspace = await client.info("keyspace")
        found.append(
            Standing(
                is_master=replication.get("role") == "master",
                stream=str(replication.get("master_replid", "")),
                former=str(replication.get("master_replid2", "")),
                offset=int(replication.get("master_repl_offset", 0)),
                keys=sum(int(database["keys"]) for database in keyspace.values()),
            )
        )

    await servers.guarded(address, ask)
    return found[0] if found else None
