"""Which replica of a group is read for which slot."""

from collections import Counter

import pytest

from proxy.worker.replicas.replicagroup import Limits, ReplicaGroup
from proxy.worker.replicas.replication import Replication
from slots.group import Group

LIMITS = Limits(lag_bytes=100, lag_seconds=10)
SLOTS = range(512)


def made(*replicas: str, datacenter: str = "", salt: str = "0", **named: str) -> ReplicaGroup:
    """A group of master ``m`` and these replicas; ``named`` has datacenters by name of the server."""
    return ReplicaGroup(Group(1, ("m", *replicas), named), datacenter, LIMITS, salt)


def master(offset: int, stream: str = "s") -> Replication:
    return Replication(True, stream, offset)


def replica(offset: int, stream: str = "s", link_up: bool = True, silent_seconds: int = 0) -> Replication:
    return Replication(False, stream, offset, link_up, silent_seconds)


class Reads:
    """What a router would hold: the changes, applied."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.chosen: dict[int, str] = {}

    def after(self) -> dict[int, str]:
        for slot, server in self.group.refresh():
            assert self.chosen.get(slot) != server, "only changes are told"
            if server is None:
                del self.chosen[slot]
            else:
                self.chosen[slot] = server
        assert self.group.slots_read == len(self.chosen)
        return self.chosen


def settled(group: ReplicaGroup, offset: int = 50) -> Reads:
    """Every slot at rest and every replica up to date."""
    group.join(SLOTS)
    group.master_said(master(offset), group.asking())
    for server in group.replicas:
        group.replica_said(server, replica(offset))
    return Reads(group)


def test_a_replica_that_is_known_to_differ_is_not_read_whatever_it_says() -> None:
    group = made("r", "q")
    reads = settled(group)
    assert set(reads.after().values()) == {"r", "q"}
    group.set_replicas(Group(1, ("m", "r", "q"), unread=frozenset({"r"})))
    group.replica_said("r", replica(60))
    assert set(reads.after().values()) == {"q"}
    group.set_replicas(Group(1, ("m", "r", "q")))
    assert set(reads.after().values()) == {"q"}, "it has to be asked again"
    group.replica_said("r", replica(60))
    assert set(reads.after().values()) == {"r", "q"}


def test_caught_up_a_slot_is_read_once_the_replica_has_what_the_master_had_when_it_came() -> None:
    group = made("r")
    reads = Reads(group)
    group.join([1])
    assert reads.after() == {}
    group.replica_said("r", replica(60))
    assert reads.after() == {}, "what the master had is not known yet"
    group.master_said(master(70), group.asking())
    assert reads.after() == {}, "the replica lacks some of it"
    group.replica_said("r", replica(69))
    assert reads.after() == {}
    group.replica_said("r", replica(70))
    assert reads.after() == {1: "r"}


def test_caught_up_an_answer_to_a_question_put_before_the_slot_came_does_not_count() -> None:
    group = made("r")
    reads = settled(group)
    asked = group.asking()
    group.join([600])
    group.master_said(master(50), asked)
    group.replica_said("r", replica(50))
    assert 600 not in reads.after()
    group.master_said(master(90), group.asking())
    assert 600 not in reads.after()
    group.replica_said("r", replica(95))
    assert reads.after()[600] == "r"


def test_a_slot_that_comes_does_not_stop_reads_of_the_others() -> None:
    group = made("r")
    reads = settled(group)
    assert len(reads.after()) == len(SLOTS)
    group.join([600])
    group.master_said(master(90), group.asking())
    assert set(reads.after()) == set(SLOTS)
    group.replica_said("r", replica(89))
    assert set(reads.after()) == set(SLOTS)


def test_caught_up_a_replica_that_fell_back_is_measured_again() -> None:
    """It was restarted with older data, and its link is up already."""
    group = made("r")
    reads = settled(group)
    assert reads.after()
    group.replica_said("r", replica(10))
    assert reads.after() == {}
    group.replica_said("r", replica(50))
    assert set(reads.after()) == set(SLOTS)


def test_caught_up_another_stream_makes_every_mark_anew() -> None:
    group = made("r")
    reads = settled(group)
    assert reads.after()
    group.master_said(master(5, "other"), group.asking())
    assert reads.after() == {}, "the replica follows the old stream"
    group.replica_said("r", replica(4, "other"))
    assert reads.after() == {}
    group.replica_said("r", replica(5, "other"))
    assert set(reads.after()) == set(SLOTS)


def test_a_slot_that_leaves_is_forgotten() -> None:
    group = made("r")
    reads = settled(group)
    reads.after()
    group.leave(3)
    del reads.chosen[3]
    group.replica_said("r", replica(80))
    assert 3 not in reads.after()
    group.join([3])
    group.replica_said("r", replica(80))
    assert 3 not in reads.after(), "it has come anew, whatever was known of it before"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (None, "does not say"),
        (master(200), "is a master"),
        (replica(200, link_up=False), "no link"),
        (replica(200, "other"), "does not follow m"),
        (replica(99), "101 bytes behind"),
        (replica(200, silent_seconds=11), "for 11 s"),
    ],
)
def test_a_replica_that_is_not_fit(said: Replication | None, problem: str) -> None:
    group = made("r", "q")
    reads = settled(group)
    assert set(reads.after().values()) == {"r", "q"}
    group.master_said(master(200), group.asking())
    group.replica_said("q", replica(200))
    group.replica_said("r", said)
    assert problem in str(group.problem("r"))
    assert set(reads.after().values()) == {"q"}
    group.replica_said("r", replica(200))
    assert group.problem("r") is None
    assert set(reads.after().values()) == {"r", "q"}


def test_a_lag_within_the_limit_will_do() -> None:
    group = made("r")
    reads = settled(group)
    group.master_said(master(150), group.asking())
    group.replica_said("r", replica(50))
    assert set(reads.after()) == set(SLOTS)
    group.master_said(master(151), group.asking())
    assert reads.after() == {}


def test_a_master_that_is_none_has_no_replicas() -> None:
    group = made("r")
    reads = settled(group)
    assert reads.after()
    group.master_said(replica(50), group.asking())
    assert reads.after() == {}
    group.master_said(master(60, "s"), group.asking())
    group.replica_said("r", replica(59))
    assert reads.after() == {}, "it may have been somebody else's replica in between"
    group.replica_said("r", replica(60))
    assert set(reads.after()) == set(SLOTS)


def test_a_master_that_does_not_answer_takes_no_replica_away() -> None:
    group = made("r")
    reads = settled(group)
    group.master_said(None, group.asking())
    group.replica_said("r", replica(55))
    assert set(reads.after()) == set(SLOTS)


def test_forgetting() -> None:
    group = made("r")
    reads = settled(group)
    assert reads.after()
    asked = group.asking()
    group.forget()
    assert reads.after() == {}
    group.master_said(master(70), asked)
    group.replica_said("r", replica(75))
    assert reads.after() == {}, "that was asked before"
    group.master_said(master(70), group.asking())
    assert set(reads.after()) == set(SLOTS)


def test_the_nearest_datacenter_first() -> None:
    group = made("near", "far", "here", "nowhere", datacenter="paris", near="paris", far="rome", here="paris")
    reads = settled(group)
    assert set(reads.after().values()) == {"near", "here"}
    group.replica_said("near", None)
    assert set(reads.after().values()) == {"here"}
    group.replica_said("here", None)
    assert set(reads.after().values()) == {"far", "nowhere"}
    group.replica_said("far", None)
    group.replica_said("nowhere", None)
    assert reads.after() == {}
    group.replica_said("near", replica(50))
    assert set(reads.after().values()) == {"near"}


def test_a_near_replica_that_lacks_a_slot_leaves_it_to_a_far_one() -> None:
    group = made("near", "far", datacenter="paris", near="paris", far="rome")
    reads = settled(group)
    reads.after()
    group.join([600])
    group.master_said(master(90), group.asking())
    group.replica_said("far", replica(90))
    chosen = reads.after()
    assert chosen.pop(600) == "far"
    assert set(chosen.values()) == {"near"}


def test_no_name_is_a_datacenter_like_any_other() -> None:
    assert set(settled(made("r", "q", q="rome")).after().values()) == {"r"}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_reads_are_spread_over_the_replicas(count: int) -> None:
    servers = [f"10.0.0.{number}:6379" for number in range(count)]
    found = Counter(settled(made(*servers)).after().values())
    share = len(SLOTS) / count
    assert sorted(found) == servers
    assert all(0.7 * share < found[server] < 1.3 * share for server in servers), found


def test_workers_spread_the_reads_of_one_slot() -> None:
    servers = ("a", "b", "c")
    by_worker = [dict(settled(made(*servers, salt=str(worker))).after()) for worker in range(12)]
    for slot in range(8):
        assert {chosen[slot] for chosen in by_worker} == set(servers)


def test_a_replica_that_goes_changes_only_its_own_share() -> None:
    group = made("a", "b", "c")
    reads = settled(group)
    before = dict(reads.after())
    group.replica_said("b", None)
    after = dict(reads.after())
    assert {slot for slot in before if before[slot] != after[slot]} == {s for s in before if before[s] == "b"}
    group.replica_said("b", replica(50))
    assert reads.after() == before


def test_replicas_come_and_go_under_the_same_master() -> None:
    group = made("a", "b")
    reads = settled(group)
    reads.after()
    group.set_replicas(Group(1, ("m", "b", "c"), {}))
    assert set(reads.after().values()) == {"b"}
    group.replica_said("a", replica(50))
    group.replica_said("c", replica(50))
    assert set(reads.after().values()) == {"b", "c"}


def test_another_datacenter_counts_at_once() -> None:
    group = made("a", "b", datacenter="paris", a="paris", b="rome")
    reads = settled(group)
    assert set(reads.after().values()) == {"a"}
    group.set_replicas(Group(1, ("m", "a", "b"), {"a": "rome", "b": "paris"}))
    assert set(reads.after().values()) == {"b"}
