"""Which clients leave when while a worker drains; and no client that has connected is turned away."""

import asyncio
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.listening import refuse_newcomers
from proxy.worker.clients.draining import CROWD_SECONDS, CUT_SECONDS, Draining, Partings
from tests.certificates import Authority


class Session:
    """A session as far as its end goes. One that is busy is never between two requests."""

    def __init__(self, everybody: "set[Session]", busy: bool = False, waits: bool = False) -> None:
        self.everybody = everybody
        self.busy = busy
        self.waits = waits
        self.closed = False
        self.ended = ""
        everybody.add(self)

    def retire(self, parting: Any) -> None:
        if not self.busy and not self.waits:
            self._end("retired")

    def cut(self, parting: Any) -> None:
        if not self.waits:
            self._end("cut")

    def close(self) -> None:
        self._end("closed")

    def _end(self, how: str) -> None:
        self.closed = True
        self.ended = how
        self.everybody.discard(self)


def draining(everybody: set[Session], retiring: Any = lambda session: None) -> Draining[Session]:
    return Draining(everybody, 10.0, 5.0, lambda sock: None, retiring, 100.0)


def test_turns_are_spread_over_the_time_there_is() -> None:
    everybody: set[Session] = set()
    for _ in range(1000):
        Session(everybody)
    clients = draining(everybody)
    assert not clients.step(100.0)
    left = []
    for second in range(1, 11):
        clients.step(100.0 + second)
        left.append(len(everybody))
    assert left == pytest.approx(range(900, -1, -100), abs=2)
    assert clients.step(110.1)
    assert clients.cut == 0


def test_few_need_no_more_time_than_no_crowd_takes() -> None:
    everybody: set[Session] = set()
    for _ in range(4):
        Session(everybody)
    clients = draining(everybody)
    assert not clients.step(100.0 + 3.5 * CROWD_SECONDS)
    assert len(everybody) == 1
    assert clients.step(100.0 + 4 * CROWD_SECONDS)


def test_who_comes_while_it_drains_has_a_turn_too() -> None:
    everybody: set[Session] = set()
    clients = draining(everybody)
    late = Session(everybody)
    assert clients.step(100.1)
    assert late.ended == "retired"


def test_who_is_never_between_requests_is_cut_in_the_end_and_who_waits_is_closed() -> None:
    everybody: set[Session] = set()
    busy, waiting = Session(everybody, busy=True), Session(everybody, waits=True)
    told: list[Session] = []
    clients = draining(everybody, told.append)
    end = 100.0 + 2 * CROWD_SECONDS
    assert not clients.step(end + 4.9)
    assert told == [waiting]
    assert everybody == {busy, waiting}
    assert not clients.step(end + 5.1)
    assert busy.ended == "cut"
    assert everybody == {waiting}
    assert clients.step(end + 5.1 + CUT_SECONDS)
    assert waiting.ended == "closed"
    assert clients.cut == 1


async def test_a_request_that_comes_too_late_does_not_destroy_the_reply_before_it() -> None:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    partings = Partings()
    theirs.send(b"+OK\r\n")
    partings.part(theirs)
    ours.send(b"PING\r\n")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        assert await loop.sock_recv(ours, 100) == b"+OK\r\n"
        assert await loop.sock_recv(ours, 100) == b""
        assert len(partings) == 1
        ours.close()
        while partings:
            await asyncio.sleep(0.001)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot stop listening and go on accepting")
def test_who_has_connected_is_accepted_and_nobody_else_comes() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        address = listener.getsockname()
        early = [socket.create_connection(address) for _ in range(20)]
        refuse_newcomers(listener)
        late = socket.socket()
        late.setblocking(False)
        late.connect_ex(address)
        listener.setblocking(False)
        accepted = []
        while True:
            try:
                accepted.append(listener.accept()[0])
            except BlockingIOError:
                break
        assert len(accepted) == 20
        with pytest.raises(OSError):  # noqa: PT011 - not connected, as getpeername says on any system
            late.getpeername()
    for client, served in zip(early, accepted, strict=True):
        served.sendall(b"here")
        assert client.recv(4) == b"here"
    for sock in (*early, *accepted, late):
        sock.close()


async def test_a_client_with_tls_is_told_that_it_ends(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("proxy")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(issued.certificate, issued.key)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    ours, theirs = socket.socketpair()
    connecting = asyncio.create_task(
        asyncio.to_thread(client.wrap_socket, ours, suppress_ragged_eofs=False)  # an end without a word is an error
    )
    served = await asyncio.to_thread(server.wrap_socket, theirs, server_side=True)
    talking = await connecting
    served.setblocking(False)
    served.send(b"+OK\r\n")
    partings = Partings()
    partings.part(served)
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(talking.recv, 100) == b"+OK\r\n"
        assert await asyncio.to_thread(talking.recv, 100) == b""
        talking.close()
        while partings:
            await asyncio.sleep(0.001)
