"""Every message of a migrator's stream comes over whole, and what breaks a limit is refused."""

import json
from typing import Any

import pytest

from slots.messages import copies
from slots.messages.control import Refused
from slots.messages.copies import (
    MOST_COPIES,
    MOST_REPLICAS,
    MigratorMessage,
    ToMigrator,
    parse_migrator,
    parse_to_migrator,
)
from slots.messages.message import MOST_TEXT, Message, MessageError, encode
from slots.rules import SlotRule
from slots.slot import MAXIMUM_SLOTS
from tests.unit.slots.messages.samples import kinds_of, untried, with_field

ID = "0123456789abcdef" * 2
LONG, HUGE = 2**63, 10**400
HIDDEN = ("\x1b[2J", "a\nb")
OF_MIGRATORS: list[Message] = [
    copies.RegisterMigrator(instance=ID, hostname="host", pid=7, version="1.0", node="n1", datacenter="d1"),
    copies.Report(
        copies=[
            copies.CopyState(copy_id=ID, keys=3, size=90),
            copies.CopyState(
                copy_id="f" * 32,
                keys=3,
                size=90,
                lag=17,
                followed="10.0.0.1:6380",
                held=copies.Held(
                    speed=0.5,
                    source=copies.Latency(p99=1.5, quiet=1.0, allowed=2.0),
                    target=copies.Latency(),
                    held_back="by the source",
                    since=12.5,
                ),
            ),
        ],
        disk=1 << 40,
    ),
    copies.Done(number=4),
    copies.Failed(number=4, kind="server", what="it is gone", to_do="start it", passing=True),
]
TO_MIGRATORS: list[Message] = [
    copies.MigratorRegistered(report_seconds=0.5),
    Refused(reason="follower", message="this topom does not lead", leader="http://a:1"),
    copies.SetPace(keys_per_second=1000, bytes_per_second=0, latency_goal_milliseconds=2.5, paused=False),
    copies.BeginCopy(
        copy_id=ID,
        stream_id=ID,
        source="10.0.0.1:6379",
        target="10.0.0.2:6379",
        source_run_id="a" * 40,
        target_run_id="b" * 40,
        replicas=["10.0.0.1:6380"],
        slots=[0, 5, 1023],
        slot_function="crc32",
        number_of_slots=1024,
        slot_rules=(SlotRule("bull:(*):*"), SlotRule("*", 5, "queues")),
        instance=ID,
        term=3,
    ),
    copies.NearlyLevel(number=1, copy_id=ID),
    copies.Settle(number=2, copy_id=ID, slots=[0, 5]),
    copies.KeepOnly(copy_id=ID, slots=[]),
    copies.CloseCopy(number=3, copy_id=ID),
]
NUMBERS = (-1, LONG, 0.5, "1", None)
IDS = ("", "0" * 31, "G" * 32, None)
SLOTS = ([-1], [MAXIMUM_SLOTS], ["1"], None, [0] * (MAXIMUM_SLOTS + 1))
FIGURES = (-1, float("nan"), float("inf"), "1", HUGE)
WRONG: list[tuple[str, str, Any]] = [
    *(("register_migrator", "protocol", value) for value in (-1, 2**63, 1.5, "1", True, None)),
    *(("register_migrator", "instance", value) for value in IDS),
    *(("register_migrator", "hostname", value) for value in ("x" * 301, None, *HIDDEN)),
    *(("register_migrator", "pid", value) for value in NUMBERS),
    *(("register_migrator", "version", value) for value in ("x" * 101, None, *HIDDEN)),
    *(("register_migrator", "node", value) for value in ("x" * 101, None, *HIDDEN)),
    *(("register_migrator", "datacenter", value) for value in ("x" * 101, None, *HIDDEN)),
    *(
        ("report", "copies", value)
        for value in (None, {}, [{}], [{"copy_id": ID, "keys": 1, "size": 1}] * (MOST_COPIES + 1))
    ),
    *(("report", "copies", [{"copy_id": ID, "keys": value, "size": 1}]) for value in NUMBERS),
    *(("report", "copies", [{"copy_id": ID, "keys": 1, "size": value}]) for value in NUMBERS),
    *(("report", "copies", [{"copy_id": value, "keys": 1, "size": 1}]) for value in IDS),
    *(("report", "copies", [{"copy_id": ID, "keys": 1, "size": 1, "lag": value}]) for value in NUMBERS[:-1]),
    *(
        ("report", "copies", [{"copy_id": ID, "keys": 1, "size": 1, "held": {"source": {}, "target": {}, **wrong}}])
        for wrong in ({"speed": 2.0}, {"speed": float("nan")}, {}, {"speed": 1.0, "source": {"p99": -1.0}})
    ),
    *(("report", "disk", value) for value in NUMBERS[:-1]),
    *(("done", "number", value) for value in NUMBERS),
    *(("failed", "number", value) for value in NUMBERS),
    *(("failed", "kind", value) for value in ("x" * 101, None, *HIDDEN)),
    *(("failed", "what", value) for value in ("x" * (MOST_TEXT + 1), None, *HIDDEN)),
    *(("failed", "to_do", value) for value in ("x" * (MOST_TEXT + 1), None, *HIDDEN)),
    *(("failed", field, value) for field in ("passing", "of_followed") for value in (None, "yes", 1)),
    *(("registered", "report_seconds", value) for value in (0, *FIGURES)),
    *(("refused", field, value) for field in ("reason", "message", "leader") for value in ("x" * 2001, None, *HIDDEN)),
    *(("set_pace", "keys_per_second", value) for value in NUMBERS),
    *(("set_pace", "bytes_per_second", value) for value in NUMBERS),
    *(("set_pace", "latency_goal_milliseconds", value) for value in FIGURES),
    *(("set_pace", "paused", value) for value in (None, 1, "no")),
    *(("begin_copy", "copy_id", value) for value in IDS),
    *(("begin_copy", "stream_id", value) for value in IDS),
    *(("begin_copy", "source", value) for value in ("", "host", "host:0", "host:65536", None)),
    *(("begin_copy", "target", value) for value in ("", "host", "host:0", "host:65536", None)),
    *(
        ("begin_copy", field, value)
        for field in ("source_run_id", "target_run_id")
        for value in ("", "x" * 101, None, *HIDDEN)
    ),
    *(("begin_copy", "replicas", value) for value in (None, ["host"], ["h:1"] * (MOST_REPLICAS + 1))),
    *(("report", "copies", [{"copy_id": ID, "keys": 1, "size": 1, "followed": value}]) for value in ("", "h", 1)),
    *(("begin_copy", "slots", value) for value in SLOTS),
    *(("begin_copy", "slot_rules", value) for value in ({}, "a*", [1], [{"pattern": "**"}], [{"pattern": "a"}] * 2)),
    *(("begin_copy", "slot_function", value) for value in ("", "nope", None)),
    *(("begin_copy", "number_of_slots", value) for value in (0, -1, 3, 32768, None)),
    *(("begin_copy", "instance", value) for value in IDS),
    *(("begin_copy", "term", value) for value in NUMBERS),
    *(("nearly_level", "number", value) for value in NUMBERS),
    *(("nearly_level", "copy_id", value) for value in IDS),
    *(("settle", "number", value) for value in NUMBERS),
    *(("settle", "copy_id", value) for value in IDS),
    *(("settle", "slots", value) for value in SLOTS),
    *(("keep_only", "copy_id", value) for value in IDS),
    *(("keep_only", "slots", value) for value in SLOTS),
    *(("close_copy", "number", value) for value in NUMBERS),
    *(("close_copy", "copy_id", value) for value in IDS),
]
WIRE = {message.type: json.loads(encode(message)) for message in (*OF_MIGRATORS, *TO_MIGRATORS)}


