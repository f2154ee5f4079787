"""The steps by which a key moves: *take* at its source, *place* at its target, *drop* at its source.

Movers are the migrator, which scans, and the proxies, which move a key that a client waits for. Both run the scripts
that are loaded here, and no others. docs/moving-keys.md says how the steps uphold **absent-first** and **one-way**.
Each script first checks that the permit it is given holds (:mod:`slots.permits`). If not, it changes nothing and
answers :data:`slots.scripts.NOT_PERMITTED`.

A big key (:data:`BIG_ELEMENTS`) is not taken but reported: the migrator moves it in pieces, under a claim of its own. A
proxy that needs such a key adds it to the list :data:`slots.reserved.WANTED`.

The scripts check the run id (**run-id**) only where an argument says so. For a single key, INFO costs more than all the
rest, and a connection never outlives the server process that it leads to.

Scripts at a source begin with a write that is allowed at maxmemory (``slots/lua/shared/write_first.lua``), because keys
have to leave a full source. Scripts that place keys do not begin so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from slots.connections import RedisClient
from slots.replies import NotUnderstood, integer, items, one_of
from slots.reserved import FENCED, KINDS, LEADER, MARKER, POSITION, RESERVED_KEYS, STATE, SWEPT, WANTED
from slots.scripts import load

MOST_WANTED = 10_000
"""The most entries of :data:`slots.reserved.WANTED`. A key that is not in the list moves when its turn comes."""
BIG_ELEMENTS, BIG_BYTES = 512, 64 * 1024
"""A key with more elements, or with more bytes of memory, is big: it goes in pieces. To dump or restore a smaller one
takes a server about a millisecond at most. It is one size for all movers: what a proxy leaves to the migrator goes in
pieces there, and not in one step. It is measured in a way that takes a server no time
(``slots/lua/shared/look_at.lua``)."""
UNBOUNDED = 1 << 52
"""More than the size of any key; scripts count in doubles."""

TAKE = load("take")
"""At a source: claims keys and gives their content, see :class:`Taken`."""
PLACE = load("place")
"""At a target: stores the keys with the content that their source had."""
DROP = load("drop")
"""At a source: gives back the claims on keys, and deletes the keys that have moved, which come first."""
DELETE = load("delete")
"""At a source: deletes keys for a client whose target is full."""
LOOK_AT_TARGET = load("look_at_target")
"""At a target: says which keys it has, if it is the process that is meant."""
_PUT_ASIDE = load("put_aside")
_SAMPLE = load("sample")
_OURS = {
    STATE: rb"permit|accepts|claim:.*|flush:.*",
    WANTED: rb"[0-9]+:.*",
    FENCED: rb"[0-9a-f]{32}",
    LEADER: rb"term|ended|by",
    SWEPT: rb"swept|data|token",
    POSITION: rb"[0-9a-f]+ .+",
    MARKER: rb"[0-9a-f]{32}",
}
"""The pattern of the fields or elements of our keys, or of their values."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one call of :data:`TAKE` found.

    Attributes:
        looked_at: how many of the keys, from the first on, were looked at. Keys not named below are absent.
        size: bytes of memory at the source of those taken.
        busy: places (from 0) of keys that others are moving.
        big: places of keys that have to go in pieces, or already do.
        keys, payloads, deadlines: of those taken: name, what DUMP gave, and when it expires, in milliseconds since
            1970, or -1.
        places: places of those taken.
        refused: places of those that the server could not give, and why.
    """

    looked_at: int
    size: int
    busy: tuple[int, ...]
    big: tuple[int, ...]
    places: tuple[int, ...]
    keys: list[bytes]
    payloads: list[bytes]
    deadlines: list[int]
    refused: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, reply: object, keys: Sequence[bytes]) -> "Taken":
        """Read a reply for these keys. Raises NotUnderstood."""
        looked_at, size, busy, big, taken, payloads, deadlines, *refusals = items(reply, 9)
        most = integer(looked_at)
        errors = refused(refusals, most)
        elsewhere, in_pieces, found = (places(part, most) for part in (busy, big, taken))
        named = (*elsewhere, *in_pieces, *found, *errors)
        if most > len(keys) or len({*named}) < len(named):
            # absent-first: a key that is not named counts as absent.
            raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
        if not all(isinstance(payload, bytes) for payload in items(payloads, len(found))):
            raise NotUnderstood(f"its answer to DUMP is not a payload: {payloads!r:.50}")
        return cls(
            most,
            integer(size),
            elsewhere,
            in_pieces,
            found,
            [keys[place] for place in found],
            payloads,
            [integer(deadline, least=-1) for deadline in items(deadlines, len(found))],
            errors,
        )


def refused(reply: object, keys: int) -> dict[int, bytes]:
    """Places (from 0) of the keys that a server refused, and why; ``keys`` keys were sent. Raises NotUnderstood."""
    said, errors = items(reply, 2)
    found = places(said, keys)
    whys = items(errors, len(found))
    if not all(isinstance(why, bytes) and why for why in whys):
        raise NotUnderstood(f"it does not say why it refuses a key: {errors!r:.50}")
    return dict(zip(found, whys, strict=True))


def dropped(reply: object, keys: int) -> int:
    """How many of ``keys`` claims there were at :data:`DROP`. Raises NotUnderstood."""
    said, _ = items(reply, 2)
    held = integer(said)
    if held > keys:
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    return held


def take_arguments(
    permit: str,
    database: int,
    mover: str,
    keys: Sequence[bytes],
    check: bool,
    *,
    enough_bytes: int,
    wanted: bool,
    whole: bool = False,
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`TAKE`. ``whole``: no key counts as big.

    Movers give fewer than 2,000 keys at a time: scripts pass them on as arguments, of which Lua allows 8,000.
    """
    most_elements, most_bytes = (UNBOUNDED, UNBOUNDED) if whole else (BIG_ELEMENTS, BIG_BYTES)
    return (
        1 + len(keys),
        STATE,
        *keys,
        permit,
        int(check),
        database,
        mover,
        most_elements,
        most_bytes,
        enough_bytes,
        int(wanted),
        MOST_WANTED,
    )


