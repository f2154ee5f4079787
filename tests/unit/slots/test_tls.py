"""Contexts that follow their files, and the errors for files that cannot be used."""

import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slots import tls
from slots.access import ServerAccess, ServerTls
from slots.tls import Certificates, TlsError, client_context, server_context
from tests.certificates import Authority, Issued


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets time pass until files are looked at again."""
    passed = 0.0

    def later() -> None:
        nonlocal passed
        passed += tls.LOOK_SECONDS

    began = tls.time.monotonic()
    monkeypatch.setattr(tls.time, "monotonic", lambda: began + passed)
    yield later
    monkeypatch.undo()


def shown(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> str:
    """Shake hands; the subject of the certificate that the server shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    connecting = client.wrap_bio(to_client, to_server, server_hostname=host)
    left = [connecting, accepting]
    for _ in range(10):
        for side in list(left):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(side)
    assert not left
    certificate = connecting.getpeercert()
    assert certificate is not None
    return str(certificate["subject"][0][0][1])


def served(issued: Issued) -> Certificates:
    return Certificates(
        (issued.certificate, issued.key), lambda: server_context(issued.certificate, issued.key, "", "none")
    )


def test_new_handshakes_use_the_new_certificate(authority: Authority, looks: Callable[[], None]) -> None:
    issued = authority.issue("first", file="server")
    client = client_context(authority.file, "", "", verify_host=True)
    certificates = served(issued)
    assert shown(certificates.context, client) == "first"
    authority.issue("second", file="server")
    # Not looked at yet.
    assert shown(certificates.context, client) == "first"
    looks()
    with capture_logs() as logged:
        assert shown(certificates.context, client) == "second"
    assert [entry["event"] for entry in logged] == ["certificates_loaded"]


def test_other_files_are_followed_and_while_they_are_broken_the_former_context_is_kept(
    authority: Authority, looks: Callable[[], None]
) -> None:
    client = client_context(authority.file, "", "", verify_host=True)
    certificates = served(authority.issue("first"))

    def follow(issued: Issued) -> list[str]:
        with capture_logs() as logged:
            certificates.follow(
                (issued.certificate, issued.key), lambda: server_context(issued.certificate, issued.key, "", "none")
            )
        return [entry["event"] for entry in logged]

    second = authority.issue("second")
    assert follow(second) == ["certificates_loaded"]
    assert follow(second) == []
    assert shown(certificates.context, client) == "second"
    third = authority.issue("third")
    Path(third.certificate).write_text("not a certificate")
    assert follow(third) == ["certificates_not_loaded"]
    assert shown(certificates.context, client) == "second"
    authority.issue("mended", file="third")
    looks()
    assert shown(certificates.context, client) == "mended"


def test_a_look_at_other_files_changes_nothing_before_they_are_taken(
    authority: Authority, looks: Callable[[], None]
) -> None:
    client = client_context(authority.file, "", "", verify_host=True)
    certificates = served(authority.issue("first"))

    def look(issued: Issued) -> Callable[[], None]:
        return certificates.look(
            (issued.certificate, issued.key), lambda: server_context(issued.certificate, issued.key, "", "none")
        )

    second, third = authority.issue("second"), authority.issue("third")
    Path(third.key).write_text("not a key")
    with pytest.raises(TlsError, match=r"third\.key cannot be used"):
        look(third)
    use = look(second)
    looks()
    assert shown(certificates.context, client) == "first"
    # They are used as they were when they were found good, and followed from then on.
    Path(second.certificate).write_text("half")
    with capture_logs() as logged:
        use()
        looks()
        assert shown(certificates.context, client) == "second"
    assert [entry["event"] for entry in logged] == ["certificates_loaded", "certificates_not_loaded"]
    look(second)()  # the same files as now may be half renewed
    authority.issue("renewed", file="second")
    looks()
    assert shown(certificates.context, client) == "renewed"


