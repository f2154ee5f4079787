"""Which servers' keyspace events are for clients, as tables come and go."""

from collections.abc import Callable

from proxy.commands.pubsub import messages
from proxy.commands.pubsub.keyevents import KeyEvents
from proxy.commands.pubsub.messages import Message
from slots.group import Group
from slots.reserved import POSITION
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable

GROUPS = {1: Group(1, ("source:1",)), 2: Group(2, ("target:2",))}
SOURCE, TARGET = "source:1", "target:2"


def event(key: bytes) -> Message:
    channel = b"__keyevent@0__:set"
    push = b">3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(key), key)
    message = messages.read(push)
    assert message is not None
    return message


class Heard:
    """Slot 0 has the key "0", slot 1 the key "1". The servers answer when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Callable[[], None]]] = []
        self.events = KeyEvents(
            lambda database, key: int(key), lambda address, done: self.waiting.append((address, done)), lambda: True
        )
        self.epoch = 0
        self.apply(1, None)

    def apply(self, group: int, state: SlotState | None, copy: str = "copy") -> None:
        """Slot 0 is of a group, perhaps on its way to the other; slot 1 stays in group 1."""
        self.epoch += 1
        action = Action(state, 3 - group, copy=copy) if state is not None else None
        self.events.table_applied(SlotTable(self.epoch, (Slot(0, group, action), Slot(1, 1)), GROUPS))

    def passing(self) -> set[str]:
        """The servers whose events of slot 0 are for clients."""
        return {address for address in (SOURCE, TARGET) if self.events.passes(address, event(b"0"))}


def test_the_owners_events_are_passed_on_and_those_of_a_copy_are_not() -> None:
    heard = Heard()
    for state in (None, SlotState.COPYING, SlotState.PREPARING):
        heard.apply(1, state)
        assert heard.passing() == {SOURCE}
    heard.apply(1, SlotState.PREPARED)
    assert heard.passing() == {SOURCE, TARGET}
    heard.apply(1, SlotState.FINISHED)
    assert heard.passing() == {SOURCE, TARGET}
    [(address, done)] = heard.waiting
    assert address == SOURCE
    done()
    assert heard.passing() == {TARGET}
    heard.apply(2, None)
    assert heard.passing() == {TARGET}
    assert heard.events.passes(SOURCE, event(b"1"))
    assert not heard.events.passes(TARGET, event(b"1"))


def test_a_lock_that_is_given_up_leaves_the_source() -> None:
    heard = Heard()
    heard.apply(1, SlotState.PREPARED)
    heard.apply(1, SlotState.PREPARING)
    assert heard.passing() == {SOURCE}
    assert heard.waiting == []


def test_both_ends_are_heard_while_keys_move_one_by_one() -> None:
    heard = Heard()
    for state in (SlotState.PREPARED, SlotState.MIGRATING):
        heard.apply(1, state, copy="")
        assert heard.passing() == {SOURCE, TARGET}


def test_a_former_masters_last_events_and_other_messages_are_passed_on() -> None:
    heard = Heard()
    assert heard.events.passes("former:3", event(b"0"))
    other = messages.read(b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\n0\r\n")
    assert other is not None
    assert heard.events.passes(TARGET, other)
    assert not heard.events.passes(SOURCE, event(POSITION))
