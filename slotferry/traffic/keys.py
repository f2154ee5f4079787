"""The keys of one traffic process: their kinds, and their sent and acknowledged versions.

``acknowledged[i] <= sent[i] <= acknowledged[i] + 1``: a key has at most one write in flight. Where the two differ, a
read may find either version. If the outcome of a write is unknown (an error, a lost connection), the two stay
different. The key is then *doubtful*: it is not written again, and a later read shows which version it has.
"""

from array import array
from collections.abc import Iterator, Sequence
from random import Random

from slotferry.traffic.collections import Hash, List, Set, SortedSet, Stream
from slotferry.traffic.content import Counter, Kind, Text, kinds_by_share, mixed_size, scatter

PROFILES = ("mixed", "fixed:BYTES")
DOUBT_SECONDS = 1.0
"""Time after a write with unknown outcome before its key is read: by then the write has run or never will."""
_TRIES = 200


def kinds_of(profile: str) -> list[Kind]:
    """The kinds of a profile, each as often as its share of the keys. Profiles are ``mixed``, or ``fixed:100`` for
    plain strings.

    Raises:
        ValueError: for an unknown profile.
    """
    if profile == "mixed":
        return kinds_by_share(
            {Text(mixed_size): 48, Counter(): 10, Hash(): 13, List(): 8, Set(): 8, SortedSet(): 8, Stream(): 5}
        )
    name, _, size = profile.partition(":")
    if name == "fixed" and size.isdigit() and int(size) > 0:
        bytes_each = int(size)
        return [Text(lambda index: bytes_each, period=0)]
    raise ValueError(f"{profile!r} is not a profile of traffic; it is one of {', '.join(PROFILES)}")


class Keys:
    """The keys ``part, part + parts, part + 2 * parts, ...`` below ``count``."""

    def __init__(
        self, count: int, profile: str, databases: Sequence[int] = (0,), part: int = 0, parts: int = 1, seed: int = 1
    ) -> None:
        """``databases``: the databases that the keys are spread over."""
        self.count = len(range(part, count, parts))
        self.databases = tuple(databases)
        self.random = Random(seed * 1_000_003 + part)
        self._part = part
        self._parts = parts
        self._kinds = kinds_of(profile)
        self.acknowledged = array("I", bytes(4 * self.count))
        self.sent = array("I", bytes(4 * self.count))
        self.doubtful: dict[int, float] = {}
        """Index of each doubtful key, and when it may be read, by time.monotonic()."""

    def indices(self, database: int) -> Iterator[int]:
        """All keys in a database, ascending."""
        for place in range(self.count):
            index = place * self._parts + self._part
            if self.database_of(index) == database:
                yield index

    def mine(self, index: int) -> bool:
        """Whether the key belongs to this process."""
        return index % self._parts == self._part and index // self._parts < self.count

    def database_of(self, index: int) -> int:
        """The database a key lives in."""
        return (
            self.databases[scatter(index ^ 0xDB) % len(self.databases)]
            if len(self.databases) > 1
            else self.databases[0]
        )

    def kind_of(self, index: int) -> Kind:
        """The type of a key's value."""
        return self._kinds[scatter(index) % len(self._kinds)]

    def pick(self, database: int) -> int:
        """Any key of a database. One in five times it is one of the first hundredth, which makes these hot.

        Raises:
            LookupError: when the database seems to have none.
        """
        draw = self.random.random
        if len(self.databases) == 1 and self.count:
            among = self.count if draw() < 0.8 else self.count // 100 + 1
            return int(draw() * among) * self._parts + self._part
        for _ in range(_TRIES):
            among = self.count if draw() < 0.8 else self.count // 100 + 1
            index = int(draw() * among) * self._parts + self._part
            if self.count and self.database_of(index) == database:
                return index
        raise LookupError(f"no keys in database {database}; use more keys than databases")

    def place(self, index: int) -> int:
        """The key's place in :attr:`acknowledged` and :attr:`sent`."""
        return index // self._parts

    def window(self, index: int) -> tuple[int, int]:
        """The versions that a read that begins now may find: from the acknowledged one to the sent one."""
        place = index // self._parts
        return self.acknowledged[place], self.sent[place]

    def at_rest(self, index: int) -> bool:
        """Whether no write of the key is in flight or in doubt, so that it may be written."""
        place = index // self._parts
        return self.acknowledged[place] == self.sent[place]

    def begin_write(self, index: int) -> int:
        """Note that the next write is sent, and give its version."""
        place = index // self._parts
        self.sent[place] += 1
        return self.sent[place]

    def end_write(self, index: int) -> None:
        """Note that the write in flight was acknowledged."""
        place = index // self._parts
        self.acknowledged[place] = self.sent[place]

    def doubt(self, index: int, now: float) -> None:
        """Note that it is unknown whether the write in flight was carried out."""
        self.doubtful[index] = now + DOUBT_SECONDS

    def resolve(self, index: int, version: int) -> None:
        """End a doubt: the key was seen at ``version``."""
        place = index // self._parts
        self.acknowledged[place] = self.sent[place] = version
        self.doubtful.pop(index, None)

    def present(self) -> Iterator[tuple[int, bool, bool]]:
        """``(index, may be there, has to be there)`` of every key."""
        for place in range(self.count):
            index = place * self._parts + self._part
            kind = self.kind_of(index)
            states = {kind.present(self.acknowledged[place]), kind.present(self.sent[place])}
            yield index, True in states, False not in states
