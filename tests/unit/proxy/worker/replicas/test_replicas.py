"""A worker's replicas: which it asks, when, and what puts a replica out of use. Servers are played by the test."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from proxy.engine.router import Router
from proxy.settings import ProxySettings
from proxy.worker.replicas.replicas import IDLE_ROUNDS, Replicas
from proxy.worker.replicas.replication import QUESTION
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable

PERIOD = 1.0
GROUPS = [Group(1, ("m1", "r1")), Group(2, ("m2", "r2"))]


@dataclass
class FakeSession:
    replica_reads: bool = False


@dataclass
class FakeBackend:
    address: str
    queued: int = 0


class FakeRouter:
    """Holds what it is told."""

    def __init__(self) -> None:
        self.reads: dict[int, str] = {}
        self.sessions: list[FakeSession] = []
        self.shared_backends: list[FakeBackend] = []
        self.kept: list[set[str]] = []

    def set_replica(self, slot: int, address: str | None) -> None:
        self.reads.pop(slot, None)
        if address is not None:
            self.reads[slot] = address

    def keep_servers(self, addresses: set[str]) -> None:
        self.kept.append(addresses)


@dataclass
class FakeConnection:
    address: str
    waiting: list[Callable[[bytes], None]] = field(default_factory=list)
    asked: int = 0
    resets: int = 0
    closed: bool = False

    def call(self, payload: bytes, callback: Callable[[bytes], None]) -> None:
        assert payload == QUESTION
        assert not self.waiting, "bounded: one question at a time"
        assert not self.closed
        self.asked += 1
        self.waiting.append(callback)

    def answer(self, fields: str) -> None:
        self.waiting.pop()(b"$%d\r\n%b\r\n" % (len(fields), fields.encode()))

    def fail(self) -> None:
        while self.waiting:
            self.waiting.pop()(b"-ERR server x closed the connection\r\n")

    def check_time(self) -> None:
        pass

    def reset(self, reason: str) -> None:
        self.resets += 1
        self.fail()

    def close(self, reason: str = "") -> None:
        self.closed = True
        self.fail()


class Bench:
    """Replicas with everything around them played."""

    def __init__(self, **settings: Any) -> None:
        self.router = FakeRouter()
        self.connections: dict[str, FakeConnection] = {}
        chosen = {"replica_reads": True, "replica_check_seconds": PERIOD, **settings}
        self.replicas = Replicas(cast(Router, self.router), ProxySettings(**chosen), "0", self._connect)
        self.table = SlotTable.empty(4)
        self.offset = 100
        self.apply([Slot(0, 1), Slot(1, 1), Slot(2, 2), Slot(3, 2)], GROUPS)

    def _connect(self, address: str) -> FakeConnection:
        self.connections[address] = FakeConnection(address)
        return self.connections[address]

    def apply(self, slots: Any = (), groups: Any = (), removed: Any = ()) -> None:
        self.table = self.table.changed(self.table.epoch + 1, slots, groups, removed)
        self.replicas.apply(self.table)

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass, then tick."""
        clock.now += seconds
        self.replicas.tick()

    def answer(self, address: str, **fields: Any) -> None:
        if address.startswith("m"):
            said = {"role": "master", "master_replid": address, "master_repl_offset": self.offset}
        else:
            said = {
                "role": "slave",
                "master_replid": address.replace("r", "m"),
                "slave_repl_offset": self.offset,
                "master_link_status": "up",
                "master_last_io_seconds_ago": 0,
            }
        lines = [f"{name}:{value}\r\n" for name, value in {**said, **fields}.items()]
        self.connections[address].answer("".join(lines))

    def round(self) -> None:
        """Everybody is asked, and answers well."""
        self.tick(PERIOD * 1.2)
        for address in ("m1", "m2", "r1", "r2"):
            if address in self.connections and self.connections[address].waiting:
                self.answer(address)

    @property
    def asked(self) -> dict[str, int]:
        return {address: connection.asked for address, connection in self.connections.items()}


class Clock:
    now = 1000.0


clock = Clock()


@pytest.fixture(autouse=True)
async def played_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now)


ALL = {0: "r1", 1: "r1", 2: "r2", 3: "r2"}


async def test_the_master_is_asked_and_then_its_replicas() -> None:
    bench = Bench()
    bench.tick()
    assert bench.asked == {"m1": 1, "m2": 1}
    bench.answer("m1")
    assert bench.asked == {"m1": 1, "m2": 1, "r1": 1}
    assert bench.router.reads == {}
    bench.answer("r1")
    assert bench.router.reads == {0: "r1", 1: "r1"}
    assert bench.replicas.slots_read == 2


