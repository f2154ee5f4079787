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
    """one-owner: by it, the proxy knows for how long it has not heard topom."""
    ages: Iterator[float] = iter((1.0, 9.0))

    async def slow(kept: Kept, access: ServerAccess) -> None:
        return None

    monkeypatch.setattr(alone, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(alone, "look_at_masters", slow)
    assert await alone.may_serve(KEPT, lambda: next(ages), ProxySettings(), lambda: True) == 9.0
