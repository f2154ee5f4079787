"""Where topom is, and by which certificates: as proxies and migrators are told."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import SettingsConfigDict

from migrator.process.settings import MigratorSettings
from proxy.settings import ProxySettings
from slots.reaching import ReachesTopom
from slots.reloading import Reloading
from slots.settings import SettingsError
from slots.tls import TlsError
from tests.certificates import Authority


class Reaching(ReachesTopom):
    """The settings alone."""

    model_config = SettingsConfigDict(env_prefix="SLOTFERRY_PROXY_")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"topom": "127.0.0.1:8380"}, "is not a URL"),
        ({"topom": "https://"}, "is not a URL"),
        ({"topom": "https://t", "topom_tls_certificate": "a"}, "needs topom_tls_key"),
        ({"topom": "https://t", "topom_tls_key": "a"}, "needs topom_tls_key"),
        ({"topom_tls_ca": "a"}, "needs URLs with https://"),
        (
            {"topom": "http://a,http://b", "topom_tls_certificate": "a", "topom_tls_key": "b"},
            "needs URLs with https://",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Reaching.load(**values)


def test_certificates_are_made_where_a_url_needs_them(tmp_path: Path) -> None:
    assert Reaching.load().topom_certificates() is None
    authority = Authority(tmp_path)
    # While a cluster goes over to TLS, topoms are known by both.
    both = Reaching.load(topom="http://a:1/,https://a:1/", topom_tls_ca=authority.file)
    assert both.topom == ["http://a:1", "https://a:1"]
    assert both.topom_certificates() is not None


@pytest.mark.parametrize("kind", [ProxySettings, MigratorSettings])
@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ({}, {"topom": "https://t", "topom_tls_ca": "b"}, {"topom", "topom_tls_ca"}),
        ({"topom": "https://t", "topom_tls_ca": "a"}, {"topom": "https://t,https://u"}, {"topom"}),
        ({"topom": "https://t", "topom_tls_ca": "a"}, {}, {"topom", "topom_tls_ca"}),
        ({"redis_tls_ca": "a"}, {"redis_tls": "true", "redis_tls_ca": "b"}, {"redis_tls", "redis_tls_ca"}),
        ({"redis_tls": "true", "redis_tls_ca": "a"}, {"redis_tls": "true", "redis_tls_ca": "b"}, set()),
    ],
)
def test_files_change_without_a_restart_unless_tls_begins_or_ends(
    kind: type[ReachesTopom], before: dict[str, str], after: dict[str, str], waits: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in after.items()))
    reloading = Reloading(kind.load(**before), path)
    reloading.reload()
    assert {*reloading.restart} == waits


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.pem"
    with pytest.raises(TlsError, match=r"no\.pem cannot be read"):
        Reaching.load(topom="https://t", topom_tls_ca=str(missing)).topom_certificates()


@pytest.mark.parametrize("kind", [ProxySettings, MigratorSettings])
@pytest.mark.parametrize("token", ["the-secret\nof-two-lines", "the secret", "the-secr\u00e9t", "the-secret\x7f"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(kind: type[ReachesTopom], token: str) -> None:
    """The library that sends it would show it in an error."""
    with pytest.raises(SettingsError, match="Setting token") as refused:
        kind.checked({"token": token})
    assert "secr" not in str(refused.value)