def place_arguments(
    permit: str, database: int, taken: Taken, check: bool, *, keeps_target: bool
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`PLACE`."""
    values = (part for pair in zip(taken.payloads, taken.deadlines, strict=True) for part in pair)
    return (1 + len(taken.keys), STATE, *taken.keys, permit, int(check), database, int(keeps_target), *values)


def drop_arguments(
    permit: str, database: int, mover: str, keys: Sequence[bytes], check: bool, *, deletes: int
) -> tuple[str | bytes | int, ...]:
    """The arguments for :data:`DROP`."""
    return (1 + len(keys), STATE, *keys, permit, int(check), database, mover, deletes)


async def put_aside(server: RedisClient) -> list[bytes]:
    """Rename keys that have a name of ours and a wrong type, which no Slotferry process has made; give those names.

    Nothing is lost. A process that needs such a key makes it again. Errors are those of ``server``.
    """
    kinds = [KINDS.get(key, "hash") for key in RESERVED_KEYS]
    said = await server.execute_command("EVAL", _PUT_ASIDE.text, len(RESERVED_KEYS), *RESERVED_KEYS, *kinds)
    return [one_of(key, *RESERVED_KEYS) for key in items(said)]


async def strangers(server: RedisClient) -> list[bytes]:
    """Names of ours under which a server has data that no Slotferry process has made, judged by type and some fields.

    Errors are those of ``server``, and :class:`slots.replies.NotUnderstood`.
    """
    said = await server.execute_command("EVAL", _SAMPLE.text, len(RESERVED_KEYS), *RESERVED_KEYS)
    found = []
    for key, sample in zip(RESERVED_KEYS, items(said, len(RESERVED_KEYS)), strict=True):
        kind, some = items(sample, 2)
        ours = kind == KINDS.get(key, "hash").encode() and all(
            isinstance(part, bytes) and re.fullmatch(_OURS[key], part, re.DOTALL) for part in items(some)
        )
        if kind != b"none" and not ours:
            found.append(key)
    return found


def places(reply: object, most: int) -> tuple[int, ...]:
    """Places of keys counted from 0; servers count from 1. No place comes twice. Raises NotUnderstood."""
    found = tuple(integer(place, least=1) - 1 for place in items(reply))
    if len({*found}) < len(found) or max(found, default=-1) >= most:
        raise NotUnderstood(f"it answers for other keys than it was asked for: {reply!r:.50}")
    return found
