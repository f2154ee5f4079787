import pytest

from tests.unit.topom.doctor.patients import found, names, server


def everywhere(version: str, *others: str) -> list[str]:
    versions = [*others, *[version] * (4 - len(others))]
    return names(*(server(number, redis_version=one) for number, one in enumerate(versions, 1)))


@pytest.mark.parametrize("version", ["6.0.0", "7.4.1", "8.0.2", "x"])
def test_one_version_everywhere(version: str) -> None:
    assert everywhere(version) == []


def test_versions_before_users() -> None:
    assert everywhere("5.0.14") == ["old-server"] * 4


def test_a_replica_that_cannot_read_what_its_master_writes() -> None:
    [one] = found(server(2, redis_version="6.2.14"))
    assert one.rule == "replica-older"
    assert one.seen == "it runs version 6.2.14, and its master 10.0.0.1:6379 runs 7.2.4"


def test_a_newer_replica_is_how_one_upgrades() -> None:
    assert everywhere("6.2.14", "6.2.14", "7.2.4") == []


def test_the_version_of_a_silent_master_is_not_known() -> None:
    assert names(server(1, silent="gone"), server(2, redis_version="6.2.14")) == ["server-silent"]


def test_masters_that_cannot_read_each_other() -> None:
    [one] = found(*(server(number, redis_version="6.2.14") for number in (3, 4)))
    assert one.rule == "versions-differ"
    assert one.seen.startswith("masters are of versions 6.2.14 (1), 7.2.4 (1), ")


def test_masters_of_versions_that_write_alike() -> None:
    assert everywhere("6.2.14", "6.0.9") == []
