"""topom takes no certificate of its own that it would refuse to be shown, and its own migrator shows and trusts it."""

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from migrator.process.settings import MigratorSettings
from slots import tls
from slots.settings import SettingsError
from slots.tls import TlsError
from tests.certificates import Authority
from topom.term import certificates, features
from topom.term.features import OwnMigrator
from topom.term.settings import TopomSettings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings(authority: Authority, **more: Any) -> TopomSettings:
    issued = authority.issue("topom")
    return TopomSettings.load(tls_certificate=issued.certificate, tls_key=issued.key, **more)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert certificates.served(TopomSettings.load()) is None
    assert certificates.of_own_migrator(TopomSettings.load()) == {}


@pytest.mark.parametrize("asked", ["streams", "all"])
def test_a_certificate_of_the_clients_authority_serves(authority: Authority, asked: str) -> None:
    assert certificates.served(settings(authority, tls_client_certificates=asked, tls_client_ca=authority.file))


@pytest.mark.parametrize("asked", ["streams", "all"])
def test_one_that_another_authority_has_signed_is_refused_at_the_start(
    authority: Authority, tmp_path: Path, asked: str
) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(TlsError, match=r"would refuse it: .*; have an authority of .*other\.pem sign it"):
        certificates.served(settings(authority, tls_client_certificates=asked, tls_client_ca=other.file))


def test_one_that_is_for_servers_alone_is_refused(authority: Authority) -> None:
    issued = authority.issue("topom", servers_only=True)
    files = {"tls_certificate": issued.certificate, "tls_key": issued.key}
    assert certificates.served(TopomSettings.load(**files))
    with pytest.raises(TlsError, match="clientAuth"):
        certificates.served(TopomSettings.load(**files, tls_client_certificates="all", tls_client_ca=authority.file))


def test_one_that_has_expired_is_refused(authority: Authority) -> None:
    issued = authority.issue("topom", ends=datetime.timedelta(minutes=-1))
    with pytest.raises(TlsError, match="expired"):
        certificates.served(
            TopomSettings.load(
                tls_certificate=issued.certificate,
                tls_key=issued.key,
                tls_client_certificates="all",
                tls_client_ca=authority.file,
            )
        )


def test_topom_goes_over_to_none_that_it_would_refuse(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    said = settings(authority, tls_client_certificates="all", tls_client_ca=authority.file)
    served = certificates.served(said)
    assert served is not None
    before = served.context
    foreign = Authority(tmp_path, "other").issue("foreign")
    shutil.copy(foreign.certificate, said.tls_certificate)
    shutil.copy(foreign.key, said.tls_key)
    with structlog.testing.capture_logs() as logs:
        assert served.context is before
    assert [entry["event"] for entry in logs] == ["certificates_not_loaded"]


def test_it_takes_no_other_file_that_it_would_refuse(authority: Authority, tmp_path: Path) -> None:
    said = settings(authority, tls_client_certificates="all", tls_client_ca=authority.file)
    served = certificates.served(said)
    assert served is not None
    before = served.context
    foreign = Authority(tmp_path, "other").issue("foreign")
    with pytest.raises(SettingsError, match=r"TLS of the API: .* would refuse it: .*"):
        certificates.look_at_served(
            served, said.model_copy(update={"tls_certificate": foreign.certificate, "tls_key": foreign.key})
        )
    assert served.context is before
    other = authority.issue("other-topom")
    use = certificates.look_at_served(
        served, said.model_copy(update={"tls_certificate": other.certificate, "tls_key": other.key})
    )
    assert served.context is before
    use()
    assert served.context is not before


def test_its_own_migrator_can_be_started(authority: Authority) -> None:
    said = settings(authority, tls_client_certificates="streams", tls_client_ca=authority.file)
    made = features.migrator(said, OwnMigrator("https://127.0.0.1:1", "a-token-of-the-migrator"))
    assert MigratorSettings.checked(made).topom_certificates() is not None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tls_certificate": "a"}, "needs tls_key"),
        ({"tls_key": "a"}, "needs tls_key"),
        ({"tls_client_certificates": "all"}, "needs tls_certificate, tls_key and tls_client_ca"),
        ({"tls_certificate": "a", "tls_key": "b", "tls_client_certificates": "streams"}, "and tls_client_ca"),
        ({"tls_certificate": "a", "tls_key": "b", "tls_client_ca": "c"}, "tls_client_certificates"),
        ({"tls_certificate": "a", "tls_key": "b", "url": "http://topom:8380"}, "https://"),
        ({"url": "https://topom:8380", "tls_client_certificates": "some"}, "tls_client_certificates"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        TopomSettings.load(**values)
