"""Headers of both versions, whole and in pieces; nothing behind them is touched."""

import ipaddress
import itertools
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.worker.clients.proxyprotocol import LONGEST, SIGNATURE, Header, ProxyProtocolError


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def read(data: bytes, cuts: list[int] | None = None) -> tuple[str | None, bytes]:
    """The peer in the header at the front of ``data``, which comes in pieces, and what is behind it."""
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        header = Header()
        edges = [0, *sorted(cuts or []), len(data)]
        done = False
        sent = 0
        for start, end in itertools.pairwise(edges):
            far.sendall(data[start:end])
            sent = end
            if header.read(near):
                done = True
                break
            # Nothing is left that would wake us again at once.
            with pytest.raises(BlockingIOError):
                near.recv(1, socket.MSG_PEEK)
        far.sendall(data[sent:])
        far.shutdown(socket.SHUT_WR)
        assert done
        behind = b""
        while piece := near.recv(65536):
            behind += piece
        return header.peer, behind


def version2(command: int, kind: int, body: bytes) -> bytes:
    return SIGNATURE + bytes([0x20 | command, kind]) + len(body).to_bytes(2) + body


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", "192.0.2.1:56324"),
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
        (b"PROXY TCP6 2001:db8::1 ::1 1 0\r\n", "[2001:db8::1]:1"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        (b"PROXY UNKNOWN whatever there is\r\n", None),
        (version2(1, 0x11, bytes([192, 0, 2, 1, 198, 51, 100, 2, 0xDC, 4, 1, 187])), "192.0.2.1:56324"),
        (version2(1, 0x21, ipaddress.ip_address("2001:db8::1").packed * 2 + b"\0\1\0\2"), "[2001:db8::1]:1"),
        (version2(1, 0x31, b"/run/client".ljust(108, b"\0") + b"/run/us".ljust(108, b"\0")), "/run/client:0"),
        (version2(1, 0x31, b"/a b\n=".ljust(108, b"\0") + b"\0" * 108), "/a?b?=:0"),
        (version2(1, 0x31, b"\0" * 216), "/:0"),
        (version2(1, 0x31, b"10.1.0.5".ljust(108, b"\0") + b"\0" * 108), "/10.1.0.5:0"),
        (version2(0, 0x00, b""), None),
        (version2(0, 0x11, b"\0" * 12), None),
        (version2(0, 0x11, b"\0"), None),
        (version2(0, 0xF7, b"of a family to come"), None),
        (version2(1, 0x00, b""), None),
        (version2(1, 0x00, b"anything"), None),
        (version2(1, 0x12, b"\1" * 12), None),
        (version2(1, 0x11, bytes([192, 0, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0]) + b"\x04\0\x02hi" * 100), "192.0.2.1:1"),
        (version2(1, 0x11, bytes([192, 0, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0]).ljust(LONGEST - 16, b"x")), "192.0.2.1:1"),
    ],
)
def test_headers(header: bytes, peer: str | None) -> None:
    for behind in (b"", b"*1\r\n$4\r\nPING\r\n", b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n"):
        assert read(header + behind) == (peer, behind)
    every = list(range(1, min(len(header), 200)))
    assert read(header + b"x\r\n", every) == (peer, b"x\r\n")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"*1\r\n$4\r\nPING\r\n", "does not begin"),
        (b"PING\r\n", "does not begin"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "does not begin"),
        (b"PROXX", "does not begin"),
        (b"\r\n\r\n\0\r\nQUIX\n", "does not begin"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2" + b" " * 100, "does not end"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n" + b"x" * 100, "does not end"),
        (b"PROXY \r\nxxxxxxxx", "does not end"),
        (b"PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n", "not understood"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", "not understood"),
        (b"PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n", "not understood"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", "not understood"),
        (b"PROXY TCP4 1.1.1.256 2.2.2.2 1 2\r\n", "wrong address"),
        (b"PROXY TCP4 1.1.1.1 ::1 1 2\r\n", "wrong address"),
        (b"PROXY TCP6 1.1.1.1 ::1 1 2\r\n", "wrong address"),
        (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "wrong address"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n", "wrong port"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 02\r\n", "wrong port"),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 -1 2\r\n", "wrong port"),
        (SIGNATURE + b"\x11\x11\0\x0c" + b"\0" * 12, "not understood"),
        (SIGNATURE + b"\x31\x11\0\x0c" + b"\0" * 12, "not understood"),
        (SIGNATURE + b"\x22\x11\0\x0c" + b"\0" * 12, "not understood"),
        (SIGNATURE + b"\x21\x41\0\x0c" + b"\0" * 12, "not understood"),
        (SIGNATURE + b"\x21\x13\0\x0c" + b"\0" * 12, "not understood"),
        (version2(1, 0x11, b"\0" * 11), "too few"),
        (version2(1, 0x21, b"\0" * 35), "too few"),
        (version2(1, 0x31, b"\0" * 215), "too few"),
        (SIGNATURE + b"\x21\x11\xff\xff", f"{LONGEST} are allowed"),
    ],
)
def test_what_is_no_header(pair: tuple[socket.socket, socket.socket], data: bytes, reason: str) -> None:
    near, far = pair
    far.sendall(data)
    with pytest.raises(ProxyProtocolError, match=reason):
        Header().read(near)


