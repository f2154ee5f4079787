"""Goes over the keys of a master and of one of its replicas, and finds what differs at the replica.

Keys are looked at in small batches: first at the master, then at the replica, once the replica has run all that the
master had run. A key that differs may have been written in between. So it is looked at again: at the master, at the
replica, at the master. It counts as different if the difference is seen :data:`STRIKES` times, each time with both
looks at the master alike. A key that is written too often for that is named as not compared. So no difference is false,
unless a key is changed and changed back between the looks each time.

A SCAN of the master meets every key that is there from beginning to end. A SCAN of the replica then finds keys that the
master lacks. A key that is met twice is added twice, at both servers.

**bounded**: a batch of keys is held, and the tally; each wait for the replica takes :data:`CATCH_UP_SECONDS`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from migrator.connection import Connection, pack
from migrator.scan import occupied_databases
from slots.keyslots import KeySlots
from slots.reserved import RESERVED
from topom.copies.digests import asking
from topom.copies.digests.errors import CheckFailed
from topom.copies.digests.sums import CORE_TYPES, Difference, Looked, Tally, compare
from topom.copies.digests.throttle import Throttle

SCAN_COUNT = 256
STRIKES = 3
LOOKS = 8
"""How often a key that keeps changing is looked at before it is given up."""
PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.2
CATCH_UP_SECONDS = 10.0
POLL_SECONDS = 0.005

PieceSize = int
"""How a big key is read at both servers: in pieces of so many elements, or bytes of a string; or :data:`BY_LENGTH`."""
BY_LENGTH = 0
"""Only its length is read."""

WRITTEN = "it is written all the time"
OF_A_MODULE = "its type is a module's, and what DUMP says of it differs"
UNREADABLE = "its type is a module's, and it is too large to be dumped in one step"


class Walk:
    """One check of one replica.

    Args:
        master, replica: connections to both.
        key_slots: which slot a key is in.
        tally: what is found is added to it.
    """

    def __init__(
        self,
        master: Connection,
        replica: Connection,
        key_slots: KeySlots,
        throttle: Throttle,
        tally: Tally,
    ) -> None:
        self._master = master
        self._replica = replica
        self._key_slots = key_slots
        self._throttle = throttle
        self._tally = tally
        self._exact_deadlines = True
        self._now_ms = 0
        self.total = 0
        """Keys to compare: as many as the master had at the beginning, without Slotferry's own keys that were met so
        far; 0 before that is known."""

    async def run(self) -> None:
        """Look at everything.

        Raises:
            CheckFailed: they are not master and replica of one another, or the replica does not catch up.
            MigrationError: a server does not answer, or refuses.
        """
        await self._caught_up()
        self._exact_deadlines = all([await asking.tells_deadlines(one) for one in (self._master, self._replica)])
        databases = await occupied_databases(self._master)
        self.total = sum(databases.values())
        for database in sorted(databases.keys() | (await occupied_databases(self._replica)).keys()):
            await self._master.select(database)
            await self._replica.select(database)
            await self._scan(self._master, database, only_extra=False)
            await self._scan(self._replica, database, only_extra=True)
        # See that it was a replica of this master all the time, so that what it said in between counts.
        await self._caught_up()

    async def _scan(self, connection: Connection, database: int, only_extra: bool) -> None:
        cursor: bytes | None = None
        own = set[bytes]()
        while cursor != b"0":
            await self._throttle.ready(0)
            cursor, seen = await connection.scan(cursor or b"0", SCAN_COUNT)
            keys = [key for key in seen if not key.startswith(RESERVED)]
            if not only_extra and len(keys) < len(seen):
                met = {key for key in seen if key.startswith(RESERVED)} - own
                own |= met
                self.total -= len(met)
            while keys:
                step = self._throttle.step_keys
                batch, keys = keys[:step], keys[step:]
                await self._throttle.ready(len(batch))
                if only_extra:
                    batch = await self._absent(batch)
                await self._batch(database, batch, only_extra)

    async def _absent(self, keys: list[bytes]) -> list[bytes]:
        """The replica's keys that the master does not have."""
        replies = await self._master.send(b"".join(pack("EXISTS", key) for key in keys), len(keys))
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._master.refused(self._master.address, str(reply))
        return [key for key, there in zip(keys, replies, strict=True) if not there]

    async def _batch(self, database: int, keys: Sequence[bytes], only_extra: bool) -> None:
        if not keys:
            return
        slots = dict(zip(keys, self._key_slots.slots_of(database, list(keys)), strict=True))
        strikes = dict.fromkeys(keys, 0)
        pause = PAUSE_SECONDS
        for attempt in range(LOOKS):
            left = list(strikes)
            ahead, behind, sizes = await self._look_at_both(left)
            # Most keys are alike at the first look, and need no second look at the master.
            doubtful = [key for key in left if self._compare(ahead[key], behind[key]) is not None]
            again = await self._look(self._master, doubtful, sizes)
            for key in left:
                found = self._compare(ahead[key], behind[key])
                if found is None:
                    if ahead[key].there and behind[key].there and not ahead[key].content:
                        self._tally.skip(slots[key], database, key, UNREADABLE)
                    elif not only_extra:
                        # A key that only the replica had is not added: no scan of the master would meet it.
                        self._tally.same(slots[key], database, key, ahead[key])
                    del strikes[key]
                elif self._still(ahead[key], again[key]):
                    strikes[key] += 1
                    if strikes[key] >= STRIKES:
                        self._name(slots[key], database, key, ahead[key], behind[key], found)
                        del strikes[key]
            if not strikes:
                return
            if attempt < LOOKS - 1:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                await self._throttle.ready(3 * len(strikes))
        for key in strikes:
            self._tally.skip(slots[key], database, key, WRITTEN)

    def _name(self, slot: int, database: int, key: bytes, ahead: Looked, behind: Looked, found: Difference) -> None:
        if found is Difference.VALUE and ahead.type not in CORE_TYPES:
            self._tally.skip(slot, database, key, OF_A_MODULE)
        else:
            self._tally.differs(slot, database, key, ahead, behind, found)

    def _compare(self, ahead: Looked, behind: Looked) -> Difference | None:
        found = compare(ahead, behind, self._now_ms, self._exact_deadlines)
        if found is None and ahead.there and behind.there and asking.needs_pieces(ahead):
            return Difference.VALUE  # both changed while they were read
        return found

    def _still(self, before: Looked, after: Looked) -> bool:
        """Whether two looks at a key of the master show no change."""
        if asking.needs_pieces(before):
            return False
        return compare(before, after, self._now_ms, self._exact_deadlines) is None

    async def _look_at_both(
        self, keys: list[bytes]
    ) -> tuple[dict[bytes, Looked], dict[bytes, Looked], dict[bytes, PieceSize]]:
        """Keys at the master, then at the replica, once it has run what the master had; and in pieces of which size big
        ones were read."""
        ahead = await self._look(self._master, keys, {})
        await self._caught_up()
        behind = await self._look(self._replica, keys, {})
        sizes: dict[bytes, PieceSize] = {}
        for key in keys:
            one, other = ahead[key], behind[key]
            if not (asking.needs_pieces(one) or asking.needs_pieces(other)):
                continue
            alike = one.type == other.type and one.length == other.length
            size = sizes[key] = asking.piece_size(one) if alike else BY_LENGTH
            ahead[key] = await self._in_pieces(self._master, key, one, size)
            await self._caught_up()
            behind[key] = await self._in_pieces(self._replica, key, other, size)
        return ahead, behind, sizes

    async def _look(
        self, connection: Connection, keys: list[bytes], sizes: Mapping[bytes, PieceSize]
    ) -> dict[bytes, Looked]:
        """Keys as one server has them; each key in ``sizes`` is read in such pieces."""
        if not keys:
            return {}
        now, looked = await asking.look(connection, keys)
        self._throttle.took(connection.seconds)
        self._now_ms = max(self._now_ms, now)
        found = dict(zip(keys, looked, strict=True))
        for key, size in sizes.items():
            if key in found:
                found[key] = await self._in_pieces(connection, key, found[key], size)
        return found

    async def _in_pieces(self, connection: Connection, key: bytes, looked: Looked, size: PieceSize) -> Looked:
        """A key whose content is only its length, or is read in pieces."""
        if size == BY_LENGTH or looked.type not in CORE_TYPES:
            return replace(looked, content=f"length {looked.length}")
        content = await asking.content_in_pieces(
            connection, key, looked.type, size, looked.length, self._throttle.ready
        )
        return replace(looked, content=content)

    async def _caught_up(self) -> None:
        """Return once the replica has run what the master has now."""
        ahead = await asking.position(self._master)
        if not ahead.is_master:
            raise CheckFailed(f"{self._master.address} is not a master any more; look at its group, and check again")
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while True:
                    behind = await asking.position(self._replica)
                    if behind.is_master or (behind.link_up and behind.stream != ahead.stream):
                        raise CheckFailed(f"{self._replica.address} is not a replica of {self._master.address}")
                    if behind.link_up and behind.offset >= ahead.offset:
                        return
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise CheckFailed(
                f"{self._replica.address} has not caught up with {self._master.address} within "
                f"{CATCH_UP_SECONDS:g} s; check again when it has"
            ) from None
