"""The two sides: connections of an example's clients to a proxy, and the same to one plain Redis."""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable

from tests.differential.wire import Values, decode, encode, is_message

PATIENCE = 10.0
"""Seconds after which a reply counts as one that never comes."""


class Silence(AssertionError):
    """Something did not come in time."""


class Connection:
    """One client's connection: what it has been given so far, replies apart from messages."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.values = Values()
        self.replies: deque[bytes] = deque()
        self.messages: deque[bytes] = deque()
        self.received = 0
        """Replies and messages since the connection was made."""
        self.subscribed = False
        """Whether it ever asked for messages: those of RESP2 look like replies."""
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send; a peer that has closed the connection is noticed when it is read."""
        try:
            self.socket.settimeout(PATIENCE)
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self) -> None:
        """Take what is there."""
        self.socket.settimeout(0)
        while not self.ended:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
            for value in self.values.feed(data):
                self.received += 1
                self.take(value)

    def take(self, value: bytes) -> None:
        """Take a reply or a message, in the order in which they come."""
        (self.messages if is_message(value, self.subscribed) else self.replies).append(value)

    def close(self) -> None:
        self.socket.close()


class Side:
    """A server or a proxy, with connections of an example's clients."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self.address = address
        self.clients: list[Connection] = []

    def open(self, count: int) -> None:
        """Connect so many clients."""
        self.clients = [Connection(self.address) for _ in range(count)]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.clients = []

    def wait_until(self, met: Callable[[], bool], what: Callable[[], str]) -> None:
        """Read from all clients until the condition is met.

        Raises:
            Silence: when that takes too long.
        """
        limit = time.monotonic() + PATIENCE
        for client in self.clients:
            client.read()
        while not met():
            left = limit - time.monotonic()
            if left <= 0:
                raise Silence(f"{self.name}: {what()}")
            listening = {client.socket: client for client in self.clients if not client.ended}
            ready, _, _ = select.select(list(listening), [], [], min(left, 0.05))
            for one in ready:
                listening[one].read()


class Control:
    """A connection beside the clients', straight to a server: asks and gives the reply."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = Connection(address)

    def ask(self, *commands: Iterable[bytes]) -> list[bytes]:
        """Replies of these commands."""
        connection = self._connection
        connection.send(b"".join(map(encode, commands)))
        limit = time.monotonic() + PATIENCE
        while len(connection.replies) < len(commands):
            if connection.ended or time.monotonic() > limit:
                raise Silence(f"no answer to {commands!r}")
            select.select([connection.socket], [], [], 1)
            connection.read()
        return [connection.replies.popleft() for _ in commands]

    def text(self, *words: bytes) -> str:
        """The text of one reply."""
        return decode(self.ask(words)[0]).text.decode(errors="replace")

    def waiting(self) -> int:
        """How many clients of the server wait in a blocking command."""
        return int(self.text(b"INFO", b"clients").partition("blocked_clients:")[2].split()[0])

    def settled(self) -> None:
        """Come back when the server has done all that was sent to it before, and has sent its replies."""
        # It serves its connections one after another: by the second answer the first round is over.
        self.ask([b"PING"])
        self.ask([b"PING"])

    def close(self) -> None:
        self._connection.close()
