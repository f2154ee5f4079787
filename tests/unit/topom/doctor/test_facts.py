import pytest

from tests.unit.topom.doctor.patients import SETTINGS, cluster, server
from topom.doctor.facts import CONFIG, ServerFacts


def test_a_good_server_tells_all_that_is_asked() -> None:
    assert set(SETTINGS) == set(CONFIG)


@pytest.mark.parametrize("odd", ["7", -1, 2**70, {"a": 1}, None])
def test_an_odd_figure_counts_as_not_told(odd: object) -> None:
    assert server(maxclients=odd).told("maxclients") is None
    assert server(maxclients=0).told("maxclients") == 0


@pytest.mark.parametrize(("said", "number"), [("12", 12), ("", None), ("-1", None), ("1" * 30, None), ("12kb", None)])
def test_a_setting_that_is_a_number(said: str, number: int | None) -> None:
    assert server(config={"repl-timeout": said}).number("repl-timeout") == number
    assert ServerFacts("10.0.0.1:6379").number("repl-timeout") is None


def test_figures_are_those_of_the_migrator_and_none_for_nonsense() -> None:
    figures = server().figures
    assert figures is not None
    assert figures.version == "7.2.4"
    assert server(role="slave", master_port="x").figures is None
    assert server(silent="it hangs").figures is None


def test_versions() -> None:
    assert server().version == (7, 2)
    assert server(redis_version="x").version is None


def test_how_findings_name_a_server() -> None:
    assert server(1).subject == "server 10.0.0.1:6379 (master of group 1)"
    assert server(4).subject == "server 10.0.0.4:6379 (replica of group 2)"
    assert server(1, group=None).subject == "server 10.0.0.1:6379 (of the pool)"
    assert server(1, address="[::1]:7").command == "redis-cli -h ::1 -p 7"


def test_groups_have_silent_servers_too() -> None:
    known = cluster(server(3, silent="it hangs"), server(5, group=None))
    assert [(group, len(servers)) for group, servers in known.groups()] == [(1, 2), (2, 2)]
    assert [one.address for one in known.masters] == ["10.0.0.1:6379"]
    assert len(known.answering) == 4
