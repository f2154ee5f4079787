"""Who speaks another protocol than topom understands is told what to upgrade, whatever else it says."""

import json
from typing import Any

import pytest

from slots.messages import control, copies, protocol
from slots.messages.message import encode
from slots.version import program_version

ID = "1" * 32
REGISTER = control.Register(instance=ID, address="a:1", hostname="h", pid=1, workers=1, version="1.5", epoch=0)
MIGRATOR = copies.RegisterMigrator(instance=ID, hostname="h", pid=1, version="1.5")


@pytest.mark.parametrize("message", [REGISTER, MIGRATOR])
def test_ours_is_understood(message: control.Register | copies.RegisterMigrator) -> None:
    assert message.protocol == protocol.SPOKEN
    protocol.check(encode(message), "proxy")


def test_older_ones_are_understood_as_far_as_topom_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "SPOKEN", 5)
    monkeypatch.setattr(protocol, "OLDEST", 3)
    for number in (3, 4, 5):
        protocol.check(json.dumps({"type": "register", "protocol": number}), "proxy")
    with pytest.raises(protocol.OtherProtocol, match=r"understands protocol 3 to 5: upgrade the proxy$"):
        protocol.check('{"type": "register", "protocol": 2}', "proxy")
    with pytest.raises(protocol.OtherProtocol, match=r"understands protocol 3 to 5: upgrade the topoms first$"):
        protocol.check('{"type": "register", "protocol": 6}', "proxy")


@pytest.mark.parametrize(
    ("said", "speaks", "remedy"),
    [
        ({"protocol": 2}, "protocol 2", "upgrade the topoms first"),
        ({"protocol": 0}, "protocol 0", "upgrade the migrator"),
        ({"protocol": -1}, "protocol -1", "upgrade the migrator"),
        ({"protocol": True}, "protocol True", "upgrade the migrator"),
        ({"protocol": "x" * 100}, "protocol " + "x" * 20, "upgrade the migrator"),
        ({}, "a protocol without a number", "upgrade the migrator"),
    ],
)
def test_another_one_is_refused(said: dict[str, Any], speaks: str, remedy: str) -> None:
    """given that its other fields are unknown too."""
    text = json.dumps({"type": "register_migrator", "version": "1.5", "other": [], **said})
    with pytest.raises(protocol.OtherProtocol) as caught:
        protocol.check(text, "migrator")
    here = f"this topom (version {program_version()}) understands protocol 1"
    assert str(caught.value) == f"the migrator (version 1.5) speaks {speaks}, and {here}: {remedy}"


@pytest.mark.parametrize("text", ["nonsense", "[]", "1", '{"type": "heartbeat"}', "{}", ""])
def test_what_is_no_registration_is_left_to_who_reads_it(text: str) -> None:
    protocol.check(text, "proxy")
