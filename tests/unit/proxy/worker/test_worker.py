from types import SimpleNamespace
from typing import Any

import pytest

from proxy.worker.inforce import InForce
from proxy.worker.worker import Worker
from slots.messages.channel import Ack, Nack
from slots.messages.message import MOST_TEXT

INSTANCE = "0" * 32


def test_a_verdict_names_the_identity_and_fits_a_message_however_many_slots_it_names() -> None:
    sent: list[Any] = []
    worker: Any = SimpleNamespace(
        _options=SimpleNamespace(instance=INSTANCE), _channel=SimpleNamespace(send=sent.append)
    )
    InForce.send_verdict(worker, 3, None)
    InForce.send_verdict(worker, 4, "slots 1,3,5" * 1000)
    assert sent[0] == Ack(instance=INSTANCE, epoch=3)
    assert isinstance(sent[1], Nack)
    assert (sent[1].epoch, len(sent[1].reason)) == (4, MOST_TEXT)


@pytest.mark.parametrize("failing", range(5))
async def test_each_part_is_closed_whatever_another_one_raises(failing: int) -> None:
    closed: list[str] = []

    def part(number: int, name: str, waits: bool) -> SimpleNamespace:
        def close() -> None:
            closed.append(name)
            if number == failing:
                raise ConnectionError(name)

        async def close_soon() -> None:
            close()

        return SimpleNamespace(close=close_soon if waits else close)

    parts = (
        ("_routing", False),
        ("_replicas", False),
        ("_slow_path", True),
        ("_lost_connections", True),
        ("_mover", True),
    )
    worker: Any = SimpleNamespace(**{name: part(number, name, waits) for number, (name, waits) in enumerate(parts)})
    with pytest.raises(ConnectionError, match=parts[failing][0]):
        await Worker._close(worker)
    assert closed == [name for name, _ in parts]
