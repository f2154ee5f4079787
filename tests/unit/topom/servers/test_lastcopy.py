"""Which server may be told to follow which, as a table: no last whole copy is wiped (last-copy)."""

import pytest

from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.cluster.events import What
from topom.servers import lastcopy
from topom.servers.lastcopy import (
    Alarms,
    As,
    HoldsKeys,
    MasterLacks,
    NotToFollow,
    lacking,
    refusal,
    still_needed,
)
from topom.servers.readings import Reading, Replication

BOUND = 1000


def master(keys: int, stream: str = "s", offset: int = 5000, former: str = "", at: int = -1, **more: int) -> Reading:
    """A master in a stream of its own; ``former`` is the stream that it left ``at`` so many bytes."""
    replicas, loading = more.get("replicas", 0), bool(more.get("loading"))
    said = Replication(True, stream, offset, former=former, former_offset=at)
    return Reading(said, f"run of {stream}", keys, replicas, loading)


def replica(keys: int, stream: str, offset: int, link_up: bool = False, host: str = "m", replicas: int = 0) -> Reading:
    return Reading(Replication(False, stream, offset, (host, 1), link_up), "run of r", keys, replicas)


EMPTIED = master(0, "fresh", 10)
"""It was restarted without its data."""
OLDER = master(40, "fresh", 3000, "s", 3000)
"""It was restarted with an older RDB file."""
WITHOUT_HISTORY = master(100, "fresh", 10)
"""It was restarted with an append-only file, which says nothing of its former stream."""
NOT_ALL = master(99, "fresh", 10)

