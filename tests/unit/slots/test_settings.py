"""Settings of any process: where they come from, and the errors for what is wrong."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from slots.settings import Seconds, Settings, SettingsError
from slots.smallfiles import MOST_BYTES


class Few(Settings):
    model_config = SettingsConfigDict(
        env_prefix="SLOTFERRY_FEW_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    wait_seconds: Seconds = 5.0
    most: int = Field(10, ge=1, le=100)
    secret: SecretStr = SecretStr("")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "few.toml"


def test_what_is_said_in_the_call_goes_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Few.load().most == 10
    file.write_text("most = 20\nwait_seconds = 1.5\n")
    assert (Few.load(file).most, Few.load(file).wait_seconds) == (20, 1.5)
    monkeypatch.setenv("SLOTFERRY_FEW_MOST", "30")
    assert Few.load(file).most == 30
    assert Few.load(file, most=40).most == 40


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("most = 0", "most"),
        ("most = 101", "most"),
        ('most = "many"', "most"),
        ("wait_seconds = 0", "wait_seconds"),
        ("wait_seconds = inf", "wait_seconds"),
        ("mots = 1", "mots"),
        ("most =", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_by_the_name_of_the_setting(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError, match=says):
        Few.load(file)


def test_a_file_that_is_not_there_and_a_variable_that_is_misspelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Few.load(tmp_path / "none.toml")
    monkeypatch.setenv("SLOTFERRY_FEW_MOTS", "1")
    with pytest.raises(SettingsError, match="SLOTFERRY_FEW_MOST"):
        Few.load()


def test_a_secret_is_not_in_what_is_said(file: Path) -> None:
    file.write_text("secret = 12345")
    with pytest.raises(SettingsError) as raised:
        Few.load(file)
    assert "12345" not in str(raised.value)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "not a regular file"),
    "a folder": (Path.mkdir, "not a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "a socket": (_socket, "cannot be read"),
    "a link to itself": (lambda path: path.symlink_to(path), "symbolic links"),
    "a huge file": (lambda path: path.write_bytes(b"#" * (MOST_BYTES + 1)), "larger than"),
    "not there": (lambda path: None, "No such file"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("kind", ODD)
def test_a_file_that_is_none_of_settings_is_refused_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, secret: bool
) -> None:
    make, why = ODD[kind]
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    path = Path("odd")
    make(path)
    if secret:
        monkeypatch.setenv("SLOTFERRY_FEW_SECRET_FILE", str(path))
    with pytest.raises(SettingsError, match=why):
        Few.load(None if secret else path)


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, f"most = {'1' * 5000}", "most = \xff"])
def test_what_python_does_not_bear_is_no_settings_file(file: Path, text: str) -> None:
    file.write_text(text, encoding="latin-1")
    with pytest.raises(SettingsError, match="is not TOML"):
        Few.load(file)


def test_a_secret_in_a_file_goes_before_the_settings_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('secret = "in the settings"')
    secret = file.with_name("secret")
    secret.write_text("in a file of its own \r\n")
    monkeypatch.setenv("slotferry_few_SECRET_FILE", str(secret))
    assert Few.load(file).secret.get_secret_value() == "in a file of its own "
    monkeypatch.setenv("SLOTFERRY_FEW_SECRET", "in the environment")
    with pytest.raises(SettingsError, match=r"both SLOTFERRY_FEW_SECRET and slotferry_few_SECRET_FILE") as raised:
        Few.load(file)
    assert "in the environment" not in str(raised.value)


@pytest.mark.parametrize("variable", ["SLOTFERRY_FEW_MOST_FILE", "SLOTFERRY_FEW_SERCET_FILE"])
def test_only_a_secret_may_be_in_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "/etc/hostname")
    with pytest.raises(SettingsError, match=r"did you mean SLOTFERRY_FEW_(SECRET_FILE|MOST)\?"):
        Few.load()


def test_a_secret_that_is_not_text_is_refused_and_not_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"hidden\xff")
    monkeypatch.setenv("SLOTFERRY_FEW_SECRET_FILE", str(file))
    with pytest.raises(SettingsError, match="not text in UTF-8") as raised:
        Few.load()
    assert "hidden" not in str(raised.value)


class Two(Settings):
    model_config = SettingsConfigDict(env_prefix="SLOTFERRY_TWO_")

    one: SecretStr = SecretStr("")
    other: SecretStr = SecretStr("")


def test_secrets_that_are_replaced_while_they_are_read_are_of_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes replaces them: a link goes over to another folder."""

    def link(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("one", "other"):
            (folder / name).write_text(str(number))
        (tmp_path / "new").symlink_to(folder)
        (tmp_path / "new").rename(tmp_path / "now")

    link(0)
    for name in ("one", "other"):
        monkeypatch.setenv(f"SLOTFERRY_TWO_{name.upper()}_FILE", str(tmp_path / "now" / name))
    opened: list[object] = []
    times = [1]
    true_open = os.open

    def replacing(path: object, *more: int) -> int:
        opened.append(path)
        descriptor = true_open(path, *more)  # type: ignore[arg-type]
        if len(opened) in times:
            link(len(opened))
        return descriptor

    monkeypatch.setattr(os, "open", replacing)
    found = Two.load()
    assert (found.one.get_secret_value(), found.other.get_secret_value()) == ("1", "1")
    times[:] = range(100)
    with pytest.raises(SettingsError, match="change while they are read"):
        Two.load()
