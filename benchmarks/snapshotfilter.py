"""Measures how fast a snapshot is filtered into the commands of a copy by stream.

    python -m benchmarks.snapshotfilter            # a minute
    python -m benchmarks.snapshotfilter --quick

No server is started: snapshots are written here, and read from memory. One has a million keys of 100 bytes, one 16 KB
values; none, half or all of the slots are wanted. Of the half, the keys and the bytes of the snapshot are counted that
are read, not only those that are wanted. The time is that of the process, which is one core's.
"""

import io
import random
import statistics
import struct
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report
from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import SnapshotFilter
from rdb.input import crc64
from slots.keyslots import KeySlots

SLOTS = 1024
LOADS = {"100 bytes": (1_000_000, 100), "16 KB": (20_000, 16_384)}
"""How many keys, and how large their values are."""
SHARES = {"none": 0, "half": 2, "all": 1}
"""Of the slots: every so manieth is wanted."""
GOAL_KEYS = 400_000
"""Keys of 100 bytes that are read a second, if half of them are wanted."""


def a_snapshot(keys: int, size: int) -> bytes:
    """In the format of Redis 7.2."""
    chance = random.Random(size)
    # No server could compress them.
    values = [chance.randbytes(size) for _ in range(64)]
    head = struct.pack(">H", size | 0x4000) if size < 16_384 else b"\x80" + struct.pack(">I", size)
    parts = [b"REDIS0011\xfe\x00"]
    for number in range(keys):
        name = b"user:%d" % number
        parts += (b"\x00", bytes([len(name)]), name, head, values[number % 64])
    parts.append(b"\xff")
    data = b"".join(parts)
    return data + struct.pack("<Q", crc64(data))


def seconds(data: bytes, every: int) -> tuple[float, int]:
    """Time of the process to filter a snapshot, and the number of keys that are taken."""
    wanted = bytearray(bool(every) and slot % every == 0 for slot in range(SLOTS))
    found = SnapshotFilter(
        io.BytesIO(data),
        "snapshot",
        KeySlots("crc32", SLOTS),
        wanted,
        most_bytes=1 << 20,
        most_keys=1000,
        big_bytes=1 << 18,
        most_work=1 << 20,
        big_work=1 << 20,
        placeholder_ms=1 << 50,
        size=len(data),
    )
    began = time.process_time()
    taken = sum(item.count for item in found if isinstance(item, Batch))
    return time.process_time() - began, taken


def main(
    quick: Annotated[bool, typer.Option(help="Fewer keys.")] = False,
    turns: Annotated[int, typer.Option(help="Repetitions.")] = 5,
    output: Annotated[Path | None, typer.Option(help="Where the figures go as JSON.")] = None,
) -> None:
    """Print a table, and end with 1 if the goal is missed."""
    table = Table("values", "wanted slots", "keys", "keys taken", "keys/s read", "MB/s read")
    rates: dict[str, report.Spread] = {}
    for name, (keys, size) in LOADS.items():
        count = keys // 50 if quick else keys
        data = a_snapshot(count, size)
        for share, every in SHARES.items():
            runs = [seconds(data, every) for _ in range(1 if quick else turns)]
            speed = report.Spread.of([count / spent for spent, _ in runs])
            rates[f"{name}, {share}"] = speed
            megabytes = len(data) / 1e6 / statistics.median(spent for spent, _ in runs)
            table.add_row(name, share, f"{count:,}", f"{runs[0][1]:,}", speed.show(0), f"{megabytes:.0f}")
    Console(width=report.TABLE_WIDTH).print(table)
    missed = rates["100 bytes, half"].median < GOAL_KEYS
    print(f"{'missed' if missed else 'met'}: {GOAL_KEYS:,} keys/s of 100 bytes, half of them wanted")
    print(report.save("snapshotfilter", output, {"machine": report.machine(), "keys/s": report.plain(rates)}))
    raise typer.Exit(missed)


if __name__ == "__main__":
    typer.run(main)
