"""Clients that cache keep nothing through a proxy that they would have dropped at one Redis; at rest, they are told the
same.

In each step, every reader reads, and then somebody writes. Readers have been told all once they have been told of keys
that are read and written last, at every group.
"""

import random
from collections import deque
from collections.abc import Iterator

import pytest

from tests import searching
from tests.differential.model import COMPUTED, Command, keys_in, name
from tests.differential.runner import Runner
from tests.differential.sides import Connection, Side
from tests.differential.topologies import OF_USERS
from tests.differential.users import USERS, User
from tests.differential.wire import decode, encode, is_message, words

MOST_STEPS = 60
STEPS = searching.examples(MOST_STEPS)
SEEDS = (1, 2)
EVERYTHING = b"(everything)"
"""Stands for all keys: what a client is told when a database is emptied."""
LAST = [b"%bkey:last%d" % (tag, number) for number, tag in enumerate((b"", b"{a}", b"{b}", b"{c}", b"{d}", b"{e}") * 2)]
"""Keys at every group, which are written at the end of a step."""
BY_PREFIX = "ON BCAST PREFIX key: PREFIX {a}key: PREFIX {b}"
MODES = ("ON", "ON NOLOOP", "ON BCAST", BY_PREFIX, "ON OPTIN", "ON OPTOUT")
"""Of readers, of which none writes, so that NOLOOP changes nothing."""
READS = """
GET K
MGET K K K
STRLEN K
EXISTS K K
TYPE K
TTL K
HGETALL H
HGET H f
LRANGE L 0 -1
SMEMBERS S
SUNION S S
SINTERCARD 2 S S
ZRANGE Z 0 -1
XRANGE X - +
XREAD STREAMS X X 0 0
EVAL_RO return(redis.call('GET',KEYS[1])) 1 K
SORT_RO L BY nosort
GEOSEARCH Z FROMLONLAT 0 0 BYRADIUS 1 km
DUMP K
"""
WRITES = """
SET K v
SET K v NX
MSET K v K v
MSETNX K v
DEL K K H
UNLINK L
APPEND K v
INCR K
GETDEL K
GETEX K EX 1000
EXPIRE K 1000
PERSIST K
HSET H f v
HDEL H f
RPUSH L a b
LPOP L
LREM L 0 nothing
SADD S a b
SREM S nothing
SPOP S 1000
ZADD Z 1 m
ZREM Z nothing
XADD X * f v
RENAME K=a K=a
COPY K=a K=a REPLACE
SUNIONSTORE S=a S=a S=a
SORT L=a BY nosort STORE L=a
EVAL return(redis.call('SET',KEYS[1],'v')) 1 K
EVAL return(1) 1 K
SETBIT K 3 1
PFADD P a
TOUCH K
GET K
"""
RARE = ("FLUSHDB", "FLUSHALL")
WRITER, STRANGER = 0, 1
"""Clients that do not cache. The stranger has not logged in."""
PREFIXES = (b"key:", b"{a}key:", b"{b}")


class Reader(Connection):
    """A client that caches what it reads, and drops what it is told."""

    def __init__(self, address: tuple[str, int], mode: str) -> None:
        super().__init__(address)
        self.mode = mode
        self.cached: set[bytes] = set()
        self.told: set[bytes] = set()
        self.emptied = 0
        """How often it was told to drop everything."""
        self.reading: deque[frozenset[bytes]] = deque()
        """What is cached with each reply that is to come."""

    def ask(self, command: Command, keys: frozenset[bytes] = frozenset()) -> None:
        """Send a command, whose reply is cached for these keys."""
        self.reading.append(frozenset(key for key in keys if self.mode != BY_PREFIX or key.startswith(PREFIXES)))
        self.send(encode(command))

    def read_keys(self, command: Command, keys: frozenset[bytes], cached: bool) -> None:
        """Read keys, and cache them or not, if the mode leaves it to the client."""
        if self.mode == "ON OPTIN" and cached:
            self.ask((b"CLIENT", b"CACHING", b"YES"))
        if self.mode == "ON OPTOUT" and not cached:
            self.ask((b"CLIENT", b"CACHING", b"NO"))
        self.ask(command, keys if cached or "OPT" not in self.mode else frozenset())

    def take(self, value: bytes) -> None:
        if is_message(value, False):
            kind, keys = decode(value).items
            assert kind.text == b"invalidate", value
            self.told |= {node.text for node in keys.items} if keys.items else {EVERYTHING}
            self.cached -= {node.text for node in keys.items} if keys.items else self.cached
            self.emptied += not keys.items
            return
        keys_of_it = self.reading.popleft()
        assert value[:1] != b"-" or value.startswith((b"-WRONGTYPE", b"-NOPERM")), value
        if value[:1] != b"-":
            self.cached |= keys_of_it

    def settled(self) -> bool:
        """Whether it has all replies, and no last key any more."""
        return not self.reading and self.cached.isdisjoint(LAST)


