"""Which users may log in, and what is said about users that cannot be used."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy import users as module
from proxy.settings import ProxySettings
from proxy.users import Users
from slots import commands
from slots.messages.load import MOST_LIMITED
from slots.settings import SettingsError


def users(password: str = "", *entries: dict[str, Any]) -> Users:
    settings = ProxySettings.load(password=password, users=list(entries))
    return Users(settings.users, settings.password)


def test_without_users_and_password_everybody_is_the_default_user() -> None:
    known = users()
    assert known.anonymous is known.default is not None
    assert known.anonymous.unlimited
    assert not known.wants_default_password
    assert known.authenticate(b"default", b"whatever") is known.default


def test_with_a_password_nobody_gets_in_without() -> None:
    known = users("secret")
    assert known.anonymous is None
    assert known.wants_default_password
    assert known.authenticate(b"default", b"secret") is known.default
    assert known.authenticate(b"default", b"Secret") is None
    assert known.authenticate(b"default", b"") is None


def test_other_users_turn_the_default_user_off() -> None:
    known = users("", {"name": "app", "password": "pw"})
    assert known.anonymous is known.default is None
    assert not known.wants_default_password
    assert known.authenticate(b"default", b"") is None


def test_a_default_user_among_the_users_may_be_anonymous_and_limited() -> None:
    known = users("", {"name": "app", "password": "pw"}, {"name": "default", "no_password": True, "read_only": True})
    assert known.anonymous is known.default is not None
    assert {"SET", "EVAL", "PUBLISH"} <= known.anonymous.refused
    assert not {"GET", "EVAL_RO", "AUTH"} & known.anonymous.refused
    assert not known.anonymous.unlimited


def test_a_digest_is_as_good_as_the_password() -> None:
    digest = hashlib.sha256(b"geheim").hexdigest()
    known = users("", {"name": "app", "password_sha256": digest.upper(), "databases": [0, 3]})
    user = known.authenticate(b"app", b"geheim")
    assert user is not None
    assert known.authenticate(b"app", digest.encode()) is None
    assert [database for database in range(5) if user.may_use(database)] == [0, 3]


@pytest.mark.parametrize("name", [b"app", b"nobody", b"open", b"\xff\x00"])
def test_every_attempt_compares_once_and_in_constant_time(monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    known = users("", {"name": "app", "password": "pw"}, {"name": "open", "no_password": True})
    compared: list[tuple[int, int]] = []
    constant_time = hmac.compare_digest

    def compare(given: bytes, expected: bytes) -> bool:
        compared.append((len(given), len(expected)))
        return constant_time(given, expected)

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    for password in (b"", b"pw", b"x" * 1000):
        known.authenticate(name, password)
    assert compared == [(32, 32)] * 3


def test_users_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(
        '[[users]]\nname = "app"\npassword = "pw"\ndatabases = [1]\n[[users]]\nname = "b"\npassword = "c"\n'
    )
    settings = ProxySettings.load(path)
    assert [user.name for user in settings.users] == ["app", "b"]
    assert ProxySettings.from_wire(json.loads(json.dumps(settings.to_wire()))) == settings


def test_users_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_PROXY_USERS", '[{"name": "app", "password": "geheim", "read_only": true}]')
    settings = ProxySettings.load()
    assert settings.users[0].read_only
    assert "geheim" not in repr(settings)
    assert Users(settings.users, settings.password).authenticate(b"app", b"geheim") is not None


def test_what_is_not_json_in_the_environment_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_PROXY_USERS", "[{name: geheim}]")
    with pytest.raises(SettingsError) as raised:
        ProxySettings.load()
    assert str(raised.value) == (
        "Setting users (or SLOTFERRY_PROXY_USERS in the environment): the variable, or its file, is not JSON."
    )
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ([{"name": "a b", "password": "geheim"}], "entry 1 name: it consists of 1 to 128 printable ASCII characters"),
        ([{"name": "ok", "password": "x"}, {"name": "a"}], "entry 2: user a: give one of password, password_sha256"),
        ([{"name": "a", "password": "geheim", "no_password": True}], "entry 1: user a: give one of password"),
        ([{"name": "a", "password_sha256": "geheim"}], "entry 1 password_sha256: it has to be 64 hexadecimal digits"),
        ([{"name": "a", "password": "geheim", "databases": []}], "entry 1 databases has to have 1 entry at least"),
        ([{"name": "a", "password": "geheim", "databases": [-1]}], "entry 1 databases 0 has to be at least 0"),
        ([{"name": "a", "password": "geheim", "readonly": 1}], "entry 1 readonly is not known"),
        ([{"password": "geheim"}], "entry 1 name has to be given"),
        ({"name": "a", "password": "geheim"}, "it has to be a list: in a file, each entry begins with [[users]]"),
        ([{"name": "a", "password": "geheim", "listen": "h:1"}], "entry 1 has listen, which is a setting; in a file"),
        ("geheim", "Setting users (or SLOTFERRY_PROXY_USERS in the environment) has to be a list"),
        ([{"name": "a", "password": "1"}, {"name": "a", "password": "2"}], "users: two of them have the same name"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(entries: Any, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        ProxySettings.load(users=entries)
    assert sentence in str(raised.value)
    assert "geheim" not in str(raised.value)


def test_users_that_are_no_list_are_not_shown() -> None:
    with pytest.raises(SettingsError, match="Setting users") as raised:
        ProxySettings.load(users="app:geheim")
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"requests_per_second": 0}, "requests_per_second"),
        ({"bytes_per_second": 10**12 + 1}, "bytes_per_second"),
        ({"over_limit": "drop"}, "'delay' or 'refuse'"),
    ],
)
def test_limits_that_cannot_be_used(limits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        users("", {"name": "app", "password": "p", **limits})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "it names no command; write false, true, or words such as \\+@slow -get"),
        ("-@all", "it names no command"),
        ("+@slow ~x", "it has words about commands only"),
        ("+@all &*", "it has words about commands only"),
        ("true", "'true' is no rule"),
        ("+nothing", "names no command"),
    ],
)
def test_words_that_do_not_say_which_commands_give_way(words: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        users("", {"name": "app", "password": "p", "sheddable": words})


def test_which_commands_give_way() -> None:
    def found(sheddable: bool | str) -> list[bool]:
        user = users("", {"name": "app", "password": "p", "sheddable": sheddable}).find("app")
        assert user is not None
        rows = [commands.table()[name] for name in ("GET", "LRANGE", "SORT")]
        return [user.sheddable is not None and user.sheddable.allows(row) for row in rows]

    assert found(False) == [False, False, False]
    assert found(True) == [True, True, True]
    assert found("+@slow -sort") == [False, True, False]
    assert found("+@all -@fast") == [False, True, True]


def test_so_many_users_may_have_limits() -> None:
    many = [{"name": f"user{number}", "no_password": True, "requests_per_second": 1} for number in range(MOST_LIMITED)]
    users("", *many, {"name": "free", "no_password": True})
    limits = "requests_per_second, bytes_per_second or worker_percent"
    with pytest.raises(SettingsError, match=f"users: 1000 at most may have {limits}"):
        users("", *many, {"name": "heavy", "no_password": True, "bytes_per_second": 1})


def test_so_many_users_may_have_a_limit_of_connections() -> None:
    many = [{"name": f"user{number}", "no_password": True, "connections": 1} for number in range(MOST_LIMITED)]
    users("", *many, {"name": "heavy", "no_password": True, "bytes_per_second": 1})
    with pytest.raises(SettingsError, match="users: 1000 at most may have connections; leave some out"):
        users("", *many, {"name": "more", "no_password": True, "connections": 1})


def test_two_passwords_for_the_default_user() -> None:
    with pytest.raises(SettingsError, match="password: it is that of the user default, who is among the users too"):
        users("a", {"name": "default", "password": "b"})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"listen": ""}, "listen: may not be empty if tls_listen and unix_socket are"),
        ({"tls_listen": "h:1"}, "tls_listen: needs tls_certificate and tls_key"),
        ({"tls_client_certificates": "required"}, "tls_client_certificates: needs tls_client_ca"),
        ({"redis_tls_certificate": "x"}, "redis_tls_certificate: needs redis_tls_key"),
        ({"redis_user": "x"}, "redis_user: needs redis_password"),
        ({"unix_socket_permissions": "0x1"}, "Setting unix_socket_permissions"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence.replace("(", r"\(")):
        ProxySettings.load(**settings)


def test_places_other_than_the_plain_one_are_enough() -> None:
    assert ProxySettings.load(listen="", unix_socket="/tmp/s").listen == ""


def test_a_user_with_a_prefix_has_rights_to_nothing_else() -> None:
    known = users("", {"name": "shop", "password": "pw", "prefix": "shop:", "admin": True})
    user, same, other = (
        Users(ProxySettings.load(users=[{"name": "shop", "password": "pw", **fields}]).users, SecretStr("")).find(
            "shop"
        )
        for fields in ({"prefix": "shop:"}, {"prefix": "shop:"}, {"prefix": "other:"})
    )
    assert user is not None
    assert same is not None
    assert other is not None
    assert user.prefix == b"shop:"
    assert not user.unlimited
    assert user.proves_scripts
    assert user.may_as_much(same)
    assert not user.may_as_much(other)
    assert user.rights.allows_key(b"shop:a", 3)
    assert not user.rights.allows_key(b"shop", 3)
    assert {"FLUSHALL", "FCALL", "CLIENT|LIST", "RANDOMKEY"} <= user.refused
    assert not {"CLIENT|TRACKING", "CLUSTER|SLOTS", "SORT"} & user.refused
    administrator = known.find("shop")
    assert administrator is not None
    assert {"CLIENT|LIST", "SLOWLOG|GET", "ACL|LIST", "CONFIG|GET"} <= administrator.refused
