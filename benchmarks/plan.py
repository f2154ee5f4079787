"""The plan of a run of :mod:`benchmarks.proxy`: its parts, each with some loads through some targets, several times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.load import MIX, SMALL_BYTES, Load

SMALL = "small"
LARGE = "large"
SEVERAL = "several"
EQUAL = "equal"
PARTS = (SMALL, LARGE, SEVERAL, MIX, EQUAL)

PEERS = ("direct", "twemproxy", "haproxy", "slotferry")
TWO_WORKERS = "slotferry-2"
AGAIN = "slotferry-again"

CLIENTS = 50
MIX_CLIENTS = 1000
DEPTHS = (1, 16, 64)
KEYS = {SMALL_BYTES: 100_000, 1024: 20_000, 16_384: 2_000}
"""How many keys have values of each size: as many as a server holds with little memory."""
_DEPTHS = {1: 1, 16: 5, 64: 10}
"""Pipeline depths, and how many times the unpipelined requests such a run has. A pipelined request is cheaper, and the
CPU time of a run has to stay well above the cost of its 50 new connections."""


@dataclass(frozen=True)
class Part:
    """Loads that go through the same targets; there is a ratio for each of ``yardsticks``."""

    name: str
    title: str
    targets: tuple[str, ...]
    yardsticks: tuple[str, ...]
    turns: int
    loads: tuple[Load, ...]


def loads(
    commands: Sequence[str],
    depths: Sequence[int],
    requests: float,
    *,
    clients: int = CLIENTS,
    value_bytes: int = SMALL_BYTES,
) -> tuple[Load, ...]:
    """Every command at every pipeline depth; ``requests`` is the number for an unpipelined run."""
    return tuple(
        Load(command, depth, max(clients, round(requests * _DEPTHS[depth])), clients, KEYS[value_bytes], value_bytes)
        for command in commands
        for depth in depths
    )


def plan(requests: int, turns: int, pairs: int) -> list[Part]:
    """All parts. ``requests`` is the number for an unpipelined run with small values; other runs have their share.

    Args:
        turns: of loads with goals; loads without goals have half as many.
        pairs: turns of the part that has to show differences of a few percent.
    """
    few = (turns + 1) // 2
    to_peers = ("twemproxy", "haproxy")
    return [
        Part(
            SMALL,
            "small values",
            (*PEERS, TWO_WORKERS),
            (*to_peers, "slotferry"),
            turns,
            loads(("get", "set"), DEPTHS, requests),
        ),
        Part(
            LARGE,
            "larger values",
            PEERS,
            to_peers,
            few,
            (
                *loads(("get", "set"), (1, 16), requests * 0.4, value_bytes=1024),
                *loads(("get", "set"), (1,), requests * 0.2, value_bytes=16_384),
                *loads(("get", "set"), (16,), requests * 0.05, value_bytes=16_384),
            ),
        ),
        Part(
            SEVERAL, "ten keys at once", PEERS, to_peers, few, loads(("mget", "mset", "del"), (1, 16), requests * 0.25)
        ),
        Part(MIX, "80% GET, 20% SET", PEERS, to_peers, few, loads((MIX,), (1,), requests, clients=MIX_CLIENTS)),
        Part(
            EQUAL,
            "two equal proxies",
            ("slotferry", AGAIN),
            ("slotferry",),
            pairs,
            loads(("get",), DEPTHS, requests * 0.7),
        ),
    ]


def only(
    parts: Sequence[Part],
    names: Sequence[str],
    commands: Sequence[str],
    depths: Sequence[int],
    targets: Sequence[str],
) -> list[Part]:
    """The parts that remain with these limits."""
    kept = [
        replace(
            part,
            targets=tuple(name for name in part.targets if name in targets),
            loads=tuple(load for load in part.loads if load.command in commands and load.pipeline in depths),
        )
        for part in parts
        if part.name in names
    ]
    return [part for part in kept if part.targets and part.loads]


def turns(part: Part) -> Iterator[tuple[int, Load, str]]:
    """The runs of a part, in order: every load through target after target, every other turn backwards.

    So an effect that grows or shrinks over time affects each target equally.
    """
    for turn in range(part.turns):
        for load in part.loads:
            for target in part.targets if turn % 2 == 0 else reversed(part.targets):
                yield turn, load, target
