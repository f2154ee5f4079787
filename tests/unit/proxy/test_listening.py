import asyncio
import socket

import pytest

from proxy.listening import SPREADS_CONNECTIONS, ListenError, PlaceTaken, Reservation, Reservations, reserve
from proxy.settings import ProxySettings
from slots.address import join, split

TLS = {"tls_certificate": "certificate.pem", "tls_key": "key.pem"}
needs_spreading = pytest.mark.skipif(not SPREADS_CONNECTIONS, reason="SO_REUSEPORT does not spread connections here")


def listen_as_worker(reservation: Reservation) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(split(reservation.address))
    listener.listen()
    return listener


@needs_spreading
def test_workers_may_listen_where_the_supervisor_has_reserved() -> None:
    reservation = reserve("127.0.0.1:0", shared=True)
    with reservation.holder, listen_as_worker(reservation), listen_as_worker(reservation):
        socket.create_connection(split(reservation.address)).close()


@needs_spreading
def test_nobody_can_connect_while_no_worker_listens() -> None:
    reservation = reserve("127.0.0.1:0", shared=True)
    with reservation.holder, pytest.raises(ConnectionRefusedError):
        socket.create_connection(split(reservation.address))


@needs_spreading
def test_two_proxies_cannot_share_an_address_before_workers_listen() -> None:
    reservation = reserve("127.0.0.1:0", shared=True)
    with reservation.holder, pytest.raises(ListenError, match=r"another process listens there\. Stop it, or choose"):
        reserve(reservation.address, shared=True)


@needs_spreading
def test_two_proxies_cannot_share_an_address_once_workers_listen() -> None:
    reservation = reserve("127.0.0.1:0", shared=True)
    with listen_as_worker(reservation):
        reservation.close()
        with pytest.raises(ListenError, match="another process listens there"):
            reserve(reservation.address, shared=True)


def test_an_address_in_use_by_another_program_is_refused() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    with other, pytest.raises(ListenError, match="another process listens there"):
        reserve(f"127.0.0.1:{other.getsockname()[1]}")


@pytest.mark.parametrize("shared", [pytest.param(True, marks=needs_spreading), False])
def test_connections_that_lately_ended_are_not_in_the_way(shared: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = join(*other.getsockname()[:2])
        with socket.create_connection(split(address)) as client:
            accepted, _ = other.accept()
            accepted.close()  # the first to close keeps the port in TIME_WAIT
            assert client.recv(1) == b""
    reservation = reserve(address, shared)
    assert reservation.address == address
    reservation.close()


def test_where_connections_are_not_spread_the_socket_is_inherited() -> None:
    reservation = reserve("127.0.0.1:0", shared=False)
    with reservation.holder as listener:
        listener.listen()
        with socket.create_connection(split(reservation.address)):
            listener.accept()[0].close()


@pytest.mark.parametrize("address", ["203.0.113.7:0", "no-such-host.invalid:0"])
def test_an_address_that_is_not_ours_is_explained(address: str) -> None:
    with pytest.raises(ListenError, match=f"Cannot listen on {address}"):
        reserve(address)


async def test_a_place_that_is_given_back_soon_is_waited_for() -> None:
    """given that another of the places is free: it is not held meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as free:
        taken, first = (join(*one.getsockname()[:2]) for one in (other, free))
        free.close()
        places = Reservations(ProxySettings.load(None, listen=first, tls_listen=taken, **TLS))
        waiting = asyncio.create_task(places.reserve_within(30.0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert places.addresses == {}
        other.close()
        await waiting
    assert places.addresses == {"listen": first, "tls_listen": taken}
    places.close()


async def test_a_place_that_stays_taken_is_refused_and_no_other_is_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = join(*other.getsockname()[:2])
        places = Reservations(ProxySettings.load(None, listen="127.0.0.1:0", tls_listen=taken, **TLS))
        with pytest.raises(PlaceTaken, match="another process listens there"):
            await places.reserve_within(0.2)
    assert places.addresses == {}


async def test_a_place_that_cannot_be_had_is_not_waited_for() -> None:
    places = Reservations(ProxySettings.load(None, listen="192.0.2.1:6379"))
    with pytest.raises(ListenError, match="does not have that address"):
        await places.reserve_within(1e9)
