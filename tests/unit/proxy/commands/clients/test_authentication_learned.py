"""A command that the proxy has learned is refused to limited users by its container's and its own properties."""

import pytest

from proxy.users import User
from slots import commands, learned
from slots.users import UserSettings

ENTRIES = [
    ["script", -2, [], 0, 0, 0, [], [], [], [["script|show", 3, ["noscript"], 0, 0, 0, ["@slow"], [], [], []]]],
    ["json.get", -2, ["readonly"], 1, 1, 1, ["@read", "@slow", "@json"], [], [], []],
    ["json.set", -2, ["write"], 1, 1, 1, ["@write", "@slow", "@json"], [], [], []],
    ["json.purge", -2, ["write", "admin"], 1, 1, 1, ["@write"], [], [], []],
]


def refused(name: str, **settings: object) -> str:
    """Of the command that is refused."""
    known = commands.table()
    new = learned.missing(known, learned.rows(ENTRIES, {"SCRIPT|SHOW"}))
    argv = [*name.encode().split(b"|"), b"app:1"]
    user = User(UserSettings.model_validate({"name": "u", "password": "p", **settings}))
    found = user.refusal(commands.find(argv, known | new), argv)
    return found.of if found is not None else ""


@pytest.mark.parametrize(
    ("name", "settings", "of"),
    [
        ("SCRIPT|SHOW", {"databases": [0]}, "command"),
        ("SCRIPT|SHOW", {}, ""),
        ("JSON.SET", {"read_only": True}, "command"),
        ("JSON.GET", {"read_only": True}, ""),
        ("JSON.PURGE", {"admin": False}, "command"),
        ("JSON.GET", {"rules": "~* +json.get"}, ""),
        ("JSON.SET", {"rules": "~* +json.get"}, "command"),
        ("JSON.SET", {"rules": "~* +@all -json.set"}, "command"),
        ("JSON.SET", {"rules": "~* +@write"}, ""),
        ("JSON.GET", {"rules": "~other +@all"}, "key"),
        ("JSON.GET", {"rules": "%R~app:* +@all"}, ""),
        ("JSON.SET", {"rules": "%W~app:* +@all"}, "key"),
        ("JSON.SET", {"rules": "~app:* +@all"}, ""),
    ],
)
def test_learned_commands(name: str, settings: dict[str, object], of: str) -> None:
    assert refused(name, **settings) == of
