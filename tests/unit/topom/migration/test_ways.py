"""Which way slots move: each rule, by figures on both sides of it; and no figure, however odd, raises."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.facts import Facts
from migrator.followable import Followable
from topom.cluster.speed import PairSpeed
from topom.migration.ways import ASSUMED, AUTO, Choice, Ground, Sized, Way, choose

GIB = 2**30
FOLLOWED = Followable(permitted=True, delay_seconds=0.0, disk_bytes=100 * GIB)
SOURCE = Facts("s:1", used_bytes=GIB, dataset_bytes=GIB, keys={0: 9_000_000, 3: 1_000_000}, machine_bytes=8 * GIB)
TARGET = Facts("t:1")


def ground(share: float = 0.5, **changes: object) -> Ground:
    about = {"source": SOURCE, "target": TARGET, "followable": FOLLOWED, **changes}
    return Ground.of(share, None, **about)  # type: ignore[arg-type]


def way(one: Ground, wanted: str = AUTO) -> str:
    return str(choose(one, wanted))


def test_half_of_a_large_source_goes_by_the_stream_and_says_why() -> None:
    choice = choose(ground(), AUTO)
    assert str(choice).startswith(
        "by the stream: 5,000,000 keys (512 MiB) take 26.0 s, and key by key 125.0 s in which clients wait for keys"
    )
    assert choice.forecast is not None
    assert (choice.forecast.keys, choice.forecast.bytes) == (5_000_000, GIB // 2)
    assert (choice.forecast.twice_bytes, choice.forecast.disk_bytes) == (GIB // 2, GIB)
    assert choice.forecast.twice_seconds == pytest.approx(26.0 + 20.0), "until the source is swept"
    assert choice.forecast.lock_seconds == ASSUMED.lock_by_stream


def test_a_small_part_goes_by_keys() -> None:
    assert way(ground(0.001)).startswith("by keys: 10,000 keys (1 MiB) move in 0.2 s, and by the stream in 6.1 s")
    assert way(ground(1e-7)).startswith("by keys: 1 key (107 bytes) moves in 0.0 s, and by the stream")
    delayed = replace(FOLLOWED, delay_seconds=200.0)
    assert way(ground(followable=delayed)).startswith("by keys: "), "the source waits long before each snapshot"


def test_what_was_measured_counts() -> None:
    assert way(replace(ground(), by_keys=PairSpeed(4_000_000.0, 4e8))).startswith("by keys: ")
    assert way(replace(ground(), by_stream=PairSpeed(20_000.0, 2e6))).startswith("by keys: ")
    few_found = replace(ground(0.001), by_keys=PairSpeed(10.0, 1000.0))
    assert "move in 2.0 s, and by the stream" in way(few_found), "10,000 keys at an eighth of what is assumed"
    assert "(assumed: 25,000 keys a second by the stream)" in way(few_found), "what slows one way slows the other"
    for none in (PairSpeed(5e-324, 0.0), PairSpeed(0.0, 0.0), PairSpeed(float("nan"), float("-inf"))):
        assert way(replace(ground(), by_keys=none))
    large_values = replace(ground(0.001), by_keys=PairSpeed(100.0, ASSUMED.by_keys.bytes))
    assert way(large_values).startswith("by keys: "), "few keys a second, because their values were large"
    limited = replace(ground(), keys_limit=1000)
    assert "take 5,001.0 s" in way(limited) or "take 5001.0 s" in way(limited), "both ways keep to an operator's limit"


def test_sizes_count_before_the_number_of_slots() -> None:
    sized = Sized(keys=10.0, bytes=900.0, source_keys=100.0, source_bytes=1000.0)
    found = Ground.of(0.5, sized, SOURCE)
    assert (found.keys, found.bytes) == (1_000_000, pytest.approx(0.9 * GIB))
    assert Ground.of(0.5, Sized(0.0, 0.0, 0.0, 0.0), SOURCE).keys == 5_000_000, "nothing was measured there"
    assert Ground.of(0.5, Sized(9.0, 9.0, 3.0, 3.0), SOURCE).keys == 10_000_000, "never more than all"
    assert Ground.of(0.5, sized).source_keys == 100.0, "the source was not looked at"
    assert sized.part(2) == Sized(5.0, 450.0, 100.0, 1000.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"followable": replace(FOLLOWED, permitted=False)}, "s:1 does not let our user run PSYNC and REPLCONF"),
        ({"source": replace(SOURCE, counts_replicas=True)}, "s:1 has min-replicas-to-write"),
        (
            {"source": replace(SOURCE, modules=dict.fromkeys(("bf", "lua", "vectorset"), 1))},
            "s:1 has modules (bf), whose",
        ),
        ({"target": Facts("t:1", maximum_bytes=9, policy="allkeys-lru")}, "t:1 evicts keys (allkeys-lru)"),
        ({"source": replace(SOURCE, maximum_bytes=round(1.1 * GIB))}, "s:1 uses 1.0 GiB of its maxmemory of 1.1 GiB"),
        ({"source": replace(SOURCE, machine_bytes=round(1.4 * GIB))}, "s:1 may lack the memory for a snapshot: it has"),
        ({"source": replace(SOURCE, resident_bytes=8 * GIB)}, "s:1 may lack the memory for a snapshot: it has 8.0 GiB"),
        ({"followable": replace(FOLLOWED, disk_bytes=GIB)}, "the source's snapshot takes up to 1.0 GiB, and the disk"),
        ({"source": replace(SOURCE, dataset_bytes=65 * GIB)}, "the source's snapshot takes up to 65.0 GiB, and one"),
        ({"followable": replace(FOLLOWED, on_disk=True)}, "s:1 would write a snapshot to its own disk, and load it"),
    ],
)
def test_what_speaks_against_the_stream(changes: dict[str, object], reason: str) -> None:
    assert way(ground()).startswith("by the stream: ")
    assert way(ground(**changes)).startswith(f"by keys: {reason}")
    assert way(ground(**changes), "stream").startswith("by the stream: "), "an operator's word counts"


def test_a_source_that_is_near_its_limit_as_a_cache_is_not_freed() -> None:
    cache = replace(SOURCE, maximum_bytes=GIB, policy="allkeys-lru")
    assert way(ground(source=cache)).startswith("by the stream: ")


def test_a_copy_from_a_replica_takes_nothing_of_the_master() -> None:
    by_replica = replace(FOLLOWED, by_replica=True)
    for one in (replace(SOURCE, counts_replicas=True), replace(SOURCE, machine_bytes=GIB)):
        assert way(ground(source=one, followable=by_replica)).startswith("by the stream: ")
    on_disk = replace(FOLLOWED, on_disk=True).with_replica()
    assert way(ground(followable=on_disk)).startswith("by the stream: "), "it has made such files for its replicas"


def test_the_settings_and_failed_copies_come_first() -> None:
    for wanted, shown in (("keys", 'by keys: migration_way is "keys"'), ("stream", "by the stream: migration_way is ")):
        assert way(ground(0.001), wanted).startswith(shown)
        assert choose(ground(), wanted).forecast is not None
    for wanted in ("stream", AUTO):
        assert str(choose(ground(), wanted, "the source runs EVAL")) == "by keys: the source runs EVAL"


def test_a_target_that_reads_no_payloads_takes_a_copy_however_few_the_keys_are() -> None:
    few = replace(ground(0.001), reads_payloads=False)
    assert way(few) == "by the stream: the target reads no payloads of the source, and takes values as commands"
    on_disk = ground(followable=replace(FOLLOWED, on_disk=True))
    assert way(replace(on_disk, reads_payloads=False)).startswith("by the stream: "), "it is the only way"
    evicts = ground(target=Facts("t:1", maximum_bytes=9, policy="allkeys-lru"))
    assert way(replace(evicts, reads_payloads=False)).startswith("by keys: t:1 evicts"), "and topom moves none then"
    as_commands = choose(replace(ground(), reads_payloads=False), AUTO).forecast
    by_payloads = choose(ground(), AUTO).forecast
    assert as_commands is not None
    assert by_payloads is not None
    assert as_commands.seconds > 4 * by_payloads.seconds


def test_what_is_not_known_is_said() -> None:
    assert choose(Ground(), AUTO) == Choice(Way.KEYS, "it is not known how much moves")
    assert choose(Ground(), AUTO).times(3).forecast is None
    assert choose(Ground(), AUTO).to_wire()["seconds"] is None
    said = way(ground(followable=Followable()))
    for part in ("40,000 keys a second by keys", "5 s until a snapshot begins", "that our user may PSYNC"):
        assert part in said
    known = replace(ground(), by_keys=ASSUMED.by_keys, by_stream=ASSUMED.by_stream)
    assert "assumed" not in way(known)


def test_several_batches_cost_time_each_and_memory_once() -> None:
    one, three = choose(ground(), AUTO), choose(ground(), AUTO).times(3)
    assert one.forecast is not None
    assert three.forecast is not None
    assert three.forecast.seconds == 3 * one.forecast.seconds
    assert (three.forecast.keys, three.forecast.rounds) == (3 * one.forecast.keys, 3)
    assert three.forecast.twice_bytes == one.forecast.twice_bytes
    assert set(three.to_wire()) >= {"way", "because", "seconds", "twice_bytes", "twice_seconds", "lock_seconds"}


odd = st.one_of(st.integers(0, 2**63 - 1), st.just(0))
speeds = st.none() | st.builds(PairSpeed, st.floats(), st.floats())


@given(
    st.builds(
        Facts,
        st.just("s:1"),
        used_bytes=odd,
        dataset_bytes=odd,
        maximum_bytes=odd,
        keys=st.dictionaries(st.integers(0, 9), odd, max_size=3),
        resident_bytes=st.none() | odd,
        machine_bytes=st.none() | odd,
        copied_bytes=st.none() | odd,
    ),
    st.floats(0, 1),
    st.none() | st.builds(Sized, odd, odd, odd, odd),
    st.builds(
        Followable,
        st.sampled_from([True, False, None]),
        st.none() | st.floats(0, 86_400),
        st.booleans(),
        st.none() | odd,
    ),
    speeds,
    speeds,
    st.floats(0, 1e12),
)
def test_no_figures_raise(
    source: Facts,
    share: float,
    sized: Sized | None,
    followable: Followable,
    by_keys: PairSpeed | None,
    by_stream: PairSpeed | None,
    limit: float,
) -> None:
    for seen in (source, None):
        one = Ground.of(share, sized, seen, TARGET, followable, by_keys=by_keys, by_stream=by_stream, keys_limit=limit)
        choice = choose(one, AUTO)
        assert choice.reason
        assert choice.times(2).to_wire()["way"] in ("keys", "stream")