TABLE = [
    # -- who they are, no matter what an operator said
    ("one server under two names", master(5), master(5), As.SPARE, "", NotToFollow),
    ("what it is to follow is a replica", master(5, "t"), replica(5, "s", 9), As.SPARE, "", NotToFollow),
    ("the master loads its data", master(5, "t"), master(5, loading=1), As.SPARE, "", NotToFollow),
    ("the server loads its data", master(0, "t", loading=1), master(5), As.NEW, "", NotToFollow),
    # -- the operator's word
    ("it may be lost", master(5, "t"), EMPTIED, As.SPARE, "", None),
    ("to be filled anew", replica(5, "s", 5, link_up=True), master(4), As.ANEW, "", None),
    ("to be filled anew, by one that lost its data", replica(5, "s", 5), EMPTIED, As.ANEW, "", MasterLacks),
    # -- nothing there
    ("an empty server", master(0, "t"), master(5), As.POOL, "", None),
    ("an empty server that joins", master(0, "t"), EMPTIED, As.NEW, "", None),
    ("an empty stray", master(0, "t"), master(5), As.AGAIN, "", None),
    ("an empty former master", master(0, "t", replicas=2), master(5), As.MEMBER, "", None),
    ("one with replicas of its own", master(0, "t", replicas=1), master(5), As.NEW, "", HoldsKeys),
    # -- from the pool
    ("keys in the pool", master(5, "t"), master(50), As.POOL, "", HoldsKeys),
    ("somebody's replica in the pool", replica(0, "t", 5, link_up=True), master(50), As.POOL, "", HoldsKeys),
    # -- new in the group
    ("keys of its own", master(5, "t"), master(50), As.NEW, "", HoldsKeys),
    ("its data are at somebody else's", replica(5, "t", 5, link_up=True, host="x"), master(50), As.NEW, "", None),
    ("a replica that lost its master", replica(5, "t", 5, host="x"), master(50), As.NEW, "", HoldsKeys),
    ("its former master filled it", replica(5, "t", 900, host="x"), master(50, "s", 5000, "t", 900), As.NEW, "", None),
    ("and it has more", replica(5, "t", 2000, host="x"), master(50, "s", 5000, "t", 900), As.NEW, "", HoldsKeys),
    ("many more keys", replica(500, "t", 900, host="x"), master(50, "s", 5000, "t", 900), As.NEW, "", HoldsKeys),
    ("a master that has left it", master(5, "s2", 900, "t", 900), master(50, "s", 5, "t", 900), As.NEW, "", HoldsKeys),
    ("its master's already, whose link is down", replica(5, "t", 5), master(50), As.NEW, "", None),
    # -- astray
    ("all that it has is its master's", master(5, "t", 90, "s", 90), master(5), As.AGAIN, "", None),
    ("it was written to since", master(5, "t", 91, "s", 90), master(5), As.AGAIN, "", MasterLacks),
    ("it says nothing of its past", master(5, "t"), master(5), As.AGAIN, "", MasterLacks),
    ("it has many more keys", master(11, "t", 90, "s", 90), master(5), As.AGAIN, "", MasterLacks),
    ("its master came back empty", master(5, "t", 90, "s", 90), EMPTIED, As.AGAIN, "", MasterLacks),
    ("its master came back older", master(100, "t", 5000, "s", 5000), OLDER, As.AGAIN, "", MasterLacks),
    ("somebody made it a master", master(5, "t", 90, "s", 90, replicas=1), master(5), As.AGAIN, "", HoldsKeys),
    # -- a change of masters: the former master, and replicas of it
    ("the former one, all sent", master(100), master(100, "n", 5000, "s", 5000), As.MEMBER, "run of n", None),
    ("the former one, not all sent", master(100), master(99, "n", 4000, "s", 4000), As.MEMBER, "run of n", None),
    ("more than may be lost", master(100), master(90, "n", 3999, "s", 3999), As.MEMBER, "run of n", MasterLacks),
    ("another replica", replica(90, "s", 4500), master(100, "n", 5100, "s", 5000), As.MEMBER, "run of n", None),
    ("a replica with its link up", replica(9, "s", 5, link_up=True), master(10), As.MEMBER, "", None),
    ("a restarted former one", WITHOUT_HISTORY, master(60, "n", 5000, "s", 5000), As.MEMBER, "run of n", None),
    # -- the new master was restarted while the change of masters was not over
    ("came back empty", master(5000), EMPTIED, As.MEMBER, "run of n", MasterLacks),
    ("came back empty, to a replica", replica(5000, "s", 5000), EMPTIED, As.MEMBER, "run of n", MasterLacks),
    ("came back empty, chosen by a topom of before", master(5000), EMPTIED, As.MEMBER, "", MasterLacks),
    ("came back older", replica(100, "s", 3001), OLDER, As.MEMBER, "run of n", MasterLacks),
    ("came back with all", replica(40, "s", 3000), OLDER, As.MEMBER, "run of n", None),
    ("came back with as many keys", replica(100, "s", 5000), WITHOUT_HISTORY, As.MEMBER, "run of n", None),
    ("came back with fewer keys", replica(100, "s", 5000), NOT_ALL, As.MEMBER, "run of n", MasterLacks),
    # Was it emptied by clients, or by something else? An operator has to say.
    ("the very process, empty", WITHOUT_HISTORY, master(0, "n", 9), As.MEMBER, "run of n", MasterLacks),
]


@pytest.mark.parametrize(("case", "mine", "ahead", "told_as", "sure", "kind"), TABLE, ids=[row[0] for row in TABLE])
def test_who_may_follow_whom(
    case: str, mine: Reading, ahead: Reading, told_as: As, sure: str, kind: type[NotToFollow] | None
) -> None:
    found = refusal("r:1", mine, "m:1", ahead, told_as, BOUND, sure)
    assert type(found) is (kind or type(None)), (case, found)
    if isinstance(found, MasterLacks):
        told = f"r:1 holds {mine.keys:,} keys and its master m:1 {ahead.keys:,}"
        assert str(found).startswith(told)
        assert "stop m:1 and promote r:1 with --force" in str(found)
        assert "slotferry server remove r:1" in str(found)


