"""How batches of a copy are told from what else is sent to a target."""

from migrator.connection import pack
from migrator.stream.applying import COUNT, EXEC, MULTI
from slots.reserved import HIDDEN, POSITION
from tests.histories.relay import KeysHold
from tests.histories.steps import BATCH, CHANGES, RUNNING


def batch(*commands: bytes) -> bytes:
    counting = pack("EVAL", COUNT.text, 1, HIDDEN, 0, "before")
    return b"".join((MULTI, counting, *commands, pack("SET", POSITION, "copy 1 at"), EXEC, pack("WATCH", POSITION)))


SNAPSHOT = batch(pack("RESTORE", "counter", 0, b"\x001\n\x00"))
STREAM = batch(pack("INCR", "counter"))
BEGINNING = pack("SET", POSITION, "copy begun")


def test_batches_are_told_from_the_beginning_of_a_copy() -> None:
    for data, runs in ((SNAPSHOT, True), (STREAM, True), (BEGINNING, False)):
        assert KeysHold(True, RUNNING, BATCH).takes(data) is runs


def test_batches_of_the_stream_are_told_from_those_of_the_snapshot() -> None:
    for data, changes in ((SNAPSHOT, False), (STREAM, True), (BEGINNING, False)):
        assert KeysHold(True, CHANGES, BATCH).takes(data) is changes
