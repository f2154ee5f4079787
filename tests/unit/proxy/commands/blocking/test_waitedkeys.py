"""The keys that clients wait for over slots, while nobody owns their slots: how many there may be."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.commands.blocking import waitedkeys
from proxy.commands.blocking.waitedkeys import FullError, WaitedKeys
from proxy.engine.router import OFFLINE
from slots.functions import slot as slot_by
from tests.unit.proxy.engine.inprocess import SLOTS, engine

KEYS = [b"%d" % number for number in range(8)]


def waiter() -> Any:
    """A client that waits."""
    return SimpleNamespace(session=SimpleNamespace(database=0), stopped=False, parked=None)


async def test_bounded_all_keys_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waitedkeys, "MOST_TOGETHER", 20)
    with engine("127.0.0.1:1") as proxy:
        for key in KEYS:
            proxy.router.set_route(slot_by("crc32", key, SLOTS), OFFLINE, None, 0)
        services: Any = SimpleNamespace(router=proxy.router)
        keys = WaitedKeys(services)
        first, second = (keys.add(waiter(), b"list", KEYS) for _ in range(2))
        with pytest.raises(FullError):
            keys.add(waiter(), b"list", KEYS)
        third = keys.add(waiter(), b"zset", KEYS[:4])
        keys.remove(first)
        assert keys.is_waited_for(0, b"list", KEYS[-1])
        keys.remove(second)
        assert not keys.is_waited_for(0, b"list", KEYS[-1])
        again = keys.add(waiter(), b"list", KEYS)
        for wait in (third, again):
            keys.remove(wait)
        for _ in range(2):
            keys.add(waiter(), b"list", KEYS)
