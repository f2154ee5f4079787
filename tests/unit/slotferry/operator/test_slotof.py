"""``slotferry slot of``: what decides the slot of a key, and what is said where topom is not asked."""

import json

import pytest
from typer.testing import CliRunner

from slotferry.client import key_slots_of
from slotferry.main import app
from slotferry.operator.slotof import rows, shown
from slots.keyslots import KeySlots

STATUS = {
    "slot_function": "crc16",
    "number_of_slots": 64,
    "slot_rules": [{"pattern": "bull:(*):*"}, {"pattern": "*", "database": 5, "tag": "queues"}],
}
PLAIN = KeySlots("crc16", 64)
KEYS = [b"bull:mail:wait", b"x{t}", b"plain"]


def test_a_rule_or_a_tag_decides() -> None:
    found = rows(key_slots_of(STATUS), 0, KEYS)
    assert [row["slot"] for row in found] == [PLAIN.slot_of(0, key) for key in (b"mail", b"t", b"plain")]
    assert [row["rule"] for row in found] == [{"pattern": "bull:(*):*"}, None, None]
    assert [row["tag"] for row in found] == ["mail", "t", "plain"]
    assert [row[2:4] for row in shown(found)] == [("mail", "bull:(*):*"), ("t", ""), ("plain", "")]


def test_a_rule_may_name_a_database() -> None:
    found = rows(key_slots_of(STATUS), 5, KEYS)
    queues = PLAIN.slot_of(0, b"queues")
    assert [row["slot"] for row in found] == [PLAIN.slot_of(0, b"mail"), queues, queues]
    assert found[1]["rule"] == {"pattern": "*", "database": 5, "tag": "queues"}


@pytest.mark.parametrize("more", [["--slots", "64"], ["--topom", "http://127.0.0.1:1"]])
def test_without_topom_no_rule_was_looked_at(more: list[str]) -> None:
    result = CliRunner().invoke(app, ["slot", "of", "plain", "-o", "json", *more])
    assert result.exit_code == 0
    assert "no slot rules were looked at" in result.stderr
    found = json.loads(result.stdout)
    assert [row["function"] for row in found] == ["crc32", "crc16", "crc32c", "md5"]
    assert {row["rule"] for row in found} == {None}
