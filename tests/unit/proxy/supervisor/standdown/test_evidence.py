"""The rule of standing down: which server's word counts that the proxy is not fenced, and for how long."""

import math

from proxy.supervisor.standdown.evidence import Evidence

ALLOWANCE = 5.0


def known(heard_at: float, *servers: str, seen_at: float) -> Evidence:
    """Servers that have answered once, and topom since."""
    evidence = Evidence(ALLOWANCE)
    for server in servers:
        evidence.unmarked(server, "process", seen_at, seen_at)
    evidence.heard(heard_at)
    return evidence


def test_the_allowance_counts_from_when_topom_was_told_something_that_it_answered() -> None:
    evidence = Evidence(ALLOWANCE)
    assert evidence.until == -math.inf
    evidence.heard(100.0)
    evidence.heard(99.0)
    assert evidence.until == 105.0


def test_a_group_is_served_as_long_as_all_of_its_replicas_say_so() -> None:
    evidence = known(100.0, "a", "b", seen_at=90.0)
    assert evidence.group_until(["a"]) == -math.inf, "said before topom was heard: of no use"
    evidence.unmarked("a", "process", 110.0, 110.5)
    assert evidence.group_until(["a", "b"]) == -math.inf
    evidence.unmarked("b", "process", 111.0, 111.5)
    assert evidence.group_until(["a", "b"]) == 115.0, "the first that falls silent counts"
    assert evidence.group_until(["a", "b", "c"]) == -math.inf
    assert evidence.group_until([]) == math.inf
    assert evidence.until == 105.0


def test_a_replica_that_may_have_forgotten_a_mark_does_not_count() -> None:
    evidence = known(100.0, "a", seen_at=100.1)
    evidence.unmarked("a", "process", 110.0, 110.5)
    assert evidence.group_until(["a"]) == -math.inf, "it may have been marked, and started anew, before it was seen"
    evidence.heard(111.0)
    evidence.unmarked("a", "process", 112.0, 112.5)
    assert evidence.group_until(["a"]) == 117.0
    evidence.unmarked("a", "another process", 114.0, 114.5)
    assert evidence.group_until(["a"]) == 117.0
    evidence.unmarked("a", "another process", 115.0, 115.5)
    assert evidence.group_until(["a"]) == 117.0
    # Once topom is heard again, the earlier process does not matter.
    evidence.heard(116.0)
    evidence.unmarked("a", "another process", 117.0, 117.5)
    assert evidence.group_until(["a"]) == 122.0
    evidence.keep_only({"b"})
    assert evidence.group_until(["a"]) == -math.inf


def test_who_starts_alone_trusts_those_who_have_been_up_for_longer() -> None:
    evidence = Evidence(ALLOWANCE)
    evidence.trust("a", "process")
    for server in ("a", "b"):
        evidence.unmarked(server, "process", 10.0, 10.5)
    assert (evidence.group_until(["a"]), evidence.group_until(["b"])) == (15.0, -math.inf)


def test_a_process_counts_from_when_it_was_seen_first_and_for_one_identity() -> None:
    """final-fence: what was seen is a fact about the server; what is known by it holds for one identity."""
    evidence = Evidence(ALLOWANCE)
    assert evidence.saw("a", "process", 10.0) == 10.0
    assert evidence.saw("a", "process", 20.0) == 10.0
    assert not evidence.knows("a", "process")
    evidence.heard(9.0)
    assert not evidence.knows("a", "process")
    evidence.heard(15.0)
    assert evidence.knows("a", "process")
    assert evidence.saw("a", "another", 20.0) == 20.0
    evidence.heard(19.0)
    assert evidence.known == {"a": "process"}
    following = Evidence(ALLOWANCE, evidence)
    assert following.known == {}
    following.heard(20.0)
    assert following.known == {"a": "another"}
