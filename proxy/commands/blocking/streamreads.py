"""XREAD and XREADGROUP: which of them block, and from which entry on they read.

``$`` means the newest entry at the time when the command first runs. A command is sent again if its slot moved to
another server. It must not miss entries that were added meanwhile, nor give any entry twice. So before the command
first blocks, the streams' last generated ids are asked for; they also count deleted entries. Later they are sent in
place of ``$``. ``+`` of Redis 7.4 means the newest entry itself. A command that blocks found none, and from then on
reads as with ``$``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hiredis

from proxy.commands.blocking.blockingrequest import milliseconds_of
from proxy.engine.backend import command
from proxy.servers.ownconnections import OwnConnection
from slots.keys import INTEGER, NOT_AN_INTEGER, SYNTAX_ERROR, KeysError

NOTHING_YET = b"0-0"
NO_SUCH_KEY = "ERR no such key"


@dataclass(frozen=True, slots=True)
class StreamRead:
    """How a request reads: the places of BLOCK's timeout, of its keys and of COUNT's number; None without them."""

    block: int | None
    keys: range
    count: int | None = None

    def of_one(self, argv: Sequence[bytes], key: int) -> list[bytes]:
        """XREAD of one of the streams alone, by the place of its key, without BLOCK."""
        limit = [] if self.count is None else [b"COUNT", argv[self.count]]
        return [b"XREAD", *limit, b"STREAMS", argv[key], argv[key + len(self.keys)]]

    def newest(self, argv: Sequence[bytes]) -> dict[int, bytes]:
        """The places of ids that mean the newest entry, each with its key."""
        if argv[0].upper() != b"XREAD":
            return {}
        count = len(self.keys)
        return {key + count: argv[key] for key in self.keys if argv[key + count] in (b"$", b"+")}


def parse(argv: Sequence[bytes]) -> StreamRead:
    """Read the options as Redis does, in their order.

    Raises:
        KeysError: with the error that Redis gives.
    """
    group_allowed = argv[0].upper() == b"XREADGROUP"
    grouped = False
    block = count = None
    place = 1
    while place < len(argv):
        word = argv[place].upper()
        more = len(argv) - place - 1
        if word == b"BLOCK" and more:
            block = place + 1
            _check_timeout(argv[block])
            place += 2
        elif word == b"COUNT" and more:
            if not INTEGER.fullmatch(argv[place + 1]) or not -(2**63) <= int(argv[place + 1]) < 2**63:
                raise KeysError(NOT_AN_INTEGER)
            count = place + 1
            place += 2
        elif word == b"CLAIM" and more and group_allowed:
            # It is an option of Redis 8.4; an older server reports the error.
            place += 2
        elif word == b"STREAMS" and more:
            if more % 2:
                raise KeysError(
                    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
                )
            if group_allowed and not grouped:
                raise KeysError("ERR Missing GROUP option for XREADGROUP")
            return StreamRead(block, range(place + 1, place + 1 + more // 2), count)
        elif word in (b"GROUP", b"NOACK") and not (word == b"GROUP" and more < 2):
            if not group_allowed:
                raise KeysError(
                    f"ERR The {word.decode()} option is only supported by XREADGROUP. You called XREAD instead."
                )
            grouped = grouped or word == b"GROUP"
            place += 3 if word == b"GROUP" else 1
        else:
            raise KeysError(SYNTAX_ERROR)
    raise KeysError(SYNTAX_ERROR)


def _check_timeout(text: bytes) -> None:
    if milliseconds_of(text) is None:
        negative = INTEGER.fullmatch(text) and -(2**63) <= int(text) < 0
        raise KeysError("ERR timeout is negative" if negative else "ERR timeout is not an integer or out of range")


async def ask_newest(connection: OwnConnection, newest: dict[int, bytes]) -> dict[int, bytes]:
    """The last generated ids of streams, by the places of the ids that mean the newest entry. Unknown ones are left
    out.

    A key that is not a stream is left out: the command itself gives the best error.
    """
    asked = [connection.ask(command(("XINFO", "STREAM", key))) for key in newest.values()]
    found = {}
    for place, reply in zip(newest, await asyncio.gather(*asked), strict=True):
        last = last_generated(reply)
        if last is not None:
            found[place] = last
    return found


def last_generated(reply: bytes) -> bytes | None:
    """The last generated id in a reply to XINFO STREAM; None if there is none."""
    reader = hiredis.Reader()
    reader.feed(reply)
    parsed: Any = reader.gets()
    if isinstance(parsed, hiredis.ReplyError):
        return NOTHING_YET if str(parsed) == NO_SUCH_KEY else None
    if isinstance(parsed, list):
        parsed = dict(zip(parsed[::2], parsed[1::2], strict=False))
    last = parsed.get(b"last-generated-id") if isinstance(parsed, dict) else None
    return last if isinstance(last, bytes) else None