async def test_once_a_period() -> None:
    bench = Bench()
    bench.round()
    for _ in range(5):
        bench.tick(PERIOD / 10)
    assert set(bench.asked.values()) == {1}
    bench.round()
    assert set(bench.asked.values()) == {2}
    assert bench.router.reads == ALL


async def test_nobody_is_asked_before_a_session_wants_it() -> None:
    bench = Bench(replica_reads=False)
    bench.round()
    assert bench.asked == {}
    session = FakeSession(replica_reads=True)
    bench.router.sessions = [FakeSession(), session]
    bench.round()
    assert bench.router.reads == ALL
    session.replica_reads = False
    for _ in range(IDLE_ROUNDS - 1):
        bench.round()
        assert bench.router.reads == ALL, "it may want to again at any moment"
    bench.round()
    assert bench.router.reads == {}
    assert all(connection.closed for connection in bench.connections.values())
    session.replica_reads = True
    bench.round()
    assert bench.router.reads == ALL


@pytest.mark.parametrize(
    "state", [SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED], ids=str
)
async def test_a_slot_in_motion_is_not_read_from_a_replica(state: SlotState) -> None:
    bench = Bench()
    bench.round()
    bench.apply([Slot(0, 1, Action(SlotState.PENDING, 2))])
    assert bench.router.reads == ALL
    bench.apply([Slot(0, 1, Action(state, 2))])
    assert bench.router.reads == {1: "r1", 2: "r2", 3: "r2"}
    bench.round()
    assert 0 not in bench.router.reads


async def test_caught_up_a_slot_that_has_moved() -> None:
    bench = Bench()
    bench.round()
    bench.apply([Slot(0, 1, Action(SlotState.FINISHED, 2))])
    bench.apply([Slot(0, 2)])
    bench.tick(PERIOD * 1.2)
    bench.answer("m2", master_repl_offset=500)
    bench.answer("r2", slave_repl_offset=499)
    assert 0 not in bench.router.reads
    bench.tick(PERIOD * 1.2)
    bench.answer("m2", master_repl_offset=600)
    bench.answer("r2", slave_repl_offset=500)
    assert bench.router.reads[0] == "r2"


async def test_caught_up_a_question_under_way_when_the_slot_comes_does_not_count() -> None:
    bench = Bench()
    bench.tick()
    bench.apply([Slot(0, 2)])
    bench.answer("m2")
    bench.answer("r2")
    assert bench.router.reads == {2: "r2", 3: "r2"}
    bench.round()
    assert bench.router.reads == {0: "r2", 1: "r1", 2: "r2", 3: "r2"}


async def test_caught_up_after_a_promotion() -> None:
    bench = Bench()
    bench.round()
    bench.apply(groups=[Group(1, ("r1", "m1"))])
    assert bench.router.reads == {2: "r2", 3: "r2"}
    bench.tick(PERIOD * 1.2)
    bench.answer("r1", role="master", master_replid="new", master_repl_offset=700)
    bench.answer("m1")  # has not been told yet
    assert 0 not in bench.router.reads
    bench.tick(PERIOD * 1.2)
    bench.answer("r1", role="master", master_replid="new", master_repl_offset=700)
    told = {"role": "slave", "master_replid": "new", "master_link_status": "up", "master_last_io_seconds_ago": 0}
    bench.answer("m1", **told, slave_repl_offset=699)
    assert 0 not in bench.router.reads
    bench.tick(PERIOD * 1.2)
    bench.answer("r1", role="master", master_replid="new", master_repl_offset=700)
    bench.answer("m1", **told, slave_repl_offset=700)
    assert bench.router.reads[0] == "m1"


async def test_an_answer_from_before_a_change_of_the_master_does_not_count() -> None:
    bench = Bench()
    bench.round()
    bench.tick(PERIOD * 1.2)
    late = bench.connections["m1"].waiting.pop()
    bench.apply(groups=[Group(1, ("x1", "r1"))])
    late(b"-ERR gone\r\n")
    bench.tick(PERIOD * 1.2)
    assert 0 not in bench.router.reads


@pytest.mark.parametrize(
    "change",
    [
        [Group(1, ("m1",))],
        [Group(1, ("x1", "r1"))],
        [Group(1, ("m1", "x1"))],
        [Group(1, ())],
    ],
    ids=["removed", "another master", "another replica", "an empty group"],
)
async def test_a_table_puts_a_replica_out_of_use_at_once(change: list[Group]) -> None:
    bench = Bench()
    bench.round()
    bench.apply(groups=change)
    assert bench.router.reads == {2: "r2", 3: "r2"}


