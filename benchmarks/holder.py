"""Holds the client ends of many connections, in a process of its own: the limit of open files is for each process.

    python -m benchmarks.holder HOST:PORT

It carries out each line of its input and answers with a line of JSON. It ends with its input.

    hold N    N more clients connect and have one reply each: {"clients": all there are}
    stick N   N of them begin to ask for a large value, over and over, and read nothing: {"stuck": N}
    look      how many the proxy has not closed, and requests of the stuck that it took: {"idle", "stuck", "requests"}
    drop      those that are stuck go away: {"stuck": 0}
"""

import contextlib
import json
import os
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from benchmarks.load import get_request, key

LARGE_KEY = b"large"
STUCK_REQUESTS = 64
"""Requests for the large value that a stuck client sends at a time."""
SEND_BYTES = 65536
SEGMENT_BYTES = 1448
"""The segment size of Ethernet. With the segments of the loopback interface, Linux keeps 4 MB of unread replies for
each connection."""
CONNECT_SECONDS = 10.0
DESCRIPTORS_BESIDE = 50
_PAUSE_SECONDS = 0.01
"""The pause after all stuck clients that could send have sent: this process must not take the core from the ones it
disturbs."""


class HolderFailed(RuntimeError):
    """The system does not allow so many connections, or the proxy refused one."""


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files as far as is needed. Raises HolderFailed."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now >= wanted:
        return
    if most < wanted:
        raise HolderFailed(f"{wanted} open files are needed, and the system allows {most}: see ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def is_open(client: socket.socket) -> bool:
    """Whether the other end has not closed an idle connection."""
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class Holder:
    """The connections, including the stuck ones."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._idle: list[socket.socket] = []
        self._stuck: set[socket.socket] = set()
        self._requests = 0
        self._asking = get_request(LARGE_KEY) * STUCK_REQUESTS
        self._selector = selectors.DefaultSelector()
        self.commands: dict[str, Callable[[int], dict[str, int]]] = {
            "hold": self.hold,
            "stick": self.stick,
            "look": self.look,
            "drop": self.drop,
        }

    def hold(self, count: int) -> dict[str, int]:
        """Connect more clients that have one reply each. Raises HolderFailed, OSError."""
        allow_descriptors(len(self._idle) + len(self._stuck) + count + DESCRIPTORS_BESIDE)
        for _ in range(count):
            client = socket.socket()
            self._idle.append(client)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            client.settimeout(CONNECT_SECONDS)
            client.connect(self._address)
            client.sendall(get_request(key(0)))
            if not client.recv(1024).startswith(b"$"):
                raise HolderFailed(f"the proxy refused client {len(self._idle)}")
            client.setblocking(False)
        return {"clients": len(self._idle) + len(self._stuck)}

    def stick(self, count: int) -> dict[str, int]:
        """Let some of the idle clients send requests and never read."""
        for client in self._idle[-count:]:
            # So many unsent bytes are enough; more would only fill the system's memory.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            self._stuck.add(client)
            self._selector.register(client, selectors.EVENT_WRITE)
        del self._idle[-count:]
        return {"stuck": len(self._stuck)}

    def look(self, _: int) -> dict[str, int]:
        """How many of each are still connected."""
        return {"idle": sum(map(is_open, self._idle)), "stuck": len(self._stuck), "requests": self._requests}

    def drop(self, _: int) -> dict[str, int]:
        """Close the stuck clients."""
        for client in list(self._stuck):
            self._lose(client)
        return {"stuck": 0}

    def _lose(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        self._stuck.discard(client)
        client.close()

    def _push(self, client: socket.socket) -> None:
        try:
            self._requests += client.send(self._asking) // len(get_request(LARGE_KEY))
        except BlockingIOError:
            return
        except OSError:
            # The proxy has closed it because of a limit.
            self._lose(client)

    def run(self) -> None:
        """Carry out orders until the input ends. Raises HolderFailed, OSError."""
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = self._selector.select()
            for chosen, _ in ready:
                if isinstance(chosen.fileobj, socket.socket):
                    # A connection that was just closed may still be among the ready ones.
                    if chosen.fileobj in self._stuck:
                        self._push(chosen.fileobj)
                    continue
                received = os.read(sys.stdin.fileno(), 4096)
                if not received:
                    return
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    name, _, count = line.decode().partition(" ")
                    print(json.dumps(self.commands[name](int(count or 0))), flush=True)
            if self._stuck:
                time.sleep(_PAUSE_SECONDS)


def main(address: Annotated[str, typer.Argument(help="Where the clients connect, host:port.")]) -> None:
    """Hold many connections."""
    with contextlib.suppress(KeyboardInterrupt):
        try:
            Holder(address).run()
        except (HolderFailed, OSError) as error:
            print(json.dumps({"failed": str(error)}), flush=True)
            raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
