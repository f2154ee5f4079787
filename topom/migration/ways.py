"""Which way slots move that begin, and what that costs. Pure functions.

Key by key costs clients a wait for each key that they ask for before it has moved. By the replication stream costs the
source a snapshot of all that it has, and memory at both ends until the switch. So small moves go by keys. So do servers
that cannot be followed, or must not be, and a source whose memory has to be freed as keys go. A target that does not
read the source's payloads takes values as commands only, which the stream alone gives it. What is not known is assumed,
and said; no figure of a server, however odd, raises here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from migrator.checks import BUILT_IN, ENGINES
from migrator.facts import Facts, shown
from migrator.followable import Followable
from migrator.forking import NoMemoryForSnapshot, require_memory
from migrator.pace import BATCH_BYTES
from migrator.stream.followed import SPOOL_BYTES
from migrator.stream.space import SPARE_BYTES
from slots.counting import counted
from topom.cluster.speed import PairSpeed

AUTO = "auto"
"""The setting by which each batch goes the way that suits it."""
KEYS_SPEED, STREAM_SPEED = PairSpeed(40_000.0, 100.0 * 2**20), PairSpeed(200_000.0, 250.0 * 2**20)
"""Of one pair of groups, until it was measured."""
NOTHING_KNOWN = Followable()


class Way(StrEnum):
    """How slots move."""

    KEYS = "keys"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Assumed:
    """What counts where nothing was measured or told.

    Attributes:
        by_keys, by_stream: speeds of one pair of groups.
        as_commands: how many times as long the stream takes to a target that does not read the source's payloads.
        scanned_keys: keys a second that a scan sees.
        snapshot_bytes: bytes a second at which a source makes its snapshot.
        snapshot_seconds: until a source begins it; the default of ``repl-diskless-sync-delay``.
        level_seconds: from the last byte of a snapshot until the slots can be locked.
        lock_by_keys, lock_by_stream: seconds for which slots are locked.
        step_bytes: that are at both ends at once, key by key.
        patience: the stream may take so many times as long as keys would.
        full: a source that uses more of its maxmemory has to be freed.
        spool_bytes: that one copy may keep on disk.
    """

    by_keys: PairSpeed = KEYS_SPEED
    by_stream: PairSpeed = STREAM_SPEED
    as_commands: float = 10.0
    scanned_keys: float = 500_000.0
    snapshot_bytes: float = 200.0 * 2**20
    snapshot_seconds: float = 5.0
    level_seconds: float = 1.0
    lock_by_keys: float = 0.005
    lock_by_stream: float = 0.015
    step_bytes: int = BATCH_BYTES
    patience: float = 1.25
    full: float = 0.9
    spool_bytes: int = SPOOL_BYTES


ASSUMED = Assumed()
LEAST_SPEED = 1 / 8
"""A measured speed counts as at least this part of what is assumed: a scan of a large source that finds few keys tells
little about how fast keys go."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What was measured of slots that are to move together, and of all slots of their source."""

    keys: float
    bytes: float
    source_keys: float
    source_bytes: float

    def part(self, rounds: int) -> Sized:
        """If they go in so many batches, what one of them has."""
        return replace(self, keys=self.keys / rounds, bytes=self.bytes / rounds)


@dataclass(frozen=True, slots=True)
class Ground:
    """What is known when slots of one source and one target are to move together. None is not known.

    Attributes:
        keys, bytes: that move.
        source_keys, source_bytes: that the source has.
        source, target: what the servers say of themselves.
        followable: what the source says of being followed.
        by_keys, by_stream: speeds of one pair of groups, as measured.
        keys_limit, bytes_limit: an operator's, a second; 0 for none.
        reads_payloads: whether the target reads the source's payloads.
    """

    keys: float | None = None
    bytes: float | None = None
    source_keys: float | None = None
    source_bytes: float | None = None
    source: Facts | None = None
    target: Facts | None = None
    followable: Followable = NOTHING_KNOWN
    by_keys: PairSpeed | None = None
    by_stream: PairSpeed | None = None
    keys_limit: float = 0
    bytes_limit: float = 0
    reads_payloads: bool = True

    @classmethod
    def of(
        cls,
        share: float,
        sized: Sized | None,
        source: Facts | None = None,
        target: Facts | None = None,
        followable: Followable | None = None,
        **known: Any,
    ) -> Ground:
        """From the share of the source's data that moves if all slots are alike, from what was measured of slots if
        that is known, and from what the servers say. ``known``: other fields."""
        if source is not None:
            keys, size = float(source.all_keys), float(source.dataset_bytes)
            shares = [share, share]
            if sized is not None:
                for place, (part, all_of_it) in enumerate(
                    ((sized.keys, sized.source_keys), (sized.bytes, sized.source_bytes))
                ):
                    if all_of_it > 0:
                        shares[place] = min(1.0, part / all_of_it)
            known |= {"keys": keys * shares[0], "bytes": size * shares[1], "source_keys": keys, "source_bytes": size}
        elif sized is not None:
            known |= asdict(sized)
        return cls(source=source, target=target, followable=followable or NOTHING_KNOWN, **known)


