"""The first layout: even ranges, once, and only over groups that can take slots and hold no keys."""

from collections.abc import Iterable, Mapping

import pytest

from slots import ranges
from slots.slot import Slot
from tests.unit.topom.topom_fakes import Bench
from topom.balance.firstlayout import FirstLayout, even_ranges
from topom.cluster import records, topology
from topom.cluster.events import What
from topom.servers.identities import SameServer
from topom.servers.readings import Reading, Replication
from topom.store import Stored

EMPTY = Reading(Replication(True, "s", 0), "run", 0)
FILLED = Reading(Replication(True, "s", 0), "run", 3)
REPLICA = Reading(Replication(False, "s", 0, ("m", 1)), "run", 0)


class Servers:
    """Servers as the test says; empty masters if it says nothing."""

    def __init__(self) -> None:
        self.known: dict[str, Reading | None] = {}

    async def status(self, addresses: Iterable[str]) -> Mapping[str, Reading | None]:
        return {address: self.known.get(address, EMPTY) for address in addresses}


@pytest.mark.parametrize(
    ("number", "groups", "expected"),
    [(16, [1], {1: "0-15"}), (16, [4, 2], {4: "0-7", 2: "8-15"}), (16, [1, 2, 3], {1: "0-5", 2: "6-10", 3: "11-15"})],
)
def test_ranges_are_even(number: int, groups: list[int], expected: dict[int, str]) -> None:
    laid = even_ranges(number, groups)
    assert {one: ranges.show(slot.id for slot in laid if slot.group_id == one) for one in groups} == expected
    for count in range(1, 65):
        sizes = [
            sum(slot.group_id == one for slot in even_ranges(64, range(1, count + 1))) for one in range(1, count + 1)
        ]
        assert max(sizes) - min(sizes) <= 1


async def with_groups(count: int) -> Bench:
    bench = await Bench().start()
    for group_id in range(1, count + 1):
        await bench.edit(lambda table, epoch, one=group_id: topology.add_group(table, epoch, one, [f"s{one}:1"]))  # type: ignore[misc]
    return bench


async def test_it_waits_for_enough_groups_and_then_lays_out_at_once() -> None:
    bench, servers = await with_groups(2), Servers()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 7))
    layout = FirstLayout(bench.ledger, servers, 2)  # type: ignore[arg-type]
    before = bench.ledger.table
    for status, reason in (
        (None, "no reachable master: group 2"),
        (REPLICA, "group 2"),
        (FILLED, "s2:1 of group 2 holds"),
    ):
        servers.known["s2:1"] = status
        assert reason in await layout.lay_out()
        assert bench.ledger.table is before
    servers.known.clear()
    assert await layout.lay_out() == ""
    assert bench.ledger.table.slots == tuple(even_ranges(16, [1, 2]))
    assert bench.ledger.table.epoch == bench.ledger.state.version == before.epoch + 1, "in one change"
    whats = [event.what for event in bench.ledger.state.events[-3:]]
    assert whats == [What.FIRST_LAYOUT, What.SLOTS_ASSIGNED, What.SLOTS_ASSIGNED]
    await layout.run()  # ends at once


async def test_no_slot_is_laid_out_at_a_server_that_may_be_another_one() -> None:
    bench, known = await with_groups(2), set[str]()

    def require_apart(*servers: str) -> None:
        if not known.issuperset(servers):
            raise SameServer("s1:1 in group 1 and s2:1 in group 2 are one server")

    layout = FirstLayout(bench.ledger, Servers(), 2, require_apart)  # type: ignore[arg-type]
    before = bench.ledger.table
    assert await layout.lay_out() == "s1:1 in group 1 and s2:1 in group 2 are one server"
    assert bench.ledger.table is before
    known.update({"s1:1", "s2:1"})
    assert await layout.lay_out() == ""


async def test_slots_that_were_taken_offline_stay_so() -> None:
    bench = await with_groups(2)
    await bench.edit(lambda table, epoch: topology.assign(table, epoch, [3], 1))
    await bench.edit(lambda table, epoch: topology.offline(table, epoch, [3]))
    state = records.decode(Stored(bench.store.version, bench.store.documents))
    assert state is not None
    assert state.assigned
    layout = FirstLayout(bench.ledger, Servers(), 1)  # type: ignore[arg-type]
    await layout.run()
    await layout.lay_out()
    assert bench.ledger.table.slots == tuple(Slot(i) for i in range(16))


async def test_without_min_groups_nothing_is_done() -> None:
    bench = await with_groups(2)
    await FirstLayout(bench.ledger, Servers(), 0).run()  # type: ignore[arg-type]
    assert not bench.ledger.state.assigned
