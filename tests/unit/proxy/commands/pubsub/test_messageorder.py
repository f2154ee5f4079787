"""Messages of a slot that moves come in the order of their publishing (in-order)."""

from collections.abc import Callable

import pytest

from proxy.commands.pubsub import messageorder, messages
from proxy.commands.pubsub.messageorder import MessageOrder
from proxy.commands.pubsub.messages import Message
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable


def message(channel: int, text: str, pattern: bool = False) -> Message:
    """A message on the channel of that number, which is its slot's number too."""
    kind = b">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n" if pattern else b">3\r\n$7\r\nmessage\r\n"
    found = messages.read(kind + b"$1\r\n%d\r\n$%d\r\n%b\r\n" % (channel, len(text), text.encode()))
    assert found is not None
    return found


class Played:
    """What was asked of the servers and what was delivered, with the test in the servers' place."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[], None]]] = []
        self.delivered: list[str] = []
        self.order = MessageOrder(int, lambda server, done: self.asked.append((server, done)), self._deliver)

    def _deliver(self, found: Message) -> None:
        self.delivered.append(found.resp3.split(b"\r\n")[-2].decode())

    def come(self, server: str, channel: int, text: str, pattern: bool = False) -> None:
        self.order.pass_on(server, message(channel, text, pattern))


def test_at_rest_messages_are_delivered_as_they_come() -> None:
    played = Played()
    played.come("A", 1, "1")
    played.come("B", 1, "2")
    assert played.delivered == ["1", "2"]
    assert played.asked == []


@pytest.mark.parametrize("pattern", [False, True])
def test_the_target_waits_until_the_source_has_sent_everything(pattern: bool) -> None:
    played = Played()
    played.order.locked({1: ("A", "B")})
    played.come("A", 1, "1", pattern)
    played.come("B", 1, "3", pattern)
    played.come("B", 1, "4", pattern)
    played.come("A", 1, "2", pattern)
    assert played.delivered == ["1", "2"]
    ((server, done),) = played.asked
    assert server == "A"
    done()
    assert played.delivered == ["1", "2", "3", "4"]
    played.come("B", 1, "5", pattern)
    assert played.delivered[-1] == "5"
    assert len(played.asked) == 1


def test_each_slot_waits_for_itself() -> None:
    played = Played()
    played.order.locked({1: ("A", "B"), 2: ("A", "B")})
    played.come("B", 1, "one")
    played.come("B", 3, "at rest")
    played.come("C", 1, "of a script elsewhere")
    played.come("B", 2, "two")
    assert played.delivered == ["at rest", "of a script elsewhere"]
    assert [server for server, _ in played.asked] == ["A", "A"]
    played.asked[1][1]()
    assert played.delivered[-1] == "two"
    played.asked[0][1]()
    assert played.delivered[-1] == "one"


def test_a_slot_that_came_to_rest_is_forgotten() -> None:
    groups = {1: Group(1, ("A",)), 2: Group(2, ("B",))}
    played = Played()
    played.order.locked({0: ("A", "B"), 1: ("A", "B")})
    moving = Slot(1, 1, Action(SlotState.MIGRATING, 2))
    played.order.table_applied(SlotTable(1, (Slot(0, 1), moving), groups))
    played.come("B", 0, "of a script")
    played.come("B", 1, "held")
    assert played.delivered == ["of a script"]
    # ... but a message that is held is not.
    played.order.table_applied(SlotTable(2, (Slot(0, 1), Slot(1, 2)), groups))
    played.come("B", 1, "too")
    played.asked[0][1]()
    assert played.delivered == ["of a script", "held", "too"]


def test_a_slot_that_came_to_its_target_is_forgotten_once_the_source_has_sent_everything() -> None:
    groups = {1: Group(1, ("A",)), 2: Group(2, ("B",))}
    played = Played()
    played.order.locked({0: ("A", "B"), 1: ("A", "B")})
    for epoch in (1, 2):
        played.order.table_applied(SlotTable(epoch, (Slot(0, 2), Slot(1, 2)), groups))
    played.come("B", 1, "2")
    played.come("A", 1, "1")
    # One question for both slots and tables, and one for the message.
    assert [server for server, _ in played.asked] == ["A", "A"]
    assert played.delivered == ["1"]
    played.asked[0][1]()
    played.come("B", 0, "at rest")
    assert played.delivered == ["1", "at rest"]
    played.asked[1][1]()
    assert played.delivered == ["1", "at rest", "2"]
    # A slot that sets out again meanwhile is not forgotten.
    played.order.locked({0: ("A", "B")})
    played.order.table_applied(SlotTable(3, (Slot(0, 2), Slot(1, 2)), groups))
    played.order.locked({0: ("B", "A")})
    played.asked[2][1]()
    played.come("A", 0, "held")
    assert played.delivered[-1] == "2"
    assert len(played.asked) == 4


def test_what_is_held_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messageorder, "MOST_BYTES", 1000)
    played = Played()
    played.order.locked({1: ("A", "B"), 2: ("A", "B")})
    played.come("B", 2, "x" * 400)
    played.come("B", 1, "y" * 400)
    assert played.delivered == []
    played.come("B", 1, "z" * 400)
    assert played.delivered == ["x" * 400, "y" * 400, "z" * 400]
    for _, done in played.asked:
        done()
    assert len(played.delivered) == 3
    # The room is there again.
    played.order.locked({1: ("A", "B")})
    played.come("B", 1, "v" * 400)
    assert len(played.delivered) == 3
