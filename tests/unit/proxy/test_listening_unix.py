"""The Unix socket's path: taken, replaced when stale, refused when live, given back."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.listening import ListenError, Reservations, UnixReservation, reserve_unix
from proxy.settings import ProxySettings

HOLD = """
import sys
from pathlib import Path
from proxy.listening import reserve_unix
reservation = reserve_unix(Path(sys.argv[1]), 0o700)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slotferry.sock"


@contextlib.contextmanager
def held(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that has the path."""
    arguments = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


@contextlib.contextmanager
def reserved(path: Path, permissions: int = 0o700) -> Iterator[UnixReservation]:
    reservation = reserve_unix(path, permissions)
    try:
        yield reservation
    finally:
        reservation.close()


def test_nobody_connects_before_a_worker_listens(path: Path) -> None:
    with reserved(path) as reservation:
        with pytest.raises(ConnectionRefusedError):
            connect(path)
        reservation.inherited.listen()
        connect(path)
    assert names(path) == []


@pytest.mark.parametrize("permissions", [0o700, 0o770, 0o777, 0o600])
def test_permissions(path: Path, permissions: int) -> None:
    before = os.umask(0o027)
    try:
        with reserved(path, permissions):
            assert stat.S_IMODE(path.stat().st_mode) == permissions
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_live_one_is_refused_even_before_it_listens(path: Path) -> None:
    with held(path), pytest.raises(ListenError, match="another process listens there"):
        reserve_unix(path, 0o700)


def test_what_a_dead_proxy_left_is_replaced(path: Path) -> None:
    with held(path) as process:
        process.kill()
        process.wait()
        assert names(path) == ["slotferry.sock", "slotferry.sock.lock"]
        with reserved(path) as reservation:
            reservation.inherited.listen()
            connect(path)
    assert names(path) == []


def test_another_programs_live_socket_is_refused_and_left(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ListenError, match="another process listens there"):
            reserve_unix(path, 0o700)
        connect(path)
    assert names(path) == ["slotferry.sock"]


def test_a_file_is_not_removed(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(ListenError, match="there is something that is no socket"):
        reserve_unix(path, 0o700)
    assert path.read_text() == "precious"
    assert names(path) == ["slotferry.sock"]


def test_a_successor_may_take_the_path_while_this_proxy_drains(path: Path) -> None:
    with reserved(path) as first:
        first.inherited.listen()
        first.withdraw()
        with reserved(path) as second:
            second.inherited.listen()
            # It is the other's now.
            first.close()
            connect(path)
            with pytest.raises(ListenError, match="another process"):
                reserve_unix(path, 0o700)
    assert names(path) == []


class Contended(type(Path())):  # type: ignore[misc]
    """The path of a lock that another proxy had, then a third one, which has just given it back."""

    left = 1

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if not self.left:
            return super().stat(follow_symlinks=follow_symlinks)
        Contended.left -= 1
        other = self.with_suffix(".other")
        other.touch()
        other.rename(self)
        found = super().stat(follow_symlinks=follow_symlinks)
        self.unlink()
        return found


def test_a_lock_that_others_have_just_given_back(path: Path) -> None:
    with reserved(Contended(path)):
        assert names(path) == ["slotferry.sock", "slotferry.sock.lock"]
    assert Contended.left == 0


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="No such file or directory"):
        reserve_unix(tmp_path / "nowhere" / "sock", 0o700)
    long = tmp_path / ("x" * 120)
    with pytest.raises(ListenError, match=r"too long.*100 characters"):
        reserve_unix(long, 0o700)
    assert names(long) == []


def test_all_places_of_a_proxy(path: Path) -> None:
    settings = ProxySettings.load(
        listen="127.0.0.1:0", tls_listen="127.0.0.1:0", tls_certificate="c", tls_key="k", unix_socket=str(path)
    )
    places = Reservations(settings)
    assert places.address == "127.0.0.1:0"
    places.reserve()
    assert list(places.addresses) == ["listen", "tls_listen", "unix_socket"]
    assert places.address == places.addresses["listen"] != places.addresses["tls_listen"]
    assert not any(address.endswith(":0") for address in places.addresses.values())
    assert "unix_socket" in places.inherited
    places.withdraw()
    assert names(path) == []
    places.close()


def test_a_place_that_is_taken_names_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        settings = ProxySettings.load(listen="", tls_listen=taken, tls_certificate="c", tls_key="k")
        with pytest.raises(ListenError, match=f"{taken}: another process .* with the setting tls_listen"):
            Reservations(settings).reserve()