async def test_a_group_that_goes_or_slots_that_go_offline() -> None:
    bench = Bench()
    bench.round()
    bench.apply([Slot(0), Slot(1)], removed=[1])
    assert bench.router.reads == {2: "r2", 3: "r2"}
    assert bench.connections["r1"].closed
    assert bench.connections["m1"].closed
    bench.round()
    assert bench.router.reads == {2: "r2", 3: "r2"}


async def test_a_replica_that_is_added_does_not_stop_the_other() -> None:
    bench = Bench()
    bench.round()
    bench.apply(groups=[Group(1, ("m1", "r1", "x1"))])
    assert bench.router.reads == ALL


async def test_a_lost_connection_puts_a_replica_out_of_use_at_once() -> None:
    bench = Bench()
    bench.round()
    bench.tick(PERIOD * 1.2)
    bench.answer("m1")
    bench.replicas.server_lost("r1")
    assert bench.router.reads == {2: "r2", 3: "r2"}
    bench.answer("r1")
    assert bench.router.reads == {2: "r2", 3: "r2"}, "it was asked before"
    bench.round()
    assert bench.router.reads == ALL


async def test_a_lost_connection_to_a_master_changes_nothing() -> None:
    bench = Bench()
    bench.round()
    bench.replicas.server_lost("m1")
    assert bench.router.reads == ALL


async def test_a_replica_that_does_not_answer() -> None:
    bench = Bench()
    bench.round()
    bench.tick(PERIOD * 1.2)
    bench.answer("m1")
    bench.tick(PERIOD * 0.5)
    assert bench.router.reads[0] == "r1"
    bench.tick(PERIOD * 0.6)
    assert 0 not in bench.router.reads
    bench.connections["r1"].fail()
    assert 0 not in bench.router.reads
    bench.round()
    assert bench.router.reads[0] == "r1"


async def test_a_replica_that_answers_with_an_error() -> None:
    bench = Bench()
    bench.round()
    bench.tick(PERIOD * 1.2)
    bench.answer("m1")
    bench.connections["r1"].fail()
    assert 0 not in bench.router.reads


async def test_a_master_that_hangs_leaves_its_replicas_in_use() -> None:
    bench = Bench()
    bench.round()
    for _ in range(3):
        bench.tick(PERIOD * 1.2)
        bench.answer("m2")
        if bench.connections["r1"].waiting:
            bench.answer("r1")
        bench.answer("r2")
    assert bench.asked["m1"] == 2
    assert bench.asked["r1"] > 2
    assert bench.router.reads == ALL


async def test_a_fence_puts_everything_out_of_use_until_there_is_a_new_identity() -> None:
    bench = Bench()
    bench.round()
    bench.replicas.fenced()
    assert bench.router.reads == {}
    bench.round()
    bench.round()
    assert bench.router.reads == {}
    bench.replicas.reset("new identity")
    bench.apply()
    bench.round()
    assert bench.router.reads == ALL


async def test_a_new_identity_begins_anew() -> None:
    bench = Bench()
    bench.round()
    bench.replicas.reset("new identity")
    assert bench.router.reads == {}
    assert all(connection.resets == 1 for connection in bench.connections.values())
    bench.round()
    assert bench.router.reads == ALL


async def test_a_replica_that_leaves_is_let_answer_what_it_owes() -> None:
    bench = Bench()
    bench.round()
    owing = FakeBackend("r1", queued=3)
    bench.router.shared_backends = [owing, FakeBackend("m1"), FakeBackend("r2")]
    bench.apply(groups=[Group(1, ("m1",)), Group(2, ("m2",))])
    assert bench.replicas.leaving == {"r1"}
    bench.tick()
    assert bench.router.kept == []
    owing.queued = 0
    bench.tick()
    assert bench.replicas.leaving == frozenset()
    assert bench.router.kept == [{"m1", "r2"}]


async def test_a_replica_that_comes_back_is_not_closed() -> None:
    bench = Bench()
    bench.router.shared_backends = [FakeBackend("r1", queued=3)]
    bench.apply(groups=[Group(1, ("m1",))])
    bench.apply(groups=[Group(1, ("m1", "r1"))])
    assert bench.replicas.leaving == frozenset()


async def test_the_end() -> None:
    bench = Bench()
    bench.round()
    bench.replicas.close()
    assert all(connection.closed for connection in bench.connections.values())
