"""What a server says of itself when Sentinels name it as a master."""

from dataclasses import dataclass

from redis.asyncio import Redis

from topom.servers.redis_servers import RedisServers, look_inside

NO_STREAM = "0" * 40
"""The id of a stream that there never was."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a server is in its stream of writes.

    Attributes:
        is_master: whether it takes writes of its own.
        stream: the id of its stream; ``former`` of the one that it went on from.
        offset: bytes of the stream that it has run.
        keys: that it holds, as :func:`topom.servers.redis_servers.look_inside` counts them.
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
        return self.keys > 0 or self.former != NO_STREAM


async def standing_of(servers: RedisServers, address: str) -> Standing | None:
    """Ask a server; None when it does not answer in time."""
    found: list[Standing] = []

    async def ask(client: Redis) -> None:
        said, keys = await look_inside(client)
        # Servers before Redis 4 say nothing.
        former = said.text("master_replid2", "")
        found.append(
            Standing(
                is_master=said.is_master,
                stream=said.text("master_replid", ""),
                former=former if former.strip("0") else NO_STREAM,
                offset=said.number("master_repl_offset", 0),
                keys=keys,
            )
        )

    await servers.guarded(address, ask)
    return found[0] if found else None
