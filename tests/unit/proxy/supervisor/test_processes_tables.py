"""Which changes a worker is sent: those since the last table that it got, and no others."""

from typing import Any, cast

from proxy.supervisor.processes import Worker
from slots.messages.channel import Table
from tests.unit.proxy.proxy_fakes import table

FIRST, SECOND, THIRD = table(1, 1, 1), table(2, 1, 2), table(3, 2, 2)


class Sent:
    """In place of a channel: it keeps what was sent."""

    def __init__(self) -> None:
        self.tables: list[Any] = []

    def send(self, message: Table) -> None:
        self.tables.append(message.table)


def begin() -> tuple[Worker, Sent]:
    sent = Sent()
    worker = Worker(0, 1, "0" * 32, cast(Any, None), cast(Any, sent))
    worker.send_table(FIRST)
    return worker, sent


def test_changes_that_topom_sent_go_on_as_they_are() -> None:
    worker, sent = begin()
    known = {**SECOND.changes_since(FIRST), "a field": "of a newer topom"}
    worker.send_table(SECOND, known=known)
    assert sent.tables == [FIRST.to_wire(), known]


def test_epochs_changes_since_another_table_than_the_last_one_are_not_sent() -> None:
    worker, sent = begin()
    worker.send_table(THIRD, known=THIRD.changes_since(SECOND))
    worker.send_table(table(4, 1, 1), known=THIRD.changes_since(SECOND))
    assert sent.tables[1:] == [THIRD.changes_since(FIRST), table(4, 1, 1).changes_since(THIRD)]


def test_a_worker_without_a_table_gets_all_of_it() -> None:
    worker, sent = begin()
    worker.send_table(SECOND, whole=True, known=SECOND.changes_since(FIRST))
    assert sent.tables[1] == SECOND.to_wire()
