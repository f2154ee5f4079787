import socket

import pytest

from proxy.listening import SPREADS_CONNECTIONS, ListenError, Reservation, reserve
from slots.address import join, split

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
