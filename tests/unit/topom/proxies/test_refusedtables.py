"""A table that a proxy refused is given out again, and one that nobody refused is not."""

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.proxies import refusedtables
from topom.proxies.refusedtables import RefusedTables

MakeBench = Callable[..., Awaitable[Bench]]


async def test_only_the_newest_table_is_given_out_again(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusedtables, "FIRST_SECONDS", 0.001)
    one = await bench()
    proxy = await FakeProxy(one, 1).register()
    assert proxy.member is not None
    tables = RefusedTables(one.ledger, one.members)
    epoch = one.ledger.table.epoch
    assert (await tables.look()).says == ""
    one.members.refuse(proxy.member, epoch - 1, "busy")
    assert (await tables.look()).says == ""
    assert one.ledger.table.epoch == epoch
    one.members.refuse(proxy.member, epoch, "busy")
    assert str(epoch) in (await tables.look()).says
    assert one.ledger.table.epoch > epoch
    assert (await tables.look()).says == ""
