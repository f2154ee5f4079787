"""Ranges of cursors partition the keys of real servers' tables, and lose none while tables grow and shrink."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import redis

from sizing.connection import Connection
from sizing.cursors import POSITIONS, CursorRange, reverse
from sizing.partitions import ScanPartition, ScanRange
from sizing.scan import RangeReader
from slotferry.redis_server import RedisServer
from slots.access import ServerAccess
from tests.integration.sizing.keyspaces import client_of, options_of, selection
from tests.integration.sizing.servers import KINDS, running

RANGES = 8


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(request.param, tmp_path_factory.mktemp("ranges")) as started:
        yield started


def scan(
    server: RedisServer, of: int, *columns: str, between: Callable[[int], None] = lambda _: None, count: int = 50
) -> list[list[bytes]]:
    """The keys that each range gives, one after the other; ``between`` is called with the range after each call."""
    options = options_of(server, scan_count=count)
    given: list[list[bytes]] = []
    for index in range(of):
        cursors = CursorRange(index, of)
        partition = ScanPartition(
            None, "crc32", 1024, server.address, None, False, (ScanRange(0, cursors, 0),), 1
        )  # fmt: skip
        given.append([])
        with Connection(server.address, ServerAccess(), 5, 30) as connection:
            for found, _ in RangeReader(connection, partition, options, selection("key", *columns)).read(0, cursors):
                given[-1] += found.keys
                between(index)
    return given


def refill(server: RedisServer, names: list[str]) -> None:
    client = client_of(server)
    client.flushall()
    if names:
        client.mset(dict.fromkeys(names, "v"))
    client.close()


@pytest.mark.parametrize("of", [1, 2, 8, 64])
@pytest.mark.parametrize("keys", [0, 1, 3_000, 20_000])
def test_on_a_still_keyspace_each_key_is_given_once(server: RedisServer, keys: int, of: int) -> None:
    refill(server, names := [f"key:{number}" for number in range(keys)])
    counted = Counter(key for part in scan(server, of) for key in part)
    assert {key.decode() for key in counted} == set(names)
    # A table of fewer buckets than there are ranges has a bucket in several: such a database is never split.
    if keys // 16 >= of or of == 1:
        assert set(counted.values()) <= {1}


def test_ranges_are_about_of_one_size(server: RedisServer) -> None:
    refill(server, [f"key:{number}" for number in range(20_000)])
    sizes = [len(part) for part in scan(server, RANGES)]
    assert all(2_000 < size < 3_000 for size in sizes)


@pytest.mark.long
@pytest.mark.parametrize("columns", [(), ("bytes", "type")], ids=["names", "looked-at"])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_key_that_stays_is_missed_while_tables_grow_and_shrink(
    server: RedisServer, seed: int, columns: tuple[str, ...]
) -> None:
    draw, every = random.Random(seed), seed * 3
    staying = {f"stays:{number}".encode() for number in range(1_000)}
    refill(server, [key.decode() for key in staying] + [f"goes:{number}" for number in range(30_000)])
    going, names = [f"goes:{number}" for number in range(30_000)], iter(range(30_000, 10**9))
    client = client_of(server)
    sizes, calls = set(), itertools.count(1)

    def churn(_: int) -> None:
        # Much at once, so that tables go from large to small and back within a range and between ranges.
        if next(calls) % every == 0:
            if going and draw.random() < 0.7:
                client.delete(*going)
                going.clear()
            else:
                new = [f"goes:{next(names)}" for _ in range(draw.choice((500, 5_000, 20_000)))]
                client.mset(dict.fromkeys(new, "v"))
                going.extend(new)
            # A table shrinks by the server's own clock, ten times a second, and wanders with every command.
            with client.pipeline(transaction=False) as pipe:
                for _ in range(draw.choice((0, 50, 5_000))):
                    pipe.exists("stays:0")
                pipe.execute()
        sizes.add(client.dbsize())

    given = scan(server, RANGES, *columns, between=churn, count=30)
    counted = Counter(key for part in given for key in part if key in staying)
    assert set(counted) == staying
    # It did grow and shrink, by much more than a table does without a new one.
    assert max(sizes) > 8 * min(sizes)
    twice = sum(times - 1 for times in counted.values())
    print(f"{twice} of {len(staying)} staying keys were given once more; {len(sizes)} sizes of the table")
    client.close()


def test_a_table_that_shrinks_between_two_ranges_loses_nothing_at_their_border(server: RedisServer) -> None:
    """Every other range is scanned in a table of many buckets, the ones before them when buckets are as wide as two."""
    staying = [f"stays:{number}" for number in range(20)]
    going = [f"goes:{number}" for number in range(40_000)]
    refill(server, staying + going)
    client = client_of(server)
    odd = [key for index in range(1, 64, 2) for key in scan_range(server, CursorRange(index, 64))]
    client.delete(*going)
    while not has_at_most(client, 32):
        client.exists("stays:0")
    even = [key for index in range(0, 64, 2) for key in scan_range(server, CursorRange(index, 64))]
    assert {key.decode() for key in [*odd, *even]} >= set(staying)
    client.close()


def has_at_most(client: "redis.Redis", buckets: int) -> bool:
    """Whether the cursors of a whole scan are all borders of so many ranges or fewer."""
    cursor, said = 0, []
    while True:
        cursor, _ = client.scan(cursor, count=1)
        if cursor == 0:
            return len(said) < buckets and all(reverse(each) % (POSITIONS // buckets) == 0 for each in said)
        said.append(cursor)


def scan_range(server: RedisServer, cursors: CursorRange) -> list[bytes]:
    partition = ScanPartition(None, "crc32", 1024, server.address, None, False, (ScanRange(0, cursors, 0),), 1)
    with Connection(server.address, ServerAccess(), 5, 30) as connection:
        reader = RangeReader(connection, partition, options_of(server), selection("key"))
        return [key for found, _ in reader.read(0, cursors) for key in found.keys]
