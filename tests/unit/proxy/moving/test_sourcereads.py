"""Connections for reads at a source: which process they lead to."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from proxy.moving.sourcereads import Reading

INFO = b"$14\r\nrun_id:process\r\n"


def test_a_question_that_was_refused_is_asked_again() -> None:
    asked: list[Callable[[bytes], None]] = []
    backend: Any = SimpleNamespace(connects=1, is_ready=False, call=lambda payload, heard, *_: asked.append(heard))
    reading = Reading(backend)
    reading.identify()
    # It is refused while the connection that will be used is being made.
    asked.pop()(b"-ERR server a:1 did not accept a connection within 1 s\r\n")
    backend.is_ready = True
    reading.identify()
    asked.pop()(INFO)
    assert reading.leads_to("process")
    reading.identify()
    assert asked == []
