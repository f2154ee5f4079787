from types import SimpleNamespace
from typing import Any

from proxy.worker.worker import Worker
from slots.messages.channel import Ack, Nack
from slots.messages.message import MOST_TEXT

INSTANCE = "0" * 32


def test_a_verdict_names_the_identity_and_fits_a_message_however_many_slots_it_names() -> None:
    sent: list[Any] = []
    worker: Any = SimpleNamespace(
        _options=SimpleNamespace(instance=INSTANCE), _channel=SimpleNamespace(send=sent.append)
    )
    Worker._send_verdict(worker, 3, None)
    Worker._send_verdict(worker, 4, "slots 1,3,5" * 1000)
    assert sent[0] == Ack(instance=INSTANCE, epoch=3)
    assert isinstance(sent[1], Nack)
    assert (sent[1].epoch, len(sent[1].reason)) == (4, MOST_TEXT)
