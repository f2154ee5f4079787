"""What a server is asked about channels, and what is read of its answer."""

import random
import socket

import pytest

from proxy.commands.pubsub import counts
from proxy.commands.pubsub.messages import Kind
from proxy.commands.pubsub.receivers import REMEMBERED_BYTES, numbers_in, question
from proxy.engine.backend import command

NAMES = [b"c", b"", b"a\r\n:7\r\n", b"x" * (REMEMBERED_BYTES + 1), b"$1\r\n", counts.ANNOUNCES + b"*", b"\xff\x00"]


@pytest.mark.parametrize("kind", [Kind.CHANNEL, Kind.SHARD])
@pytest.mark.parametrize("count", [1, len(NAMES)])
def test_names_of_all_kinds_are_asked_for_and_read(redis_server: str, kind: Kind, count: int) -> None:
    host, port = redis_server.split(":")
    dice = random.Random(1)
    for name in NAMES[:count]:
        names = [name, *dice.sample(NAMES, count - 1)]
        expected = [[dice.choice([0, 0, 0, 1]) for _ in range(counts.ASKED_EACH)] for _ in names]
        wanted: dict[bytes, int] = {}
        for one, numbers in zip(names, expected, strict=True):
            wanted.update(zip(counts.asked(one), numbers, strict=True))
        expected = [[wanted[asked] for asked in counts.asked(one)] for one in names]
        with (
            socket.create_connection((host, int(port)), 60) as listener,
            socket.create_connection((host, int(port)), 60) as asks,
        ):
            subscribed = [asked for asked, number in wanted.items() if number]
            listener.sendall(command((kind.joining.upper(), *subscribed, b"last")))
            read_to(listener, b"last\r\n:%d\r\n" % (len(subscribed) + 1))
            asks.sendall(question(kind, names) + command(("PING",)))
            reply = read_to(asks, b"+PONG\r\n").removesuffix(b"+PONG\r\n")
            assert numbers_in(reply, names) == expected
            assert numbers_in(reply, [*names, b"another"]) is None
    assert numbers_in(b"-ERR\r\n", names) is None


def read_to(connection: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        data = connection.recv(2**20)
        assert data
        found += data
    return found
