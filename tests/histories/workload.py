"""Which operations the clients do: kinds of keys, and what each client does next.

Few keys are in use at a time, so that many clients meet at each. A partition that has seen enough, above all enough
operations of unknown outcome, is *retired* and another key takes its place: what each search has to try stays small.
Totals and queues are the exception: they last for the whole run and are accounted for instead of searched.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.histories.model import call
from tests.histories.operations import Call, Form, Operation, Outcome, Partition

OPERATIONS = 120
"""After so many operations a partition is retired."""
UNKNOWN = 5
"""Operations of unknown outcome after which a partition is retired."""
DATABASES = (0, 3)
FLUSHED_DATABASE = 5
"""The database of the partitions that FLUSHDB empties all at once."""
RESTING = "resting"
"""The kind of keys that clients leave alone while a fault needs that."""
SEARCHED = {
    "register": 4,
    "deadline": 6,
    "counter": 2,
    "list": 3,
    "hash": 2,
    "pair": 3,
    "large": 1,
    "flushed": 6,
    RESTING: 16,
}
"""Kinds of partitions whose histories are searched, with how many are in use at a time."""
ACCOUNTED = {"total": 8, "queue": 2}
"""Kinds whose histories are accounted for."""
SELDOM = "seldom"
"""The kind of keys that only clients which cache read, and that are written seldom: what they missed stays old."""
SELDOM_KEYS = 32
LASTING = {*ACCOUNTED, "large"}
"""Kinds that are not retired. Large ones are among them because making them takes long, and they have few
operations."""
USED = b":total:", b":register:"
"""In the names of keys that many clients use."""
CACHED = ("register", "deadline", "flushed", RESTING, SELDOM)
"""Kinds with one key, of which no value comes twice. Clients that cache read these, too."""
LARGE_FIELDS = 4000
"""Fields that a large hash has from the beginning, which no operation touches."""

MOST_UNKNOWN_FLUSHES = 2
"""After so many flushes of unknown outcome a run has no more flushes: each may reach every key at any later time."""

Choice = tuple[tuple[Call, ...], Form]
Asked = tuple[Partition, tuple[Call, ...], Form]


class Workload:
    """The partitions in use, and operations on them by chance.

    Args:
        seed: of the choices; also part of the keys' names, so that runs do not meet.
        flushes: so many of the flushes that are drawn are done: from 0.0, none, to 1.0, all.
    """

    def __init__(self, seed: int, flushes: float = 1.0) -> None:
        self.partitions: list[Partition] = []
        """All partitions that there have been."""
        self.resting = False
        """Whether keys of the kind that rests are left alone."""
        self._seed = seed
        self._random = random.Random(seed)
        self._flushing = flushes
        self._flushes: list[Operation] = []
        self._numbers = 0
        self._in_use: list[Partition] = []
        for kind, count in (SEARCHED | ACCOUNTED).items():
            for _ in range(count):
                self._in_use.append(self._new(kind))
        self._seldom_random = random.Random(f"seldom {seed}")
        self._written_seldom = 0
        self._seldom = [
            Partition(SELDOM, (f"h{seed}:{SELDOM}:{number}",), DATABASES[number % len(DATABASES)])
            for number in range(SELDOM_KEYS)
        ]
        self.partitions += self._seldom

    @property
    def large(self) -> list[Partition]:
        """The partitions whose keys have to be made before the run."""
        return [it for it in self.partitions if it.kind == "large"]

    @property
    def flushed(self) -> list[Partition]:
        """The partitions that FLUSHDB empties, in use or not."""
        return [it for it in self.partitions if it.kind == "flushed"]

    def cached(self, database: int) -> list[Partition]:
        """The partitions in use in a database that clients which cache may read."""
        return [
            it
            for it in (*self._in_use, *self._seldom)
            if it.database == database and it.kind in CACHED and not (self.resting and it.kind == RESTING)
        ]

    def next_seldom(self) -> Asked:
        """The next write of a key that is written seldom."""
        self._written_seldom += 1
        return self._seldom_random.choice(self._seldom), (call("SET", f"v{self._written_seldom}"),), Form.PLAIN

    def next(self) -> Asked:
        """The next operation, and its keys."""
        place = self._random.randrange(len(self._in_use))
        while self.resting and self._in_use[place].kind == RESTING:
            place = self._random.randrange(len(self._in_use))
        partition = self._in_use[place]
        if partition.kind not in LASTING and (len(partition.operations) >= OPERATIONS or partition.unknown >= UNKNOWN):
            partition = self._in_use[place] = self._new(partition.kind)
        self._numbers += 1
        calls, form = CHOICES[partition.kind](self._random, self._numbers)
        if form is Form.FLUSH and (
            self._random.random() >= self._flushing or len(self._flushes) == MOST_UNKNOWN_FLUSHES
        ):
            calls, form = (call("GET"),), Form.PLAIN
        return partition, calls, form

    def flush(self, operation: Operation, others: Sequence[Partition]) -> None:
        """Note a flush in all partitions that it has emptied or may yet empty: ``others``, and those made since."""
        for partition in {id(it): it for it in (*others, *self.flushed)}.values():
            partition.operations.append(replace(operation))
        if operation.outcome is Outcome.UNKNOWN:
            self._flushes.append(operation)

    def _new(self, kind: str) -> Partition:
        self._numbers += 1
        name = f"h{self._seed}:{kind}:{self._numbers}"
        keys = (f"{{{name}}}:a", f"{{{name}}}:b") if kind == "pair" else (name,)
        database = FLUSHED_DATABASE if kind == "flushed" else DATABASES[self._numbers % len(DATABASES)]
        partition = Partition(kind, keys, database)
        if kind == "flushed":
            for operation in self._flushes:
                partition.operations.append(replace(operation))
        self.partitions.append(partition)
        return partition


def _lifetime(chance: random.Random) -> int:
    return chance.choice((40, 200, 800, 3000))


def _register(chance: random.Random, number: int) -> Choice:
    match chance.randrange(12):
        case 0 | 1:
            chosen = call("SET", f"v{number}")
        case 2:
            chosen = call("SET", f"v{number}", "PX", _lifetime(chance))
        case 3:
            chosen = call("SETNX", f"n{number}")
        case 4 | 5:
            chosen = call("APPEND", f"+{number}")
        case 6:
            chosen = call("DEL")
        case 7:
            chosen = call("PEXPIRE", _lifetime(chance))
        case 8:
            chosen = call("GETDEL")
        case _:
            chosen = call("GET")
    return (chosen,), Form.PLAIN


def _deadline(chance: random.Random, number: int) -> Choice:
    """A value that is seldom written, and whose deadline comes, goes and changes shortly before it is there."""
    match chance.randrange(16):
        case 0 | 1:
            chosen = call("SET", f"v{number}", "PX", _lifetime(chance))
        case 2:
            chosen = call("SETNX", f"n{number}")
        case 3:
            chosen = call("APPEND", f"+{number}")
        case 4 | 5 | 6:
            chosen = call("PEXPIRE", _lifetime(chance))
        case 7 | 8 | 9 | 10 | 11:
            chosen = call("PERSIST")
        case _:
            chosen = call("GET")
    return (chosen,), Form.PLAIN


def _resting(chance: random.Random, number: int) -> Choice:
    match chance.randrange(4):
        case 0:
            chosen = call("SET", f"v{number}")
        case 1:
            chosen = call("APPEND", f"+{number}")
        case _:
            chosen = call("GET")
    return (chosen,), Form.PLAIN


def _counter(chance: random.Random, number: int) -> Choice:
    match chance.randrange(12):
        case 0:
            chosen = call("DEL")
        case 1 | 2:
            chosen = call("GET")
        case 3:
            chosen = call("PEXPIRE", _lifetime(chance))
        case 4 | 5:
            return (call("INCR"),), Form.SCRIPT
        case _:
            chosen = call("INCR")
    return (chosen,), Form.PLAIN


def _flushed(chance: random.Random, number: int) -> Choice:
    match chance.randrange(24):
        case 0:
            return (call("FLUSHDB"),), Form.FLUSH
        case 1:
            return (call("DEL"),), Form.PLAIN
        case drawn if drawn <= 13:
            return (call("GET"),), Form.PLAIN
        case _:
            return (call("SET", f"v{number}"),), Form.PLAIN


def _list(chance: random.Random, number: int) -> Choice:
    match chance.randrange(12):
        case 0:
            chosen = call("LLEN")
        case 1 | 2:
            chosen = call("LRANGE", "0", "-1")
        case 3 | 4 | 5 | 6:
            chosen = call("LPOP")
        case 7:
            chosen = call("DEL")
        case _:
            chosen = call("RPUSH", f"e{number}")
    return (chosen,), Form.PLAIN


def _hash(chance: random.Random, number: int) -> Choice:
    field = f"f{chance.randrange(3)}"
    match chance.randrange(10):
        case 0:
            chosen = call("DEL")
        case 1 | 2 | 3:
            chosen = call("HGET", field)
        case _:
            chosen = call("HINCRBY", field, chance.randrange(1, 9))
    return (chosen,), Form.PLAIN


def _large(chance: random.Random, number: int) -> Choice:
    field = f"f{chance.randrange(3)}"
    chosen = call("HGET", field) if chance.randrange(3) == 0 else call("HINCRBY", field, chance.randrange(1, 9))
    return (chosen,), Form.PLAIN


def _pair(chance: random.Random, number: int) -> Choice:
    """Two keys of one hash tag: a register and a counter."""
    one, other = call("GET"), call("GET", key=1)
    match chance.randrange(10):
        case 0:
            return (call("SET", f"v{number}"), call("INCR", key=1)), Form.TRANSACTION
        case 1:
            return (call("GETDEL"), call("INCR", key=1), one), Form.TRANSACTION
        case 2:
            return (call("SETNX", f"n{number}"), call("DEL", key=1)), Form.TRANSACTION
        case 3:
            return (call("APPEND", f"+{number}"), other), Form.TRANSACTION
        case 4:
            return (call("SET", f"v{number}"), call("SET", f"{number}", key=1)), Form.MSET
        case 5 | 6:
            return (one, other), Form.MGET
        case 7:
            return (one, other), Form.TRANSACTION
        case 8:
            return (call("INCR", key=1),), Form.PLAIN
        case _:
            return (chance.choice((one, other, call("DEL"), call("DEL", key=1))),), Form.PLAIN


def _total(chance: random.Random, number: int) -> Choice:
    return (call("INCR"),), Form.SCRIPT if chance.randrange(8) == 0 else Form.PLAIN


def _queue(chance: random.Random, number: int) -> Choice:
    return (call("RPUSH", f"e{number}") if chance.randrange(2) else call("LPOP"),), Form.PLAIN


CHOICES: dict[str, Callable[[random.Random, int], Choice]] = {
    "register": _register,
    "deadline": _deadline,
    "counter": _counter,
    "list": _list,
    "hash": _hash,
    "large": _large,
    "pair": _pair,
    "total": _total,
    "queue": _queue,
    "flushed": _flushed,
    RESTING: _resting,
}
"""The operations of each kind of partition."""


def final_calls(partition: Partition) -> Choice:
    """The read at the end, when nothing moves any more: all that a partition's keys hold."""
    match partition.kind:
        case "list" | "queue":
            return (call("LRANGE", "0", "-1"),), Form.PLAIN
        case "hash" | "large":
            return tuple(call("HGET", f"f{number}") for number in range(3)), Form.TRANSACTION
        case "pair":
            return (call("GET"), call("GET", key=1)), Form.TRANSACTION
        case _:
            return (call("GET"),), Form.PLAIN


def unexpected(replies: Sequence[object]) -> bool:
    """Whether a reply within an operation is an error: no command of the workload gives one by itself."""
    return any(isinstance(reply, Exception) for reply in replies)