@pytest.mark.parametrize("whole", [b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", version2(1, 0x11, b"\1" * 12)])
def test_a_connection_that_ends_within_its_header(pair: tuple[socket.socket, socket.socket], whole: bytes) -> None:
    for length in range(len(whole)):
        near, far = socket.socketpair()
        near.setblocking(False)
        with near, far:
            far.sendall(whole[:length])
            far.shutdown(socket.SHUT_WR)
            header = Header()
            with pytest.raises(ProxyProtocolError, match="ended before its end"):
                header.read(near)
            assert bytes(header.received) == whole[:length]


ports = st.integers(0, 65535)
cuts = st.lists(st.integers(1, 400), max_size=8)


@given(st.data(), st.binary(max_size=300), cuts)
def test_any_line_in_any_pieces(data: st.DataObject, behind: bytes, where: list[int]) -> None:
    version = data.draw(st.sampled_from([4, 6]))
    addresses = st.ip_addresses(v=version)  # type: ignore[arg-type]
    source, target, port = data.draw(addresses), data.draw(addresses), data.draw(ports)
    header = f"PROXY TCP{version} {source} {target} {port} {data.draw(ports)}\r\n".encode()
    expected = f"{source}:{port}" if version == 4 else f"[{source}]:{port}"
    whole = header + behind
    assert read(whole, [cut for cut in where if cut < len(whole)]) == (expected, behind)


@given(st.data(), st.binary(max_size=200), st.binary(max_size=300), cuts)
def test_any_binary_header_in_any_pieces(data: st.DataObject, extras: bytes, behind: bytes, where: list[int]) -> None:
    version = data.draw(st.sampled_from([4, 6]))
    addresses = st.ip_addresses(v=version)  # type: ignore[arg-type]
    source, target, port = data.draw(addresses), data.draw(addresses), data.draw(ports)
    body = source.packed + target.packed + port.to_bytes(2) + b"\0\7" + extras
    expected = f"{source}:{port}" if version == 4 else f"[{source}]:{port}"
    whole = version2(1, 0x11 if version == 4 else 0x21, body) + behind
    assert read(whole, [cut for cut in where if cut < len(whole)]) == (expected, behind)


@given(st.one_of(st.binary(max_size=600), st.binary(max_size=300).map(lambda rest: SIGNATURE + b"\x21" + rest)), cuts)
def test_anything_else_is_refused_or_waited_for(data: bytes, where: list[int]) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        header = Header()
        edges = [0, *sorted(cut for cut in where if cut < len(data)), len(data)]
        try:
            for start, end in itertools.pairwise(edges):
                far.sendall(data[start:end])
                if header.read(near):
                    break
        except ProxyProtocolError:
            return
        assert data.startswith(bytes(header.received))
        assert len(header.received) <= LONGEST
