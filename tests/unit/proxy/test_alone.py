"""When a proxy that is started may serve by its kept table."""

from collections.abc import Iterator

import pytest

from proxy import alone
from proxy.control import Product
from proxy.settings import ProxySettings
from proxy.tablefile import Kept
from slots.access import ServerAccess
from slots.table import Slot, SlotTable

KEPT = Kept("a" * 32, Product("local", 1, "codis", 16), SlotTable(1, (Slot(0),), {}))


async def test_the_age_is_that_after_the_servers_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """one-owner: whoever was started since topom was last heard is told by it, however long the servers took."""
    ages: Iterator[float] = iter((1.0, 9.0))

    async def slow(kept: Kept, access: ServerAccess, age: float) -> tuple[dict[str, str], None]:
        assert age == 1.0
        return {"m:1": "process"}, None

    monkeypatch.setattr(alone, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(alone, "look_at_masters", slow)
    assert await alone.may_serve(KEPT, lambda: next(ages), ProxySettings(), lambda: True) == (9.0, {"m:1": "process"})
