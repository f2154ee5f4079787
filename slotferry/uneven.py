"""The end of the demo with ``--sizing``: data is made uneven on purpose, sized by Spark, and evened out by bytes."""

import os
import subprocess
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import IO

from sizing.java import JavaNotFound, find_java_home
from slotferry.client import TopomClient, key_slots_of
from slotferry.costs import show_costs
from slotferry.local import LocalCluster
from slotferry.operator.waiting import wait_moved
from slotferry.output import say
from slotferry.processes import ManagedProcess, ProcessError, end_with_parent
from slots.access import ServerAccess
from slots.python import PYTHON

SIZING_SECONDS = 300.0
"""Limit of the sizing, including Spark's start."""
MOVE_SECONDS = 300.0
HEAVY_GROUP = 1
HEAVY_SLOTS = 48
HEAVY_BYTES = 1 << 20
"""So many slots of one group get a value of so many bytes each."""
_NEEDED = ("pyspark", "pyarrow", "matplotlib")


def why_not() -> str:
    """A sentence that says what is missing for sizing on this machine; "" if nothing is."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        return f"--sizing needs {', '.join(missing)}: pip install 'slotferry[sizing]'"
    try:
        find_java_home()
    except JavaNotFound as error:
        return str(error)
    return ""


async def size_and_even_out(cluster: LocalCluster, topom: TopomClient, results: Path) -> bool:
    """Make one group heavy, size all keys, move slots by bytes; say whether the groups came within the tolerance.

    Raises:
        ProcessError: the sizing failed, or was not done within :data:`SIZING_SECONDS`.
        TopomError: topom refuses, or the slots do not move within :data:`MOVE_SECONDS`.
    """
    await _make_heavy(cluster, topom)
    say(f"{HEAVY_SLOTS} MiB more in {HEAVY_SLOTS} slots of group {HEAVY_GROUP}; sizing every key on Spark")
    await _size(cluster, results)
    planned = await topom.rebalance("bytes")
    targets = {move["slot"]: move["to"] for move in planned["moves"]}
    say(f"\nrebalance by bytes: {len(targets)} slots")
    show_costs(planned["cost"])
    for reason in planned["reasons"]:
        say(reason)
    await wait_moved(topom, targets, MOVE_SECONDS, planned["epoch"])
    return bool(targets) and not planned["reasons"]


async def _make_heavy(cluster: LocalCluster, topom: TopomClient) -> None:
    status, table = await topom.status(), await topom.slots()
    owned = [entry["id"] for entry in table["slots"] if entry["group_id"] == HEAVY_GROUP][:HEAVY_SLOTS]
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    wanted = set(owned)
    key_slots = key_slots_of(status)
    async with ServerAccess().client(host, int(port)) as client:
        for number in count():
            key = f"heavy:{number}"
            place = key_slots.slot_of(0, key.encode())
            if place in wanted:
                await client.set(key, os.urandom(HEAVY_BYTES // 2).hex())
                wanted.remove(place)
            if not wanted:
                return


async def _size(cluster: LocalCluster, results: Path) -> None:
    # What it leaves when it is killed goes with the cluster.
    folder = str(cluster.directory)
    sizing = _Sizing(
        "sizing",
        [*PYTHON, "-m", "slotferry", "sizing", "run", "--fresh", "--into", str(results)],
        Path(os.devnull),
        {
            **os.environ,
            "SLOTFERRY_TOPOM": cluster.topom_url,
            "SLOTFERRY_TOKEN": cluster.token,
            "TMPDIR": folder,
            "SPARK_LOCAL_DIRS": folder,
        },
    )
    sizing.start()
    try:
        status = await sizing.wait(SIZING_SECONDS)
    except TimeoutError:
        raise ProcessError(f"sizing was not done within {SIZING_SECONDS:g} s") from None
    finally:
        # Spark takes its time to end, and whoever pressed Ctrl-C waits for it.
        await sizing.kill(family=True)
    if status:
        raise ProcessError(f"sizing ended with status {status}, see above")


class _Sizing(ManagedProcess):
    """Shows what it says."""

    def _spawn(self, output: IO[bytes], parent: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.DEVNULL,
            env=self.environment,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )
