"""Where the keys are at the end: each on exactly one server, its slot's owner. The servers are asked directly."""

from collections.abc import Iterable

from slots.keyslots import KeySlots
from tests.histories.cluster import HistoriesCluster
from tests.integration.cluster.harness import plain_client

OWN_PREFIX = b"__slotferry:"
"""The prefix of Slotferry's own keys, which belong to a server and to no slot."""


async def misplaced(cluster: HistoriesCluster, databases: Iterable[int]) -> list[str]:
    """Keys that are on several servers or on one that does not own their slot, in words."""
    layout = await cluster.layout()
    seen: dict[tuple[int, bytes], str] = {}
    wrong = []
    for server in layout.servers:
        for database in databases:
            async with plain_client(server, db=database) as client:
                names = sorted({name async for name in client.scan_iter(count=1000)})
            for name, slot in zip(names, KeySlots(layout.function, len(layout.owners)).slots_of(0, names), strict=True):
                if name.startswith(OWN_PREFIX):
                    continue
                owner = layout.owners[slot]
                other = seen.setdefault((database, name), server)
                if other != server:
                    wrong.append(
                        f"{name!r} (database {database}, slot {slot} of {owner}) is on {other} and on {server}"
                    )
                elif owner != server:
                    wrong.append(f"{name!r} (database {database}, slot {slot}) is on {server} instead of {owner}")
    return wrong
