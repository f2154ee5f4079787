"""Protection is told when it begins and when it ends."""

from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.cluster.events import What
from topom.cluster.protection import Protection


async def test_protection_is_told_when_it_begins_and_ends() -> None:
    bench = Bench()
    await bench.start()
    protection = Protection(0.5, bench.ledger)
    for lost in (1, 3, 4, 1):
        protection.look(lost, 4)
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    *_, begun, ended, _ = bench.ledger.state.events
    assert (begun.what, ended.what) == (What.PROTECTION_ON, What.PROTECTION_OVER)
    assert begun.text == "3 of 4 members are lost at a time, so topom does nothing about it by itself"
    await bench.stop()
