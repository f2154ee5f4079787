from dataclasses import replace
from typing import Any

import pytest

from tests.unit.topom.doctor.patients import TOPOM, cluster, found, names
from topom.doctor.topoms import ALMOST_NO_DISK, LITTLE_DISK


def with_topom(**changes: Any) -> list[str]:
    return names(topom=replace(TOPOM, **changes))


@pytest.mark.parametrize(
    ("free", "rules"),
    [
        (None, []),
        (LITTLE_DISK, []),
        (LITTLE_DISK - 1, ["disk-nearly-full"]),
        (ALMOST_NO_DISK - 1, ["disk-full"]),
    ],
)
def test_the_disk(free: int | None, rules: list[str]) -> None:
    assert with_topom(free=free) == rules


def test_what_other_machines_can_hear() -> None:
    assert with_topom(public=True) == ["topom-in-the-clear"]
    assert with_topom(public=True, encrypted=True) == []
    assert with_topom(public=True, encrypted=True, more_tokens=False) == ["one-token"]
    assert with_topom(more_tokens=False) == []
    assert with_topom(server_tls=False) == ["servers-in-the-clear"]


def test_servers_on_the_own_machine_need_no_tls() -> None:
    here = tuple(replace(one, address=one.address.replace("10.0.0.", "127.0.0.")) for one in cluster().servers)
    assert names(servers=here, topom=replace(TOPOM, server_tls=False)) == []


def test_who_takes_over() -> None:
    assert with_topom(shared=False, followers={}) == ["store-on-one-disk"]
    assert with_topom(followers={}) == ["no-other-topom"]


def test_nothing_replaces_a_master() -> None:
    assert with_topom(ha="off") == ["no-failover"]
    without = tuple(one for one in cluster().servers if one.master)
    assert "no-failover" not in names(servers=without, topom=replace(TOPOM, ha="off"))
    assert with_topom(ha="sentinel") == []


def test_versions() -> None:
    [one] = found(topom=replace(TOPOM, followers={"http://b": "0.9", "http://c": "1.0"}))
    assert (one.rule, one.subject) == ("topom-version-differs", "topom http://b")


def test_settings_that_do_not_hold() -> None:
    [one] = found(topom=replace(TOPOM, settings_refused="ha: no such value", settings_file="/etc/topom.toml"))
    assert (one.rule, one.seen) == ("settings-refused", "its settings could not be read anew: ha: no such value")
    assert one.remedy.startswith("slotferry config check /etc/topom.toml, ")
    [one] = found(topom=replace(TOPOM, restart=("ha", "listen")))
    assert (one.rule, one.seen) == ("settings-need-restart", "settings have changed that need a restart: ha, listen")
