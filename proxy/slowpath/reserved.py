"""Keys of Slotferry's own, which servers list among those of clients; see :data:`slots.moving.RESERVED`."""

import hiredis

from proxy.slowpath import replies
from slots.moving import RESERVED


def without_reserved(array: bytes) -> bytes:
    """An array of keys as a server gave it, without Slotferry's own; anything else as it is."""
    if RESERVED not in array:
        return array
    reader = hiredis.Reader()
    reader.feed(array)
    keys = reader.gets()
    if not isinstance(keys, list):
        return array
    return replies.array(replies.bulk(key) for key in keys if not key.startswith(RESERVED))


def is_reserved(reply: bytes) -> bool:
    """Whether a reply is one key, and that one is Slotferry's own."""
    return reply.startswith(b"$") and reply.partition(b"\r\n")[2].startswith(RESERVED)
