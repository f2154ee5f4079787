"""What INFO says, and the judgement by it, for conditions that are hard to make at a real server."""

import pytest

from migrator.checks import judge, judge_target
from migrator.errors import ModuleMissing, NotApart, NotEnoughMemory, NotMaster, StillLoading
from migrator.facts import Facts
from slots.replies import Info

INFO = """# Server\r
redis_version:7.0.15\r
# Memory\r
used_memory:5000\r
used_memory_dataset:3000\r
mem_not_counted_for_evict:200\r
maxmemory:10000\r
maxmemory_policy:volatile-lru\r
# Persistence\r
loading:0\r
# Replication\r
role:slave\r
master_host:10.0.0.1\r
master_port:6379\r
# Keyspace\r
db0:keys=12,expires=1,avg_ttl=0\r
db7:keys=3,expires=0,avg_ttl=0\r
"""


def test_info_is_read() -> None:
    assert Facts.from_info("h:1", Info.parse(INFO), {"bf": 20}) == Facts(
        "h:1",
        version="7.0.15",
        role="slave",
        follows="10.0.0.1:6379",
        used_bytes=4800,
        dataset_bytes=3000,
        maximum_bytes=10_000,
        policy="volatile-lru",
        keys={0: 12, 7: 3},
        modules={"bf": 20},
        payloads=10,
    )


def test_what_is_not_said_is_as_usual() -> None:
    assert Facts.from_info("h:1", Info.parse("redis_version:6.0\r\nused_memory:77\r\n")) == Facts(
        "h:1", version="6.0", used_bytes=77, dataset_bytes=77, payloads=9
    )


@pytest.mark.parametrize(
    ("source", "target", "reads"),
    [
        ("redis_version:7.0.15", "redis_version:6.2.14", False),
        ("redis_version:6.2.14", "redis_version:6.0.1", True),
        ("redis_version:6.2.14", "redis_version:8.2.3", True),
        ("redis_version:7.4.0", "redis_version:7.2.9", False),
        ("redis_version:7.2.9", "redis_version:7.2.4\r\nvalkey_version:8.1.8", True),
        ("redis_version:7.4.0", "redis_version:7.2.4\r\nvalkey_version:9.1.2", False),
        ("redis_version:7.2.4\r\nvalkey_version:9.1.2", "redis_version:8.2.3", False),
        ("redis_version:7.2.4\r\nvalkey_version:8.1.8", "redis_version:7.2.4\r\nvalkey_version:9.1.2", True),
        ("redis_version:7.2.4\r\nvalkey_version:9.1.2", "redis_version:7.2.4\r\nvalkey_version:9.0.0", True),
        ("redis_version:7.0.15", "redis_version:other", True),
        ("redis_version:7.0.15", "used_memory:1", True),
        ("redis_version:3.2.1", "redis_version:2.8.0", True),
    ],
)
def test_which_payloads_a_server_reads_by_its_version(source: str, target: str, reads: bool) -> None:
    one, other = (Facts.from_info("h:1", Info.parse(f"{info}\r\n")) for info in (source, target))
    assert other.reads_payloads_of(one) == reads


def test_a_replica_says_whom_it_follows() -> None:
    with pytest.raises(NotMaster, match=r"target h:1 is a replica of 10\.0\.0\.1:6379; put the group's master first"):
        judge_target(Facts.from_info("h:1", Info.parse(INFO)))


@pytest.mark.parametrize("field", ["loading", "async_loading"])
def test_a_target_that_is_loading(field: str) -> None:
    with pytest.raises(StillLoading, match="still loading"):
        judge(Facts("s:1"), Facts.from_info("h:1", Info.parse(f"{field}:1\r\n")), 1.0)


def test_modules_of_the_source_have_to_be_at_the_target() -> None:
    with pytest.raises(ModuleMissing, match="lacks modules of source s:1: ReJSON, bf, so "):
        judge(Facts("s:1", modules={"bf": 1, "ReJSON": 1, "search": 1}), Facts("t:1", modules={"search": 1}), 1.0)
    assert judge(Facts("s:1", modules={"bf": 1}), Facts("t:1", modules={"bf": 2, "more": 1}), 1.0) == []
    assert judge(Facts("s:1", modules={"vectorset": 1}), Facts("t:1"), 1.0) == [], "of the source's version itself"


def test_what_is_needed_has_to_fit_with_headroom() -> None:
    source = Facts("s:1", dataset_bytes=1000)

    def target(free: int, policy: str = "noeviction") -> Facts:
        return Facts("t:1", used_bytes=5000, maximum_bytes=5000 + free, policy=policy)

    assert judge(source, target(550), 0.5) == []
    with pytest.raises(NotEnoughMemory):
        judge(source, target(549), 0.5)
    assert judge(source, Facts("t:1", used_bytes=5000), 1.0) == [], "no maxmemory, no limit"
    # An evicting target is refused only if it would surely evict.
    assert len(judge(source, target(500, "allkeys-random"), 0.5)) == 1
    with pytest.raises(NotEnoughMemory, match="would evict"):
        judge(source, target(499, "allkeys-random"), 0.5)


def test_run_id_one_server_by_two_names_is_not_a_pair() -> None:
    with pytest.raises(NotApart, match="one server"):
        judge(Facts("s:1", run_id="r"), Facts("t:1", run_id="r"), 1.0)
    assert judge(Facts("s:1", run_id="r"), Facts("t:1", run_id="q"), 1.0) == []
    assert judge(Facts("s:1"), Facts("t:1"), 1.0) == []
