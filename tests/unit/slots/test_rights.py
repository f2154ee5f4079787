"""Rules of Redis's ACL as words: what they give, and what is said about words that are none."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from proxy.settings import ProxySettings
from proxy.users import User
from slots import commands
from slots.commands import Right
from slots.rights import EVERYTHING, RulesError, _last, parse
from slots.settings import SettingsError
from slots.users import UserSettings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("+nosuch", "'+nosuch' names no command"),
        ("+config|nosuch", "'+config|nosuch' names no command"),
        ("-@nosuch", "'-@nosuch' names no category of commands; ACL CAT lists them"),
        ("+select|0", "'+select|0' limits an argument, which is not known here; use databases"),
        ("~* ~a", "'~a' follows ~* or allkeys, and has no effect; leave one out"),
        ("allchannels &a", "'&a' follows &* or allchannels, and has no effect; leave one out"),
        ("%X~a", "'%X~a' is no pattern of keys: use %R~pattern, %W~pattern or %RW~pattern"),
        ("%~a", "'%~a' is no pattern of keys"),
        ("%R", "'%R' is no pattern of keys"),
        (">geheim", "passwords are no rules; use password or password_sha256"),
        ("nopass", "'nopass' is not one of the rules; use no_password = true"),
        ("off", "'off' is not one of the rules; leave the user out to turn it off"),
        ("(+get ~a)", "'(+get' begins a selector, and selectors are not known here; make another user"),
        ("get", "'get' is no rule of Redis's ACL"),
    ],
)
def test_what_is_no_rule_is_said(text: str, sentence: str) -> None:
    with pytest.raises(RulesError) as raised:
        parse(text)
    assert str(raised.value).startswith(sentence)
    with pytest.raises(SettingsError) as refused:
        ProxySettings.load(users=[{"name": "a", "password": "p", "rules": text}])
    assert sentence in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ("-@all", "", "")),
        (EVERYTHING, ("+@all", "~*", "&*")),
        ("AllKeys allchannels allcommands", ("+@all", "~*", "&*")),
        ("~a resetkeys ~b &x resetchannels &y", ("-@all", "~b", "&y")),
        ("%r~a %W~a %wr~b", ("-@all", "~a ~b", "")),
        ("%W~a ~a", ("-@all", "~a", "")),
        ("+GET -@All +Get +@read -get +json.get", ("-@all +@read -get +json.get", "", "")),
        ("+@all -config +config|get", ("+@all -config +config|get", "", "")),
    ],
)
def test_words_as_they_are_shown(text: str, shown: tuple[str, str, str]) -> None:
    rights = parse(text)
    assert (rights.commands_shown, rights.keys_shown, rights.channels_shown) == shown


def allowed(**settings: object) -> set[str]:
    user = User(UserSettings.model_validate({"name": "u", "password": "p", **settings}))
    return commands.table().keys() - user.refused


def steps(work: Callable[[], object]) -> int:
    """How much it does, whatever the speed of the machine."""
    count = 0

    def count_one(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return count_one

    before = sys.gettrace()
    sys.settrace(count_one)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def many(form: str, number: int) -> str:
    return " ".join(form.format(one) for one in range(number))


@pytest.mark.parametrize("form", ["+m.{}", "-m.{}", "~{}", "%R~{}", "&{}"])
def test_the_time_that_rules_take_grows_with_their_length_and_no_faster(form: str) -> None:
    few, more = (steps(partial(parse, many(form, number))) for number in (300, 600))
    assert 300 < few < more < 2.2 * few


def test_many_words_are_not_looked_at_for_each_command() -> None:
    few, more = (parse(f"+get {many('-m.{}', number)}") for number in (300, 600))
    rows = commands.table().values()
    assert [row.name for row in rows if more.allows(row)] == [row.name for row in rows if few.allows(row)]
    _last.cache_clear()
    less, most = (steps(lambda: [few.allows(row) for row in rows]), steps(lambda: [more.allows(row) for row in rows]))
    assert most - less < 300 * len(rows), "a step for each word at each command would be more"


def test_the_fields_mean_what_the_table_says() -> None:
    table = commands.table()
    everything = table.keys()
    administering = {name for name, row in table.items() if "admin" in row.flags or Right.ADMIN in row.rights}
    assert allowed() == everything
    assert allowed(admin=False) == everything - administering
    assert allowed(read_only=True, admin=True) == {name for name, row in table.items() if not row.writes}
    assert allowed(databases=[0], admin=True) == {
        name for name, row in table.items() if Right.DATABASES not in row.rights
    }
    assert (
        allowed(databases=[0], read_only=True)
        == {name for name, row in table.items() if not row.writes and Right.DATABASES not in row.rights} - administering
    )


def test_fields_give_nothing_that_rules_withhold() -> None:
    free = {"AUTH", "HELLO", "QUIT", "RESET"}
    for fields in ({}, {"admin": True}, {"admin": False}, {"read_only": True}, {"databases": [1]}):
        assert allowed(rules="~* &*", **fields) == free
        assert allowed(rules="~* &* +get +set", **fields) <= free | {"GET", "SET"}


@pytest.mark.parametrize(
    ("addresses", "peer", "let_in"),
    [
        (["10.0.0.0/8"], "10.1.2.3:5", True),
        (["10.0.0.0/8"], "11.1.2.3:5", False),
        (["10.0.0.0/8"], "[::ffff:10.1.2.3]:5", True),
        (["fd00::/8", "::1"], "[fd00::2]:5", True),
        (["fd00::/8", "::1"], "[::1]:5", True),
        (["fd00::/8", "::1"], "[fe80::1%eth0]:5", False),
        (["0.0.0.0/0", "::/0"], "/run/slotferry.sock", False),
        (["0.0.0.0/0"], "", False),
        (None, "/run/slotferry.sock", True),
    ],
)
def test_where_a_user_comes_from(addresses: list[str] | None, peer: str, let_in: bool) -> None:
    user = User(UserSettings(name="u", no_password=True, addresses=addresses))
    assert user.may_come_from(peer) is let_in


@pytest.mark.parametrize("text", ["10.0.0.1/8", "example.com", "", "10.0.0.0/33", "10.0.0.1:5"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(SettingsError, match="is neither an IP address nor a network such as"):
        ProxySettings.load(users=[{"name": "a", "password": "p", "addresses": [text]}])


@pytest.mark.parametrize("text", ["::ffff:10.0.0.1", "::ffff:10.0.0.0/104"])
def test_an_address_of_ipv4_is_written_as_one(text: str) -> None:
    with pytest.raises(SettingsError, match="is of addresses of IPv4"):
        ProxySettings.load(users=[{"name": "a", "password": "p", "addresses": [text]}])