def parse(wire: dict[str, Any]) -> MigratorMessage | ToMigrator:
    of_migrators = wire["type"] in {message.type for message in OF_MIGRATORS}
    return parse_migrator(json.dumps(wire)) if of_migrators else parse_to_migrator(json.dumps(wire))


def test_every_message_has_a_sample() -> None:
    assert {type(message) for message in OF_MIGRATORS} == kinds_of(MigratorMessage)
    assert {type(message) for message in TO_MIGRATORS} == kinds_of(ToMigrator)


@pytest.mark.parametrize("message", [*OF_MIGRATORS, *TO_MIGRATORS], ids=lambda message: message.type)
def test_a_message_comes_over_whole_and_what_is_new_in_it_is_ignored(message: Message) -> None:
    wire = WIRE[message.type]
    assert parse(wire) == message
    assert parse({**wire, "of a newer version": 1}) == message


def test_of_every_field_a_wrong_value_is_tried() -> None:
    assert untried([*OF_MIGRATORS, *TO_MIGRATORS], [(kind, path) for kind, path, _ in WRONG]) == set()


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_a_value_beyond_its_limits_is_refused(kind: str, path: str, value: Any) -> None:
    with pytest.raises(MessageError, match=rf"^{kind}\.{path}"):
        parse(with_field(WIRE[kind], path, value))


def test_a_copy_has_slots_of_its_product_only() -> None:
    with pytest.raises(MessageError, match="a slot is not below 1024"):
        parse(with_field(WIRE["begin_copy"], "slots", [1024]))


def test_neither_side_takes_what_the_other_says() -> None:
    for message in OF_MIGRATORS:
        with pytest.raises(MessageError):
            parse_to_migrator(encode(message))
    for message in TO_MIGRATORS:
        with pytest.raises(MessageError):
            parse_migrator(encode(message))
