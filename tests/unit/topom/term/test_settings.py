"""topom's settings and secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from slots.reloading import Reloading
from slots.settings import SettingsError
from slots.tls import TlsError
from tests.certificates import Authority
from topom.term import stores
from topom.term.access import Access
from topom.term.settings import LEAST_SUSPECT_SECONDS, TopomSettings


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_TOPOM_REDIS_PASWORD", "geheim")
    with pytest.raises(SettingsError, match=r"did you mean SLOTFERRY_TOPOM_REDIS_PASSWORD[?]"):
        TopomSettings.load()


def test_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "topom.toml"
    config.write_text('product = "file"\ndatabases = 4\n')
    monkeypatch.setenv("SLOTFERRY_TOPOM_PRODUCT", "environment")
    monkeypatch.setenv("SLOTFERRY_TOPOM_TOKEN", "t0ken-of-16-chars")
    settings = TopomSettings.load(config)
    assert (settings.product, settings.databases) == ("environment", 4)
    assert settings.token.get_secret_value() == "t0ken-of-16-chars"
    assert "t0ken-of-16-chars" not in repr(settings)
    assert TopomSettings.load(config, product="override").product == "override"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("number_of_slots = 1000", "number_of_slots.*power of two"),
        ("number_of_slots = 32768", "power of two"),
        ('slot_function = "sha1"', "crc32, crc16"),
        ('listen = "here"', "listen.*host:port"),
        ("barrier_seconds = 0", "barrier_seconds"),
        ("rebalance_after_seconds = 4.9", "rebalance_after_seconds.*has to be at least 5"),
        ("baarrier_seconds = 1", "no setting baarrier_seconds"),
        ("x =", "not TOML"),
        ('migration_hours = "22-06"', "migration_hours.*'22' is not a time of the day"),
        ('migration_time_zone = "Europe/Atlantis"', "migration_time_zone.*no time zone 'Europe/Atlantis'"),
        ("migration_latency_goal_milliseconds = -1", "migration_latency_goal_milliseconds"),
        ("server_suspect_seconds = 6", "^Setting server_suspect_seconds: may not be larger than server_fail_seconds.$"),
        ("server_suspect_seconds = 0.9", "^Setting server_suspect_seconds: has to be 1.0 at least, because a server"),
        (
            "server_suspect_seconds = 0.5\nserver_fail_seconds = 0.9",
            "has to be 1.0 at least.*server_fail_seconds may not be smaller",
        ),
        ("server_fail_seconds = 0.9", "server_suspect_seconds: may not be larger than server_fail_seconds"),
        ('redis_user = "x"', "^Setting redis_user: needs redis_password.$"),
        ('redis_tls_key = "x"', "^Setting redis_tls_certificate: needs redis_tls_key, and the other way round.$"),
    ],
)
def test_wrong_settings_are_explained(tmp_path: Path, line: str, message: str) -> None:
    config = tmp_path / "topom.toml"
    config.write_text(line)
    with pytest.raises(SettingsError, match=message):
        TopomSettings.load(config)


def test_the_least_time_to_suspect_a_server_is_as_it_is_described() -> None:
    assert LEAST_SUSPECT_SECONDS == 1.0
    settings = TopomSettings.load(None, server_suspect_seconds=1.0, server_fail_seconds=1.0)
    assert (settings.server_suspect_seconds, settings.server_fail_seconds) == (1.0, 1.0)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        TopomSettings.load(tmp_path / "none.toml")


def test_how_topom_gets_in_at_the_servers() -> None:
    access = Access(TopomSettings.load(redis_user="me", redis_password="pw")).servers
    assert (access.login, access.tls) == (("AUTH", "me", "pw"), None)
    with pytest.raises(TlsError, match=r"nowhere\.pem cannot be read"):
        Access(TopomSettings.load(redis_tls=True, redis_tls_ca="nowhere.pem"))


def test_servers_and_sentinels_get_other_certificates_together(tmp_path: Path) -> None:
    access = Access(TopomSettings.load(redis_tls=True, sentinel_user="b", sentinel_password="pw"))
    assert (access.servers.login, access.sentinels.login) == ((), ("AUTH", "b", "pw"))
    before = access.servers.tls, access.sentinels.tls
    with pytest.raises(SettingsError, match=r"TLS with the Redis servers: nowhere\.pem cannot be read"):
        access.look(TopomSettings.load(redis_tls=True, redis_tls_ca="nowhere.pem"))
    use = access.look(TopomSettings.load(redis_tls=True, redis_tls_ca=Authority(tmp_path).file))
    assert (access.servers.tls, access.sentinels.tls) == before
    use()
    assert not {access.servers.tls, access.sentinels.tls}.intersection(before)


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ({}, {"tls_certificate": "b", "tls_key": "b", "tls_ca": "b"}, {"tls_certificate", "tls_key", "tls_ca"}),
        ({}, {"tls_ca": "b"}, set()),
        ({"tls_certificate": "a", "tls_key": "a"}, {"tls_certificate": "b", "tls_key": "b", "tls_ca": "b"}, set()),
        ({"tls_certificate": "a", "tls_key": "a", "tls_ca": "a"}, {}, {"tls_certificate", "tls_key", "tls_ca"}),
        (
            {"tls_certificate": "a", "tls_key": "a"},
            {"tls_certificate": "b", "tls_key": "a", "tls_client_ca": "b", "tls_client_certificates": "all"},
            {"tls_client_ca", "tls_client_certificates"},
        ),
        ({"redis_tls": True, "redis_tls_ca": "a"}, {"redis_tls": True, "redis_tls_ca": "b"}, set()),
        ({"redis_tls": True, "redis_tls_ca": "a"}, {}, {"redis_tls", "redis_tls_ca"}),
    ],
)
def test_files_for_tls_change_without_a_restart_unless_tls_begins_or_ends(
    before: dict[str, Any], after: dict[str, Any], waits: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "topom.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in after.items()))
    reloading = Reloading(TopomSettings.load(**before), path)
    reloading.reload()
    assert {*reloading.restart} == waits


def test_values_are_shown_but_for_secrets(tmp_path: Path) -> None:
    config = tmp_path / "topom.toml"
    config.write_text('heartbeat_seconds = -1\ntoken = ["geheim"]\nsentinels = ["h:1", 2]\n')
    with pytest.raises(SettingsError) as raised:
        TopomSettings.load(config)
    said = str(raised.value)
    assert "has to be more than 0. It is -1." in said
    named = "Setting sentinels (or SLOTFERRY_TOPOM_SENTINELS in the environment)"
    assert f"{named}: entry 2 has to be text. It is 2." in said
    assert "Setting token" in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"store": "etcd"}, "store_servers: is needed"),
        ({"store_servers": "a:1,b"}, "store_servers.*host:port"),
        ({"store_servers": "http://a:1"}, "store_servers.*host:port"),
        ({"store_servers": "a:0"}, "store_servers.*host:port"),
        ({"store_prefix": "shop"}, "store_prefix.*slash"),
        ({"store_prefix": "/shop/"}, "store_prefix.*slash"),
        ({"store_user": "me"}, "store_user: needs store_password"),
        ({"store_tls_key": "k"}, "store_tls_certificate: needs"),
        ({"leader_lease_seconds": 31}, "leader_lease_seconds"),
    ],
)
def test_a_store_that_cannot_be_reached_so(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TopomSettings.load(**settings)


def test_where_in_the_store() -> None:
    assert stores.root(TopomSettings.load(product="a shop/b")) == "/slotferry/a%20shop%2Fb"
    assert stores.root(TopomSettings.load(store_prefix="/x/y")) == "/x/y"
    assert TopomSettings.load(store_servers="a:1, [::1]:2").store_servers == "a:1,[::1]:2"
