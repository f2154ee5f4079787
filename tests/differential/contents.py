"""What is left behind at servers: every key of every database, each with Redis's own digest of its value."""

from collections.abc import Iterable

from slots.reserved import RESERVED
from tests.differential.sides import Control
from tests.differential.wire import decode

Contents = dict[tuple[bytes, bytes], bytes]
"""By database and key."""


def contents_of(servers: Iterable[Control], without: Iterable[bytes] = ()) -> Contents:
    """What these servers have together, without some databases, and without Slotferry's own keys.

    A key that is at two of them has to be the same at both.
    """
    found: Contents = {}
    for server in servers:
        keyspace = server.text(b"INFO", b"keyspace").split("\r\n")
        databases = [line[2 : line.index(":")].encode() for line in keyspace if line.startswith("db")]
        for database in databases:
            if database in without:
                continue
            _, listed = server.ask((b"SELECT", database), (b"KEYS", b"*"))
            keys = [node.text for node in decode(listed).items if not node.text.startswith(RESERVED)]
            if not keys:
                continue
            # That of a key that is gone by now is made of zeros.
            (digests,) = server.ask((b"DEBUG", b"DIGEST-VALUE", *keys))
            for key, digest in zip(keys, decode(digests).items, strict=True):
                if digest.text.strip(b"0"):
                    assert found.setdefault((database, key), digest.text) == digest.text, f"{key!r} is at two servers"
    return found
