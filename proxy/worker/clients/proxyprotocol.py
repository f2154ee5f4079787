"""The PROXY protocol, version 1 and 2: a load balancer first says which client's connection it passes on.

No byte behind the header is taken from the socket. Afterwards the socket is as if the client itself had connected.
**bounded**: a header of version 1 has at most 107 bytes, one of version 2 at most :data:`LONGEST`.
"""

import ipaddress
import re
import socket
import struct

from slots import address

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
"""The beginning of a header of version 2."""
START = struct.Struct("!12sBBH")
"""The part of a header of version 2 before the addresses: signature, version and command, family, number of bytes
left."""
FIRST_WORD = b"PROXY "
"""The beginning of a header of version 1."""
SHORTEST = len(b"PROXY UNKNOWN\r\n")
"""The header has at least so many bytes, in either version."""
LONGEST_LINE = 107
LONGEST = 4096
"""The most bytes of a header of version 2, including a load balancer's additions to the addresses. 500 are many."""

PORT = re.compile(r"0|[1-9][0-9]{0,4}")
NOT_FOR_A_NAME = re.compile(r"[^!-~]")


class ProxyProtocolError(ValueError):
    """The bytes are not a header, or not an allowed one."""


class Header:
    """Takes a header from a non-blocking socket, in the parts in which it comes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.peer: str | None = None
        """The client's address; None if the header says to take the socket's own."""

    def read(self, sock: socket.socket) -> bool:
        """Take the available bytes of the header; say whether it is complete.

        Raises:
            ProxyProtocolError: it is not a header, or the connection ended within it.
            OSError: the connection is broken.
        """
        try:
            while (missing := self._missing()) != 0:
                piece = self._line(sock) if missing is None else sock.recv(missing)
                if not piece:
                    raise ProxyProtocolError("the connection ended before its end")
                self.received += piece
        except BlockingIOError:
            return False
        header = bytes(self.received)
        self.peer = _read_line(header) if header.startswith(FIRST_WORD) else _read_binary(header)
        return True

    def _missing(self) -> int | None:
        """How many more bytes certainly belong to the header; 0 once it is complete; None: up to the end of the
        line."""
        received = self.received
        if not (received.startswith((FIRST_WORD, SIGNATURE)) or _begins(received)):
            raise ProxyProtocolError(f"it does not begin as a header does: {bytes(received[:16])!r}")
        if len(received) < SHORTEST:
            return SHORTEST - len(received)
        if received.startswith(FIRST_WORD):
            if received.endswith(b"\r\n"):
                return 0
            if len(received) >= LONGEST_LINE or b"\n" in received:
                raise ProxyProtocolError("its line does not end as it should")
            return None
        if len(received) < START.size:
            return START.size - len(received)
        size = START.size + int(START.unpack_from(received)[3])
        if size > LONGEST:
            raise ProxyProtocolError(f"it has {size} bytes; {LONGEST} are allowed")
        return size - len(received)

    def _line(self, sock: socket.socket) -> bytes:
        # Bytes that were peeked at are taken whole, or up to the end of the line: no left byte would wake the loop
        # again.
        ahead = sock.recv(LONGEST_LINE - len(self.received), socket.MSG_PEEK)
        end = ahead.find(b"\n")
        return sock.recv(end + 1 if end >= 0 else len(ahead)) if ahead else b""


def _begins(received: bytes | bytearray) -> bool:
    return FIRST_WORD.startswith(received) or SIGNATURE.startswith(received)


def _read_line(header: bytes) -> str | None:
    """The client's address in a header of version 1."""
    words = header[:-2].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyProtocolError(f"it is not understood: {header!r}")
    kind = ipaddress.IPv4Address if words[1] == "TCP4" else ipaddress.IPv6Address
    try:
        if "%" in words[2] + words[3]:
            raise ValueError("a scope has no meaning elsewhere")
        source, _ = kind(words[2]), kind(words[3])
    except ValueError as error:
        raise ProxyProtocolError(f"it has a wrong address: {error}") from error
    for port in words[4:]:
        if not PORT.fullmatch(port) or int(port) > 65535:
            raise ProxyProtocolError(f"it has a wrong port: {port!r}")
    return address.join(str(source), int(words[4]))


def _read_binary(header: bytes) -> str | None:
    """The client's address in a header of version 2."""
    _, version_and_command, kind, size = START.unpack_from(header)
    version, command = version_and_command >> 4, version_and_command & 15
    family, transport = kind >> 4, kind & 15
    if version != 2 or command > 1:
        raise ProxyProtocolError(f"it is not understood: {header[: START.size]!r}")
    if command == 0:
        return None  # LOCAL: the load balancer itself checks the proxy. Nothing else in the header counts then.
    if family > 3 or transport > 2:
        raise ProxyProtocolError(f"it is not understood: {header[: START.size]!r}")
    body = memoryview(header)[START.size :]
    if family and transport and size < (12, 36, 216)[family - 1]:
        raise ProxyProtocolError(f"its addresses have {size} bytes, which is too few")
    match family, transport:
        case 1, 1:
            return address.join(str(ipaddress.IPv4Address(bytes(body[:4]))), int.from_bytes(body[8:10]))
        case 2, 1:
            return address.join(str(ipaddress.IPv6Address(bytes(body[:16]))), int.from_bytes(body[32:34]))
        case 3, 1:
            path = bytes(body[:108]).split(b"\0", 1)[0].decode(errors="replace")
            # It becomes part of a line of CLIENT LIST, for instance. It begins so that it looks like no IP address.
            return f"/{NOT_FOR_A_NAME.sub('?', path).removeprefix('/')}:0"
        case _:
            return None