@dataclass(frozen=True, slots=True)
class WayForecast:
    """What a move costs.

    Attributes:
        seconds: how long it takes, while nothing halts it.
        keys, bytes: that move.
        twice_bytes, twice_seconds: memory that is held at both ends, and for how long.
        lock_seconds: for which requests for these slots wait.
        disk_bytes: that the disk of the migrator keeps at most.
        rounds: so many batches go one after the other; memory, disk and lock are those of one.
    """

    seconds: float
    keys: int
    bytes: int
    twice_bytes: int
    twice_seconds: float
    lock_seconds: float
    disk_bytes: int = 0
    rounds: int = 1

    def times(self, rounds: int) -> WayForecast:
        """Of so many batches."""
        return replace(
            self,
            seconds=self.seconds * rounds,
            keys=self.keys * rounds,
            bytes=self.bytes * rounds,
            rounds=self.rounds * rounds,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The way of a move.

    Attributes:
        reason: why, as a sentence without a full stop.
        forecast: None if it is not known how much moves.
    """

    way: Way
    reason: str
    forecast: WayForecast | None = None

    def times(self, rounds: int) -> Choice:
        """Of so many batches, one after the other."""
        return replace(self, forecast=self.forecast and self.forecast.times(rounds))

    def __str__(self) -> str:
        return f"by {'the stream' if self.way is Way.STREAM else 'keys'}: {self.reason}"

    def to_wire(self) -> dict[str, Any]:
        """``{"way", "because"}``, and the fields of :class:`WayForecast`; None for what is not known."""
        costs: dict[str, Any] = dict.fromkeys(one.name for one in fields(WayForecast))
        if self.forecast is not None:
            costs |= {
                name: round(value, 3) if isinstance(value, float) else value
                for name, value in asdict(self.forecast).items()
            }
        return {"way": self.way.value, "because": self.reason, **costs}


def choose(ground: Ground, wanted: str, given_up: str = "", assumed: Assumed = ASSUMED) -> Choice:
    """The way of a batch that begins.

    Args:
        wanted: the setting ``migration_way``.
        given_up: why this batch's copies by the stream failed; empty if they did not.
        assumed: what counts where nothing is known.
    """
    by_keys, by_stream = _by_keys(ground, assumed), _by_stream(ground, assumed)
    if wanted == Way.KEYS:
        return Choice(Way.KEYS, 'migration_way is "keys"', by_keys)
    if given_up:
        return Choice(Way.KEYS, given_up, by_keys)
    if wanted == Way.STREAM:
        return Choice(Way.STREAM, 'migration_way is "stream"', by_stream)
    if reason := _against_following(ground) or _against_memory(ground, assumed):
        return Choice(Way.KEYS, reason, by_keys)
    if not ground.reads_payloads:
        return Choice(Way.STREAM, "the target reads no payloads of the source, and takes values as commands", by_stream)
    if reason := _against_a_file(ground):
        return Choice(Way.KEYS, reason, by_keys)
    if by_keys is None or by_stream is None:
        return Choice(Way.KEYS, "it is not known how much moves", None)
    waiting = _moving_seconds(ground, _speed_by_keys(ground, assumed))
    keys = round(ground.keys or 0)
    what = f"{counted(keys, 'key')} ({shown(ground.bytes or 0)})"
    said = _assumptions(ground, assumed)
    if by_stream.seconds > waiting * assumed.patience:
        moves = "moves" if keys == 1 else "move"
        reason = f"{what} {moves} in {waiting:.1f} s, and by the stream in {by_stream.seconds:.1f} s{said}"
        return Choice(Way.KEYS, reason, by_keys)
    reason = (
        f"{what} {'takes' if keys == 1 else 'take'} {by_stream.seconds:.1f} s, and key by key {waiting:.1f} s in which "
        f"clients wait for keys{said}"
    )
    return Choice(Way.STREAM, reason, by_stream)


def _against_following(ground: Ground) -> str:
    """Why the source must not be followed, or the target not be copied to; empty if both may be."""
    source, target, followable = ground.source, ground.target, ground.followable
    if followable.permitted is False:
        where = source.address if source is not None else "the source"
        return f"{where} does not let our user run PSYNC and REPLCONF (+psync +replconf)"
    if source is not None and source.counts_replicas and not followable.by_replica:
        return f"{source.address} has min-replicas-to-write and would count what follows it as a replica"
    if source is not None and (modules := sorted(set(source.modules) - ENGINES - BUILT_IN)):
        return f"{source.address} has modules ({', '.join(modules)}), whose commands cannot be followed"
    if target is not None and target.evicts:
        return f"{target.address} evicts keys ({target.policy}) when its memory is full, which a copy would not notice"
    return ""


def _against_memory(ground: Ground, assumed: Assumed) -> str:
    """Why a copy would take too much memory or disk; empty if it does not."""
    source, followable = ground.source, ground.followable
    disk = _disk_bytes(ground)
    if disk > assumed.spool_bytes:
        return f"the source's snapshot takes up to {shown(disk)}, and one copy may keep {shown(assumed.spool_bytes)}"
    if followable.disk_bytes is not None and disk + SPARE_BYTES > followable.disk_bytes:
        return (
            f"the source's snapshot takes up to {shown(disk)}, and the disk for it has {shown(followable.disk_bytes)} "
            f"free, of which {shown(SPARE_BYTES)} are for others"
        )
    if source is None:
        return ""
    if source.maximum_bytes and not source.evicts and source.used_bytes > assumed.full * source.maximum_bytes:
        return (
            f"{source.address} uses {shown(source.used_bytes)} of its maxmemory of {shown(source.maximum_bytes)}, and "
            "key by key its memory is freed as keys go"
        )
    if not followable.by_replica:
        try:
            require_memory(source)
        except NoMemoryForSnapshot as error:
            return error.what
    return ""


def _against_a_file(ground: Ground) -> str:
    """Why a snapshot would leave a file behind at the source that it may load later; empty if it does not."""
    if not ground.followable.on_disk:
        return ""
    where = ground.source.address if ground.source is not None else "the source"
    return (
        f"{where} would write a snapshot to its own disk, and load it if it restarts without other data; with "
        "repl-diskless-sync yes it would not"
    )


def _assumptions(ground: Ground, assumed: Assumed) -> str:
    said = []
    if ground.by_keys is None:
        said.append(f"{assumed.by_keys.keys:,.0f} keys a second by keys")
    if ground.by_stream is None:
        unit = "" if said else " keys a second"
        said.append(f"{_speed_by_stream(ground, assumed).keys:,.0f}{unit} by the stream")
    if ground.followable.delay_seconds is None:
        said.append(f"{assumed.snapshot_seconds:g} s until a snapshot begins")
    if ground.followable.permitted is None:
        said.append("that our user may PSYNC")
    return f" (assumed: {', '.join(said)})" if said else ""


def _by_keys(ground: Ground, assumed: Assumed) -> WayForecast | None:
    if ground.keys is None:
        return None
    # The pass that moves the keys, and the one that finds none.
    scans = 2 * (ground.source_keys or ground.keys) / assumed.scanned_keys
    seconds = max(_moving_seconds(ground, _speed_by_keys(ground, assumed)), scans / 2) + scans / 2
    keys, size = round(ground.keys), round(ground.bytes or 0)
    return WayForecast(seconds, keys, size, min(size, assumed.step_bytes), seconds, assumed.lock_by_keys)


def _by_stream(ground: Ground, assumed: Assumed) -> WayForecast | None:
    if ground.keys is None:
        return None
    delay = ground.followable.delay_seconds
    # The source sends all that it has, whatever part of it moves.
    read = (ground.source_bytes or ground.bytes or 0) / assumed.snapshot_bytes
    written = _moving_seconds(ground, _speed_by_stream(ground, assumed))
    seconds = (assumed.snapshot_seconds if delay is None else delay) + max(read, written) + assumed.level_seconds
    cleaning = (ground.source_keys or ground.keys) / assumed.scanned_keys
    keys, size = round(ground.keys), round(ground.bytes or 0)
    return WayForecast(seconds, keys, size, size, seconds + cleaning, assumed.lock_by_stream, _disk_bytes(ground))


def _disk_bytes(ground: Ground) -> int:
    return round(ground.source_bytes or ground.bytes or 0)


def _moving_seconds(ground: Ground, speed: PairSpeed) -> float:
    """How long the keys are on their way, without what comes before and after."""
    return max(
        _over(ground.keys or 0.0, speed.keys, ground.keys_limit),
        _over(ground.bytes or 0.0, speed.bytes, ground.bytes_limit),
    )


def _speed_by_keys(ground: Ground, assumed: Assumed) -> PairSpeed:
    return _slower(assumed.by_keys, _slowness(ground.by_keys, assumed.by_keys))


def _speed_by_stream(ground: Ground, assumed: Assumed) -> PairSpeed:
    if not ground.reads_payloads:
        # What was measured may be of payloads.
        return _slower(assumed.by_stream, assumed.as_commands)
    if ground.by_stream is None:
        # What slows one way down, such as the latency goal or a slow server, slows the other one down.
        return _slower(assumed.by_stream, max(1.0, _slowness(ground.by_keys, assumed.by_keys)))
    return _slower(assumed.by_stream, _slowness(ground.by_stream, assumed.by_stream))


def _slower(speed: PairSpeed, slowness: float) -> PairSpeed:
    return PairSpeed(speed.keys / slowness, speed.bytes / slowness)


def _slowness(measured: PairSpeed | None, assumed: PairSpeed) -> float:
    """How many times as long as assumed it took. Small values bring few bytes a second and large ones few keys, so the
    one that was nearer to what is assumed tells."""
    if measured is None:
        return 1.0
    parts = (measured.keys / assumed.keys, measured.bytes / assumed.bytes)
    fastest = max((part for part in parts if math.isfinite(part)), default=0.0)
    return 1 / max(fastest, LEAST_SPEED) if fastest > 0 else 1.0


def _over(amount: float, rate: float, limit: float) -> float:
    return amount / (min(rate, limit) if limit > 0 else rate)
