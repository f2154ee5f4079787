"""How a process logs in at a server, and which certificates its connections trust and show."""

from pathlib import Path

import pytest

from slots.access import ServerAccess, ServerTls
from slots.cancelling import HeedingConnection, HeedingTlsConnection
from slots.tls import TlsError
from tests.certificates import Authority


@pytest.mark.parametrize(
    ("access", "login"),
    [
        (ServerAccess(), ()),
        (ServerAccess("secret"), ("AUTH", "secret")),
        (ServerAccess("secret", "ada"), ("AUTH", "ada", "secret")),
        (ServerAccess("", "ada"), ()),
    ],
)
def test_the_command_that_logs_in(access: ServerAccess, login: tuple[str, ...]) -> None:
    assert access.login == login


def test_a_client_in_the_clear_speaks_resp2_unless_it_is_told_otherwise() -> None:
    pool = ServerAccess("secret", "ada").client("h", 1).connection_pool
    assert pool.connection_class is HeedingConnection
    assert {name: pool.connection_kwargs[name] for name in ("host", "port", "username", "password", "protocol")} == {
        "host": "h",
        "port": 1,
        "username": "ada",
        "password": "secret",
        "protocol": 2,
    }
    assert ServerAccess().client("h", 1, protocol=3).connection_pool.connection_kwargs["protocol"] == 3
    assert ServerAccess().tls is None


def test_a_connection_over_tls_has_our_context(tmp_path: Path) -> None:
    access = ServerAccess(tls=ServerTls(authorities=Authority(tmp_path).file))
    pool = access.client("h", 1).connection_pool
    assert issubclass(pool.connection_class, HeedingTlsConnection)
    connection = pool.make_connection()
    assert isinstance(connection, HeedingTlsConnection)
    assert connection.ssl_context is not None
    assert connection.ssl_context.get() is access.tls
    assert access.tls is not None
    assert access.tls.check_hostname


def test_files_that_cannot_be_used_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="none"):
        ServerAccess(tls=ServerTls(authorities=str(tmp_path / "none.pem")))


def test_other_files_are_used_by_connections_to_come(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    access = ServerAccess(tls=ServerTls(authorities=first.file))
    connection = access.client("h", 1).connection_pool.make_connection()
    assert isinstance(connection, HeedingTlsConnection)
    assert connection.ssl_context is not None
    before = access.tls
    with pytest.raises(TlsError, match="none"):
        access.look(ServerTls(authorities=str(tmp_path / "none.pem")))
    use = access.look(ServerTls(authorities=second.file))
    assert connection.ssl_context.get() is before
    use()
    assert connection.ssl_context.get() is access.tls is not before
    now = access.tls
    access.follow(ServerTls(authorities=str(tmp_path / "none.pem")))
    assert access.tls is now, "files that cannot be used yet"
    access.follow(ServerTls(authorities=first.file))
    assert access.tls is not now


def test_without_tls_no_file_is_looked_at(tmp_path: Path) -> None:
    access = ServerAccess()
    access.look(ServerTls(authorities=str(tmp_path / "none.pem")))()
    access.follow(ServerTls(authorities=str(tmp_path / "none.pem")))
    assert access.tls is None