def test_a_broken_file_is_logged_once_and_the_old_one_kept(authority: Authority, looks: Callable[[], None]) -> None:
    issued = authority.issue("first", file="server")
    client = client_context(authority.file, "", "", verify_host=True)
    certificates = served(issued)
    Path(issued.certificate).write_text("not a certificate")
    with capture_logs() as logged:
        for _ in range(3):
            looks()
            assert shown(certificates.context, client) == "first"
    assert [(entry["event"], entry["log_level"]) for entry in logged] == [("certificates_not_loaded", "error")]
    assert issued.certificate in logged[0]["reason"]
    authority.issue("second", file="server")
    looks()
    assert shown(certificates.context, client) == "second"


def test_a_certificate_that_came_before_its_key_is_read_again_with_it(
    authority: Authority, looks: Callable[[], None]
) -> None:
    issued = authority.issue("first", file="server")
    client = client_context(authority.file, "", "", verify_host=True)
    certificates = served(issued)
    renewed = authority.issue("second", file="renewed")
    os.replace(renewed.certificate, issued.certificate)
    looks()
    assert shown(certificates.context, client) == "first"
    os.replace(renewed.key, issued.key)
    looks()
    assert shown(certificates.context, client) == "second"


def test_a_file_that_is_gone_for_a_while(authority: Authority, looks: Callable[[], None]) -> None:
    issued = authority.issue("first", file="server")
    certificates = served(issued)
    before = certificates.context
    Path(issued.key).unlink()
    looks()
    assert certificates.context is before


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda issued: Path(issued.key).unlink(), "server.key cannot be read: No such file or directory"),
        (lambda issued: Path(issued.certificate).write_text("x"), "server.crt with the key in .*server.key cannot be"),
        (lambda issued: Path(issued.key).write_text("x"), "cannot be used"),
    ],
)
def test_what_is_wrong_is_said(authority: Authority, spoil: Callable[[Issued], None], sentence: str) -> None:
    issued = authority.issue("server")
    spoil(issued)
    with pytest.raises(TlsError, match=sentence):
        server_context(issued.certificate, issued.key, "", "none")


def test_nobody_is_asked_for_a_password_of_a_key(authority: Authority) -> None:
    issued = authority.issue("server", password=b"geheim")
    with pytest.raises(TlsError, match=r"server\.key is protected by a password"):
        server_context(issued.certificate, issued.key, "", "none")


def test_authorities_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("")
    with pytest.raises(TlsError, match=r"the certificates in .*empty\.pem cannot be used"):
        client_context(str(path), "", "", verify_host=True)


@pytest.mark.parametrize(("verify_host", "host"), [(True, "127.0.0.1"), (False, "127.0.0.2")])
def test_whom_a_client_trusts(authority: Authority, tmp_path: Path, verify_host: bool, host: str) -> None:
    server = served(authority.issue("server")).context
    assert shown(server, client_context(authority.file, "", "", verify_host), host) == "server"
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(server, client_context(stranger.file, "", "", verify_host), host)


def test_the_host_is_looked_at(authority: Authority) -> None:
    server = served(authority.issue("server")).context
    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.2"):
        shown(server, client_context(authority.file, "", "", verify_host=True), "127.0.0.2")


def test_old_versions_are_not_spoken(authority: Authority) -> None:
    server = served(authority.issue("server")).context
    client = client_context(authority.file, "", "", verify_host=True)
    assert client.minimum_version is server.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("access", "login"),
    [
        (ServerAccess(), ()),
        (ServerAccess("pw"), ("AUTH", "pw")),
        (ServerAccess("pw", "me"), ("AUTH", "me", "pw")),
    ],
)
def test_logins(access: ServerAccess, login: tuple[str, ...]) -> None:
    assert access.login == login
    assert access.tls is None


def test_access_with_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="cannot be read"):
        ServerAccess(tls=ServerTls(authorities=str(tmp_path / "none.pem")))
