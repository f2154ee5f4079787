"""Lists of keys, read in slices: what is shown of them is what a plain reading gives."""

import random

import hiredis
import pytest

from proxy.commands import replies
from proxy.engine.keylist import HERE, HERE_OR_THERE, HIDDEN, KeyList
from tests.unit.proxy.engine.inprocess import SLOTS, engine

RESERVED = b"own:"
ODD = [b"", b"own:", b"own:1", b"{own:}", b"own", b"\r\n", b"$1\r\nx\r\n", b"{a}1", b"x" * 1000]


def array(keys: list[bytes]) -> bytes:
    return replies.array(map(replies.bulk, keys))


async def test_keys_are_shown_by_their_slots() -> None:
    chance = random.Random(1)
    with engine("127.0.0.1:1") as proxy:
        for _ in range(500):
            keys = [chance.choice(ODD) if chance.random() < 0.2 else chance.randbytes(4) for _ in range(20)]
            shown = bytes(chance.choice([HIDDEN, HERE, HERE_OR_THERE]) for _ in range(SLOTS))
            found = KeyList(proxy.router, 0, array(keys), shown, RESERVED)
            while found.read(chance.randrange(1, 8)):
                pass
            reader = hiredis.Reader()
            reader.feed(b"*%d\r\n%b" % (found.kept, b"".join(found.parts)))
            clients = [(key, shown[proxy.router.slot_of_key(0, key)]) for key in keys if not key.startswith(RESERVED)]
            assert reader.gets() == [key for key, mark in clients if mark == HERE]
            assert found.uncertain == [key for key, mark in clients if mark == HERE_OR_THERE]


@pytest.mark.parametrize(
    "reply",
    [
        *(b"", b"+OK\r\n", b"*", b"*1", b"*1\r\n", b"*1\r\n$", b"*1\r\n$3\r\nab\r\n", b"*1\r\n:1\r\n", b"*-1\r\n"),
        *(b"*2\r\n$1\r\na\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$99999999999999999999\r\n", b"*1\r\n$999999999999\r\na\r\n"),
    ],
)
async def test_what_is_no_list_of_keys_is_refused(reply: bytes) -> None:
    with engine("127.0.0.1:1") as proxy, pytest.raises(ValueError, match="not a list of keys"):
        KeyList(proxy.router, 0, reply, bytes([HERE]) * SLOTS, RESERVED).read(10)


async def test_every_slot_has_to_be_marked() -> None:
    with engine("127.0.0.1:1") as proxy, pytest.raises(ValueError, match="there are 16"):
        KeyList(proxy.router, 0, b"*0\r\n", b"\1", RESERVED)
