"""Plays thousands of Redis servers with nothing to do: one process, one port, an address of the loopback network each.

A group is three servers, the first of which is the master. Each says who it is, and follows, as a stock server does; it
holds nothing.
"""

import asyncio
import socket
from typing import cast

import hiredis

from benchmarks.fleet import SERVERS_A_GROUP, address_of, data_of, number_of, run_id_of

OK, QUEUED, NIL_LIST = b"+OK\r\n", b"+QUEUED\r\n", b"*0\r\n"
BACKLOG = 4096


async def play(port: int) -> None:
    """Answer at every address of the loopback network, until the process is ended."""
    listening = socket.create_server(("0.0.0.0", port), backlog=BACKLOG)
    server = await asyncio.get_running_loop().create_server(_Connection, sock=listening)
    await server.serve_forever()


def _bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


class _Server:
    """What one of them says."""

    def __init__(self, number: int, port: int) -> None:
        run_id, place = run_id_of(number), number % SERVERS_A_GROUP
        master = number - place
        stream = run_id_of(-1 - master // SERVERS_A_GROUP)
        server = f"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nprocess_id:1\r\nrun_id:{run_id}\r\n"
        replication = "# Replication\r\n"
        if place:
            host, _, _ = address_of(master, port).rpartition(":")
            replication += (
                f"role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:up\r\n"
                "master_last_io_seconds_ago:0\r\nmaster_sync_in_progress:0\r\nslave_read_repl_offset:1000\r\n"
                "slave_repl_offset:1000\r\nslave_priority:100\r\nslave_read_only:1\r\nconnected_slaves:0\r\n"
            )
        else:
            replication += f"role:master\r\nconnected_slaves:{SERVERS_A_GROUP - 1}\r\n"
            for follower in range(1, SERVERS_A_GROUP):
                host, _, _ = address_of(number + follower, port).rpartition(":")
                replication += f"slave{follower - 1}:ip={host},port={port},state=online,offset=1000,lag=0\r\n"
        replication += (
            f"master_replid:{stream}\r\nmaster_replid2:{'0' * 40}\r\nmaster_repl_offset:1000\r\n"
            "second_repl_offset:-1\r\nrepl_backlog_active:1\r\n"
        )
        rest = "# Memory\r\nused_memory:1000000\r\n# Persistence\r\nloading:0\r\n"
        # It was swept in the life that it has.
        data = data_of(1 + number // SERVERS_A_GROUP)
        self.standing = b"*3\r\n" + _bulk(run_id) * 2 + _bulk(data)
        self.sections = {b"SERVER": _bulk(server), b"REPLICATION": _bulk(replication)}
        self.all = _bulk(server + rest + replication + "# Keyspace\r\n")


_servers: dict[int, _Server] = {}


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._queued: list[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = transport.get_extra_info("sockname")[:2]
        number = number_of(host)
        if number not in _servers:
            _servers[number] = _Server(number, port)
        self._server = _servers[number]

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._transport.write(self._said(cast(list[bytes], command)))

    def _said(self, command: list[bytes]) -> bytes:
        name = command[0].upper()
        if name == b"MULTI":
            self._queued = []
            return OK
        if name == b"EXEC" and self._queued is not None:
            queued, self._queued = self._queued, None
            return b"*%d\r\n" % len(queued) + b"".join(queued)
        reply = self._reply(name, command)
        if self._queued is None:
            return reply
        self._queued.append(reply)
        return QUEUED

    def _reply(self, name: bytes, command: list[bytes]) -> bytes:
        if name == b"PING":
            return b"+PONG\r\n"
        if name == b"INFO":
            return self._server.sections.get(command[1].upper() if len(command) == 2 else b"", self._server.all)
        if name in (b"EVAL", b"EVALSHA"):
            return self._server.standing if b"field('swept')" in command[1] else NIL_LIST
        if name in (b"EXISTS", b"DEL", b"HSET"):
            return b":0\r\n"
        if name == b"CLIENT" and command[1].upper() == b"LIST":
            return _bulk("")
        return OK
