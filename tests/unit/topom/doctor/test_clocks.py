from dataclasses import replace

from tests.unit.topom.doctor.patients import TOPOM, cluster, found, names, server
from topom.doctor.facts import ServerFacts


def at(number: int, seconds: float, slack: float = 0.001) -> ServerFacts:
    return server(number, ahead=(seconds, slack))


def test_a_clock_that_is_ahead_and_one_that_is_behind() -> None:
    first, second = found(at(1, 5.04), at(2, -60.0))
    assert (first.rule, first.seen) == ("clock-differs", "its clock is 5.0 s ahead of those of most servers")
    assert "expire so much earlier" in first.harm
    assert (second.rule, second.seen) == ("clock-differs", "its clock is 60.0 s behind those of most servers")
    assert "expire so much later" in second.harm


def test_what_asking_took_may_be_the_difference() -> None:
    assert names(at(1, 2.5, slack=1.6)) == []
    assert names(at(1, 2.5, slack=1.4)) == ["clock-differs"]


def test_where_all_servers_agree_it_is_topoms_clock() -> None:
    [one] = found(*(at(number, 90.2) for number in (1, 2, 3, 4)))
    assert (one.rule, one.subject) == ("topom-clock-differs", "topom")
    assert one.seen == "its clock is 90.2 s behind the servers' clocks"
    assert [one.seen for one in found(*(at(number, -90.2) for number in (1, 2, 3, 4)))] == [
        "its clock is 90.2 s ahead of the servers' clocks"
    ]


def test_two_clocks_do_not_outvote_topoms() -> None:
    two = cluster().servers[:2]
    seen = [one.seen for one in found(servers=(at(1, 9.0), two[1]))]
    assert seen == ["its clock is 9.0 s ahead of topom's"]


def test_a_clock_that_is_not_told() -> None:
    assert names(server(1, ahead=None)) == []


def test_clocks_of_topoms() -> None:
    assert names(topom=replace(TOPOM, clocks={"http://b": 5.0, "http://c": -5.0})) == []
    first, second = found(topom=replace(TOPOM, clocks={"http://b": 7.0, "http://c": -60.0}))
    assert (first.rule, first.subject) == ("topom-clocks-differ", "topom http://b")
    assert first.seen == "its clock is 7 s ahead of that of the topom that leads"
    assert second.seen == "its clock is 60 s behind that of the topom that leads"
