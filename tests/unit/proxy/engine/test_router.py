"""Requests that any server may answer go to a master that owns slots, and to a connected one if there is one."""

from proxy.engine.router import LOCKED, OFFLINE, OPEN
from tests.unit.proxy.engine.inprocess import Engine, Server, engine, nothing_stored, until


async def connected(proxy: Engine, address: str) -> None:
    """Have the engine connect to a server."""
    backend = proxy.router.shared_backend(address)
    assert backend.open()
    await until(lambda: backend.is_ready)


async def test_one_owner_any_server_is_a_master_with_slots() -> None:
    async with Server(nothing_stored) as master, Server(nothing_stored) as replica, Server(nothing_stored) as bare:
        with engine(master.address) as proxy:
            for slot in range(16):
                proxy.router.set_replica(slot, replica.address)
            # They come first, and are connected; the master is not.
            await connected(proxy, replica.address)
            await connected(proxy, bare.address)
            assert proxy.router.any_address() == master.address
            await connected(proxy, master.address)
            assert proxy.router.any_address() == master.address
            # The replica is made the master.
            proxy.route(OPEN, replica.address)
            assert proxy.router.any_address() == replica.address


async def test_one_that_is_connected_is_preferred() -> None:
    async with Server(nothing_stored) as first, Server(nothing_stored) as second:
        with engine(first.address) as proxy:
            for slot in range(8, 16):
                proxy.router.set_route(slot, LOCKED, second.address, 0)
            assert proxy.router.any_address() == first.address
            await connected(proxy, second.address)
            assert proxy.router.any_address() == second.address
            await connected(proxy, first.address)
            assert proxy.router.any_address() == first.address


async def test_without_a_server_there_is_none() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            await connected(proxy, server.address)
            for slot in range(16):
                proxy.router.set_route(slot, OFFLINE, None, 0)
            assert proxy.router.any_address() is None
