"""The pool: servers that are in no group."""

from topom.api import pool_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.cluster.state import PoolServer, known_servers
from topom.term.service import Topom

router = resource("/pool", "placement")


async def describe(topom: Topom) -> models.Pool:
    """Every server of the pool with its status, by address."""
    state = topom.ledger.state
    status = await topom.servers.status(known_servers(state))
    return models.Pool(
        servers=[
            models.PoolServer(
                address=address,
                node=entry.node_name,
                datacenter=entry.datacenter,
                wipe=entry.wipe,
                up=(said := status[address]) is not None,
                role=None if said is None else said.role,
                reason=topom.identities.conflict(address),
                keys=None if said is None else said.keys,
                memory_bytes=None if said is None else said.used_memory,
            )
            for address, entry in sorted(state.pool.items())
        ]
    )


@router.get("")
async def list_pool(topom: ServedTopom) -> models.Pool:
    """The servers that are in no group, and may be taken into one."""
    return await describe(topom)


@router.post("", status_code=201)
async def add_to_pool(topom: ServedTopom, new: models.NewPoolServer) -> models.Pool:
    """Register a server that is in no group. It must answer, and must be empty unless it may be wiped."""
    await topom.pool.add(PoolServer(new.address, new.node, new.datacenter, new.wipe))
    return await describe(topom)


@router.delete("/{address}")
async def remove_from_pool(topom: ServedTopom, address: str) -> models.Pool:
    """Forget a server of the pool; nothing is done to it."""
    await topom.pool.remove(address)
    return await describe(topom)