class Both:
    """Clients of both sides."""

    def __init__(self, runner: Runner, chance: random.Random, user: User | None) -> None:
        self.runner = runner
        self.login = user.login if user is not None else ()
        """What each reader sends first."""
        self.prefix = user.prefix if user is not None else b""
        self.database = user.database or 0 if user is not None else 0
        self.key_slots = runner.key_slots if user is None else user.key_slots(runner.key_slots.rules)
        # Broadcasts tell of the keys of all databases.
        self.modes = MODES if user is None or user.database is None else [one for one in MODES if "BCAST" not in one]
        self.chance = chance
        self.sides = (runner.proxy, runner.redis)
        self.readers: list[list[Reader]] = []
        """For each mode, that of each side."""
        tags = ("{a}", "{b}", "{c}", "")
        # Of each type, few enough that readers and writers meet.
        self.keys = {kind: [f"{tag}key:{kind}{number}" for tag in tags for number in (1, 2)] for kind in "KHLSZXP"}
        self.told = 0
        """How often a reader was told to drop something that it had."""

    def open(self) -> None:
        """Connect, and track."""
        self.runner.forget_everything()
        self.readers = [[Reader(side.address, mode) for side in self.sides] for mode in self.modes]
        for side, mine in zip(self.sides, zip(*self.readers, strict=True), strict=True):
            side.clients = [Connection(side.address), Connection(side.address), *mine]
            for writer in (WRITER, STRANGER):
                self._done(side, [(b"SELECT", b"%d" % self.database)], writer)
            if self.prefix:
                self._done(side, [*self.login])
            for reader in mine:
                for command in self.login:
                    reader.ask(command)
                reader.ask(words("HELLO 3"))
                reader.ask(words(f"CLIENT TRACKING {reader.mode}"))
            side.wait_until(lambda mine=mine: all(one.settled() for one in mine), lambda: "no tracking")  # type: ignore[misc]

    def drawn(self, forms: str) -> Command:
        """A command."""
        found: list[str] = []
        for word in self.chance.choice(forms.split("\n")[1:-1]).split():
            kind, _, alike = word.partition("=")
            keys = self.keys.get(kind, [word])
            found.append(self.chance.choice([key for key in keys if not alike or key.startswith("{a}")]))
        return tuple(word.encode() for word in found)

    def keys_of(self, command: Command) -> frozenset[bytes]:
        """The keys that a command reads, as Redis says."""
        (found,) = self.runner.control.ask((b"COMMAND", b"GETKEYS", *command))
        return frozenset(keys_in(found))

    def step(self) -> None:
        """Reads, writes, and the comparison of what each reader is told."""
        read = [[self.drawn(READS) for _ in range(self.chance.randrange(4))] for _ in self.modes]
        writes = [self.drawn(WRITES) for _ in range(self.chance.randrange(1, 5))]
        if self.chance.randrange(3) == 0:
            writes = [(b"MULTI",), (b"SET", b"{a}key:K1", b"v"), (b"DEL", b"{a}key:K2"), (b"EXEC",), *writes]
        for pair, commands in zip(self.readers, read, strict=True):
            for command in commands:
                cached = self.chance.random() < 0.5
                for reader in pair:
                    reader.read_keys(command, self.keys_of(command), cached)
        emptied = [words(self.chance.choice(RARE))] if self.chance.randrange(15) == 0 else []
        for number, side in enumerate(self.sides):
            self._write(side, [pair[number] for pair in self.readers], writes, emptied)
        for pair, commands in zip(self.readers, read, strict=True):
            self._compare(pair, commands, [*writes, *emptied])

    def _write(self, side: Side, readers: list[Reader], writes: list[Command], emptied: list[Command]) -> None:
        """Write when all has been read, and wait until all readers have been told."""
        side.wait_until(lambda: not any(reader.reading for reader in readers), lambda: "does not reply to all reads")
        self._done(side, writes)
        if self.prefix and side is self.runner.proxy:
            # Of these, no reader is told.
            self._done(side, [(b"SET", key.encode(), b"of others") for key in self.keys["K"]], STRANGER)
        # While slots move, a request to all servers may have to be made again.
        while self._done(side, emptied, STRANGER) != [b"+OK\r\n"] * len(emptied):
            pass
        # Each group says by itself that it is empty: until none does any more.
        while self._hear_last(side, readers):
            pass

    def _hear_last(self, side: Side, readers: list[Reader]) -> bool:
        """Have all readers read the last keys and be told of them; whether any was told to drop everything instead."""
        before = [reader.emptied for reader in readers]
        for reader in readers:
            reader.read_keys((b"MGET", *LAST), frozenset(LAST), cached=True)
        side.wait_until(lambda: not any(reader.reading for reader in readers), lambda: "does not reply to all reads")
        self._done(side, [(b"SET", key, b"v") for key in LAST])
        side.wait_until(
            lambda: all(reader.settled() for reader in readers),
            lambda: f"does not tell {[reader.mode for reader in readers if not reader.settled()]} of what is written",
        )
        return before != [reader.emptied for reader in readers]

    def _done(self, side: Side, commands: list[Command], by: int = WRITER) -> list[bytes]:
        """Have the writer do this, or the stranger, and give the replies."""
        writer = side.clients[by]
        writer.send(b"".join(map(encode, commands)))
        side.wait_until(lambda: len(writer.replies) == len(commands), lambda: f"no reply to {commands}")
        return [writer.replies.popleft() for _ in commands]

    def _compare(self, pair: list[Reader], read: list[Command], writes: list[Command]) -> None:
        ours, theirs = pair
        said = f"{ours.mode}: {read} and then {writes}"
        assert ours.cached <= theirs.cached, f"{said}: it still has {ours.cached - theirs.cached}"
        computed = [self.keys_of(command) for command in read if name(command) in COMPUTED]
        # What is computed over several slots is dropped behind the reply; so are streams whose names lose a prefix.
        more = {
            key for keys in computed if len(set(self.key_slots.slots_of(self.database, list(keys)))) > 1 for key in keys
        }
        if self.prefix:
            more |= {key for command in read if name(command) == "XREAD" for key in self.keys_of(command)}
        if not self.runner.moving:
            assert (EVERYTHING in theirs.told) == (EVERYTHING in ours.told), said
        if not self.runner.moving and EVERYTHING not in ours.told:
            assert theirs.told <= ours.told, f"{said}: it is not told of {theirs.told - ours.told}"
            assert ours.told - theirs.told <= more, f"{said}: it is also told of {ours.told - theirs.told - more}"
        self.told += len(theirs.told) - len(theirs.told & set(LAST))
        for reader in pair:
            reader.told.clear()


@pytest.fixture
def user() -> User | None:
    """Whom the readers log in as; None for nobody."""
    return None


@pytest.fixture
def both(runner: Runner, seed: int, user: User | None) -> Iterator[Both]:
    found = Both(runner, random.Random(seed), user)
    found.open()
    yield found
    for side in found.sides:
        side.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_are_told_of_what_changes(both: Both) -> None:
    steps = 0
    # What a user may not do changes nothing: then more steps follow.
    while steps < STEPS or (both.told <= STEPS and steps < MOST_STEPS):
        both.step()
        steps += 1
    assert both.told > STEPS


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
@pytest.mark.parametrize("runner", OF_USERS, indirect=True)
def test_clients_of_a_user_with_limits_are_told_of_what_changes(both: Both) -> None:
    test_clients_are_told_of_what_changes(both)
