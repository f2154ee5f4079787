"""The rule of standing down: which server's word counts that the proxy is not fenced, and for how long."""

import math

from proxy.supervisor.standdown.unfenced import Unfenced

ALLOWANCE = 5.0


def known(heard_at: float, *servers: str, seen_at: float) -> Unfenced:
    """Servers that have answered once, and topom since."""
    unfenced = Unfenced(ALLOWANCE)
    for server in servers:
        unfenced.unmarked(server, "process", seen_at, seen_at)
    unfenced.heard(heard_at)
    return unfenced


def test_the_allowance_counts_from_when_topom_was_told_something_that_it_answered() -> None:
    unfenced = Unfenced(ALLOWANCE)
    assert unfenced.until == -math.inf
    unfenced.heard(100.0)
    unfenced.heard(99.0)
    assert unfenced.until == 105.0


def test_a_group_is_served_as_long_as_all_of_its_replicas_say_so() -> None:
    unfenced = known(100.0, "a", "b", seen_at=90.0)
    assert unfenced.group_until(["a"]) == -math.inf, "said before topom was heard: of no use"
    unfenced.unmarked("a", "process", 110.0, 110.5)
    assert unfenced.group_until(["a", "b"]) == -math.inf
    unfenced.unmarked("b", "process", 111.0, 111.5)
    assert unfenced.group_until(["a", "b"]) == 115.0, "the first that falls silent counts"
    assert unfenced.group_until(["a", "b", "c"]) == -math.inf
    assert unfenced.group_until([]) == math.inf
    assert unfenced.until == 105.0


def test_a_replica_that_may_have_forgotten_a_mark_does_not_count() -> None:
    unfenced = known(100.0, "a", seen_at=100.1)
    unfenced.unmarked("a", "process", 110.0, 110.5)
    assert unfenced.group_until(["a"]) == -math.inf, "it may have been marked, and started anew, before it was seen"
    unfenced.heard(111.0)
    unfenced.unmarked("a", "process", 112.0, 112.5)
    assert unfenced.group_until(["a"]) == 117.0
    unfenced.unmarked("a", "another process", 114.0, 114.5)
    assert unfenced.group_until(["a"]) == 117.0
    unfenced.unmarked("a", "another process", 115.0, 115.5)
    assert unfenced.group_until(["a"]) == 117.0
    # Once topom is heard again, the earlier process does not matter.
    unfenced.heard(116.0)
    unfenced.unmarked("a", "another process", 117.0, 117.5)
    assert unfenced.group_until(["a"]) == 122.0
    unfenced.keep_only({"b"})
    assert unfenced.group_until(["a"]) == -math.inf


def test_who_starts_alone_trusts_those_who_have_been_up_for_longer() -> None:
    unfenced = Unfenced(ALLOWANCE)
    unfenced.trust("a", "process")
    for server in ("a", "b"):
        unfenced.unmarked(server, "process", 10.0, 10.5)
    assert (unfenced.group_until(["a"]), unfenced.group_until(["b"])) == (15.0, -math.inf)


def test_a_process_counts_from_when_it_was_seen_first_and_for_one_identity() -> None:
    """final-fence: what was seen is a fact about the server; what is known by it holds for one identity."""
    unfenced = Unfenced(ALLOWANCE)
    assert unfenced.saw("a", "process", 10.0) == 10.0
    assert unfenced.saw("a", "process", 20.0) == 10.0
    assert not unfenced.knows("a", "process")
    unfenced.heard(9.0)
    assert not unfenced.knows("a", "process")
    unfenced.heard(15.0)
    assert unfenced.knows("a", "process")
    assert unfenced.saw("a", "another", 20.0) == 20.0
    unfenced.heard(19.0)
    assert unfenced.known == {"a": "process"}
    following = Unfenced(ALLOWANCE, unfenced)
    assert following.known == {}
    following.heard(20.0)
    assert following.known == {"a": "another"}
