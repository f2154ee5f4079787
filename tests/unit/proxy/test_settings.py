from pathlib import Path

import pytest

from proxy.settings import ProxySettings
from slots.reloading import Reloading
from slots.settings import SettingsError


def write(folder: Path, text: str) -> Path:
    path = folder / "proxy.toml"
    path.write_text(text)
    return path


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, 'listen = "127.0.0.1:1000"\nworkers = 3\ntopom = ["http://a:1"]\n')
    monkeypatch.setenv("SLOTFERRY_PROXY_WORKERS", "5")
    monkeypatch.setenv("SLOTFERRY_PROXY_TOPOM", "http://b:1, https://c:2/")
    settings = ProxySettings.load(config)
    assert (settings.listen, settings.workers) == ("127.0.0.1:1000", 5)
    assert settings.topom == ["http://b:1", "https://c:2"]


def test_overrides_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_PROXY_WORKERS", "5")
    assert ProxySettings.load(workers=2).workers == 2


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were ignored, the proxy would be open to everybody."""
    monkeypatch.setenv("SLOTFERRY_PROXY_PASWORD", "geheim")
    with pytest.raises(SettingsError, match=r"PASWORD .* did you mean SLOTFERRY_PROXY_PASSWORD[?]") as told:
        ProxySettings.load(token="t")
    assert "geheim" not in str(told.value)


def test_an_empty_variable_turns_metrics_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_PROXY_METRICS", "")
    assert ProxySettings.load().metrics == ""


def test_wire_form_round_trips_with_secrets() -> None:
    settings = ProxySettings.load(token="geheim", password="pw", topom=["http://a:1"])
    wire = settings.to_wire()
    assert wire["token"] == "geheim"
    assert ProxySettings.from_wire(wire) == settings


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(ProxySettings.load(token="geheim", password="geheim", redis_password="geheim"))


def test_no_workers_means_one_for_each_core() -> None:
    assert ProxySettings.load(workers=0).worker_count >= 1
    assert ProxySettings.load(workers=7).worker_count == 7


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("workers = -1", "Setting workers (or SLOTFERRY_PROXY_WORKERS in the environment) has to be at least 0"),
        ('listen = "6380"', "Setting listen (or SLOTFERRY_PROXY_LISTEN in the environment): '6380' is not host:port"),
        ('listen = ""', "Setting listen: may not be empty"),
        ('listen = "h:70000"', "'70000' is not a port within 0-65535"),
        ('metrics = "::1:80"', "an IPv6 address is written in brackets"),
        ("topom = []", "Setting topom"),
        ('topom = ["localhost:8380"]', "'localhost:8380' is not a URL such as http://127.0.0.1:8380"),
        ('lisen = "h:1"', "There is no setting lisen; did you mean listen?"),
        ("drain_seconds = inf", "has to be a finite number"),
        ("lock_hold_seconds = 0", "has to be more than 0"),
        ('log_level = "loud"', "'debug', 'info', 'warning' or 'error'"),
        ("session_max_request_bytes = 4_294_967_296", "has to be less than 4294967296"),
        ("session_output_limit_bytes = 1", "Setting session_output_pause_bytes: may not be larger than"),
        ("backend_retry_seconds_min = 3", "Setting backend_retry_seconds_min: may not be larger than"),
        ('cluster_announce_host = "a b"', "Setting cluster_announce_host: has to be a host name or an address"),
        ('cluster_announce_host = "[::1]"', "Setting cluster_announce_host: has to be a host name or an address"),
        ('cluster_announce_host = "h:6380"', "Setting cluster_announce_host: has to be a host name or an address"),
        ("workers = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        ProxySettings.load(write(tmp_path, text))
    assert sentence in str(raised.value)


def test_all_errors_come_together_and_without_secrets(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        ProxySettings.load(write(tmp_path, 'workers = -1\nmax_clients = 0\ntoken = ["geheim"]\n'))
    message = str(raised.value)
    assert len(message.splitlines()) == 3
    assert "geheim" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml cannot be read: No such file"):
        ProxySettings.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ({"listen": ""}, {"listen": ""}, set()),
        ({}, {"tls_listen": "h:2"}, {"tls_listen", "tls_certificate", "tls_key"}),
        ({"tls_listen": "h:2"}, {"tls_listen": "h:2"}, set()),
        (
            {"tls_listen": "h:2"},
            {"tls_listen": "h:2", "tls_client_certificates": "required", "tls_client_ca": "c"},
            {"tls_client_certificates", "tls_client_ca"},
        ),
    ],
)
def test_files_for_clients_change_without_a_restart_unless_tls_begins_or_is_asked_for(
    before: dict[str, str], after: dict[str, str], waits: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "proxy.toml"
    places = {"unix_socket": "/tmp/s", "tls_key": "k"}
    said = {**places, **after, "tls_certificate": "after"}
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in said.items()))
    begun = {**places, **before, "tls_certificate": "before"}
    if "tls_listen" not in begun:
        begun = {**begun, "tls_key": "former"}
    reloading = Reloading(ProxySettings.load(**begun), path)
    changed = {*reloading.reload()}
    assert {*reloading.restart} == waits
    assert ("tls_certificate" in changed) == ("tls_certificate" not in waits)
