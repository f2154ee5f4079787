"""Whether a server has the memory for a snapshot, by its figures."""

import pytest

from migrator.errors import MigrationError
from migrator.facts import Facts
from migrator.forking import NoMemoryForSnapshot, require_memory
from slots.replies import Info

GB = 1 << 30


def server(resident: int | None, machine: int | None, copied: int | None = None) -> Facts:
    return Facts("h:1", resident_bytes=resident, machine_bytes=machine, copied_bytes=copied)


@pytest.mark.parametrize(
    "fits",
    [
        server(4 * GB, 16 * GB),
        server(7 * GB, 16 * GB),
        server(14 * GB, 16 * GB, GB // 4),
        server(4 * GB, 16 * GB, 60 * GB),  # never more than it has
    ],
)
def test_a_server_that_has_it(fits: Facts) -> None:
    assert require_memory(fits) == ""


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        (server(8 * GB, 16 * GB), "how much one copies is not known yet; run BGSAVE"),
        (server(14 * GB, 16 * GB, GB), "the last one copied 1.0 GiB"),
        (server(8 * GB, 16 * GB, 60 * GB), "may copy 8.0 GiB"),
    ],
)
def test_a_server_that_may_lack_it_says_what_to_do(lacks: Facts, says: str) -> None:
    with pytest.raises(NoMemoryForSnapshot) as refused:
        require_memory(lacks)
    assert says in str(refused.value).replace(")", "")
    assert isinstance(refused.value, MigrationError)
    assert refused.value.to_do
    assert not refused.value.passing


@pytest.mark.parametrize("odd", [server(None, 16 * GB), server(4 * GB, None), server(4 * GB, GB)])
def test_what_is_not_known_is_said(odd: Facts) -> None:
    assert "h:1" in require_memory(odd)


def test_the_figures_are_those_of_info() -> None:
    said = "used_memory:50\r\nused_memory_rss:70\r\ntotal_system_memory:400\r\nrdb_last_cow_size:9\r\n"
    found = Facts.from_info("h:1", Info.parse(said))
    assert (found.resident_bytes, found.machine_bytes, found.copied_bytes) == (70, 400, 9)
    odd = Facts.from_info("h:1", Info.parse("used_memory:50\r\ntotal_system_memory:x\r\nrdb_last_cow_size:-1\r\n"))
    assert (odd.resident_bytes, odd.machine_bytes, odd.copied_bytes) == (None, None, None)


def test_what_is_swapped_out_counts() -> None:
    with pytest.raises(NoMemoryForSnapshot):
        require_memory(Facts("h:1", used_bytes=9 * GB, resident_bytes=GB, machine_bytes=16 * GB))
