"""Small values of real snapshots as commands: compiled, they are those that Python makes of the values' elements."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path

import pytest

from migrator.pieces.abilities import Abilities
from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from migrator.stream.values.cutting import Limits
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of_absent
from migrator.stream.words import Words
from rdb.snapshot import Snapshot
from slots.keyslots import KeySlots
from tests.integration.rdb import servers
from tests.unit.migrator.stream.test_snapshotfilter import PLACEHOLDER, unpacked
from tests.unit.migrator.stream.test_valuecommands import same_scores

WORDS = Words("t", Abilities(), frozenset())


def a_filter(opened: BufferedReader) -> SnapshotFilter:
    return SnapshotFilter(
        opened,
        "snapshot",
        KeySlots("crc32", 1024),
        bytearray([1]) * 1024,
        most_bytes=1 << 19,
        most_keys=500,
        big_bytes=1 << 16,
        most_work=6000,
        big_work=4000,
        placeholder_ms=PLACEHOLDER,
        words=WORDS,
    )


def compiled(file: Path) -> dict[bytes, list[list[bytes | float]]]:
    """The commands that make each small value; none for each big one."""
    found: dict[bytes, list[list[bytes | float]]] = {}
    with file.open("rb") as opened:
        for item in a_filter(opened):
            if isinstance(item, BigKey):
                found[item.name] = []
                continue
            assert isinstance(item, Batch)
            (_, *names), *commands = unpacked(item.commands)
            for name in names:
                found[name] = []
            for argv in commands:
                key = argv[2] if argv[0] == b"XGROUP" else argv[1]
                found[key].append([argv[0], *same_scores(argv)])
    return found


def made(file: Path) -> dict[bytes, list[list[bytes | float]] | None]:
    """The commands of each value that is one piece; None for a string that is long."""
    found: dict[bytes, list[list[bytes | float]] | None] = {}
    with file.open("rb") as opened:
        snapshot = Snapshot(opened, "snapshot", 0)
        for key in snapshot:
            held = list(snapshot.elements())
            assert key.type is not None
            pieces = list(
                pieces_of_absent(
                    key.type,
                    lambda held=held: iter(held),  # type: ignore[misc]
                    key.name,
                    Limits(),
                    FieldDeadlines(0, 0, PLACEHOLDER),
                    target="t",
                    abilities=WORDS.abilities,
                )
            )
            commands = getattr(pieces[0], "commands", None) if len(pieces) == 1 else None
            found[key.name] = commands and [
                [argv[0], *same_scores(argv)] for command in commands for argv in unpacked(command)
            ]
    return found


@pytest.mark.parametrize("which", servers.NAMES)
async def test_every_small_value_is_as_python_makes_it(which: str, tmp_path: Path) -> None:
    async with servers.started(which, tmp_path) as server:
        with servers.client_of(server) as client:
            servers.fill(client)
            file = servers.saved(client)
            kinds = {key: client.type(key) for key in client.keys("*")}

    ours, python = compiled(file), made(file)

    assert ours.keys() == python.keys() == kinds.keys()
    small = {key for key, commands in ours.items() if commands}
    assert [key for key in small if ours[key] != python[key]] == []
    assert {kinds[key] for key in small} == {b"string", b"list", b"set", b"zset", b"hash", b"stream"}
    assert len(small) > 2_500


async def test_no_value_has_elements_that_the_target_had_even_if_nobody_sees_the_replies(tmp_path: Path) -> None:
    async with servers.started("found", tmp_path) as server:
        with servers.client_of(server) as client:
            client.rpush("list", "1", "2")
            client.hset("hash", "ours", "1")
            file = servers.saved(client)
            client.rpush("list", "of somebody else")
            client.hset("hash", "theirs", "1")

            with file.open("rb") as opened:
                [batch] = a_filter(opened)
            assert isinstance(batch, Batch)
            pipe = client.pipeline()
            for argv in unpacked(batch.commands):
                pipe.execute_command(*argv)
            there, *_ = pipe.execute()

            assert there == batch.keys == 2
            assert client.lrange("list", 0, -1) == [b"1", b"2"]
            assert client.hgetall("hash") == {b"ours": b"1"}