@pytest.mark.parametrize("told_as", list(As))
def test_nobody_is_told_of_a_master_by_an_address_that_leads_elsewhere(told_as: As) -> None:
    for server in ("10.0.0.2:1", "r:1"):
        found = refusal(server, master(0, "t"), "127.0.0.1:1", master(5), told_as, BOUND)
        assert found is not None
        assert str(found).startswith(f"127.0.0.1:1 would lead {server} to its own machine")
    assert refusal("127.0.0.1:2", master(0, "t"), "127.0.0.1:1", master(5), told_as, BOUND) is None


@pytest.mark.parametrize(
    ("mine", "ahead", "kind"),
    [
        (master(0, "t"), EMPTIED, None),
        (replica(100, "s", 5, link_up=True), EMPTIED, None),
        (WITHOUT_HISTORY, master(50, "n"), None),
        (master(5000), EMPTIED, MasterLacks),
        (replica(5000, "s", 5000), EMPTIED, MasterLacks),
        (replica(100, "s", 4001), OLDER, MasterLacks),
        (replica(100, "s", 4000), OLDER, None),
        # It had all of it, and has lost most of it since then.
        (master(100, "t", 90, "s", 90), master(1), None),
        (master(5000, "t"), replica(5000, "s", 9), NotToFollow),
    ],
)
def test_which_old_copy_is_still_needed(mine: Reading, ahead: Reading, kind: type[NotToFollow] | None) -> None:
    assert type(still_needed("r:1", mine, "m:1", ahead, BOUND)) is (kind or type(None))


AHEAD = Replication(True, "s", 100)
NEXT = Replication(True, "next", 400, former="s", former_offset=95)


def left(stream: str, at: int, offset: int) -> Replication:
    """A master that left a stream ``at`` so many bytes and has run ``offset`` bytes now."""
    return Replication(True, "own", offset, former=stream, former_offset=at)


@pytest.mark.parametrize(
    ("mine", "ahead", "missing"),
    [
        (left("s", 100, 100), AHEAD, 0),
        (left("s", 90, 90), AHEAD, 0),
        # It was written to since then, or its master restarted with older data of the same stream.
        (left("s", 90, 91), AHEAD, 1),
        (left("s", 101, 101), AHEAD, 1),
        (left("s", 101, 103), AHEAD, 3),
        (left("s", 90, 90), NEXT, 0),
        (left("s", 96, 96), NEXT, 1),
        (Replication(False, "s", 96), NEXT, 1),
        (Replication(False, "s", 90), AHEAD, 0),
        # Its master was restarted without its history, or the server itself with an append-only file.
        (left("s", 90, 90), Replication(True, "t", 400), None),
        (Replication(True, "own", 0), AHEAD, None),
        (Replication(True, "own", 0), Replication(True, "t", 400), None),
        (left("x", 90, 90), AHEAD, None),
        # Servers before Redis 4 do not tell of streams.
        (Replication(True, "", 5), Replication(True, "", 9), None),
    ],
)
def test_how_much_of_what_a_server_has_run_another_one_lacks(
    mine: Replication, ahead: Replication, missing: int | None
) -> None:
    assert lacking(mine, ahead) == missing


async def test_a_master_that_lacks_data_is_told_once_a_minute_of_each_server(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = await Bench().start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["m:1", "r:1", "r:2"]))
    alarms = Alarms(bench.ledger)

    async def told(*servers: str) -> list[str]:
        before = len(bench.ledger.state.events)
        for server in servers:
            alarms.raised(server, MasterLacks(f"of {server}"))
        # The noted event goes with the next write.
        await bench.edit(lambda table, epoch: topology.set_datacenter(table, epoch, 1, "m:1", f"d{epoch}"))
        return [event.text for event in bench.ledger.state.events[before:] if event.what == What.MASTER_LACKS_DATA]

    assert await told("r:1", "r:1", "r:2") == ["of r:1", "of r:2"]
    assert await told("r:1") == []
    monkeypatch.setattr(lastcopy, "TELL_SECONDS", 0.0)
    assert await told("r:1") == ["of r:1"]
    await bench.stop()
