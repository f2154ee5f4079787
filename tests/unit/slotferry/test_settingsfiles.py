"""``slotferry config``."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slotferry.main import app
from slotferry.settingsfiles import CLASSES, settings_class
from slots import settings
from slots.smallfiles import read_small

runner = CliRunner()


@pytest.mark.parametrize("process", CLASSES)
def test_a_printed_file_has_every_setting_and_passes_the_check(process: str, tmp_path: Path) -> None:
    printed = runner.invoke(app, ["config", process])
    assert printed.exit_code == 0
    assert tomllib.loads(printed.stdout).keys() == settings_class(process).model_fields.keys()
    file = tmp_path / "any.toml"
    file.write_text(printed.stdout)
    checked = runner.invoke(app, ["config", "check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert process in checked.stdout
    assert "all settings have their defaults" in checked.stdout


def test_settings_with_another_value_are_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('workers = 4\nlisten = "127.0.0.1:0"\nmax_clients = 10_000\n')
    checked = runner.invoke(app, ["config", "check", str(file)])
    assert checked.stdout == f"{file}: settings of a proxy, nothing wrong; other than by default: listen, workers\n"


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        ("workers = 4\nlisten = 5\n", [], "Setting listen (or SLOTFERRY_PROXY_LISTEN in the environment)"),
        ("workers = 4\nmax_client = 5\n", [], "There is no setting max_client; did you mean max_clients?"),
        ("workers = 4\n", ["--of", "topom"], "There is no setting workers"),
        ("lisen = 5\n", [], "say which with --of. There is no setting lisen; did you mean listen?"),
        ('log_level = "info"\n', [], "may be the settings of topom, proxy or migrator; say which with --of."),
        ("workers: 4\n", [], "is not TOML"),
        ("workers = 4\n", ["--of", "topm"], "--of has to be topom, proxy or migrator, not topm"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, arguments: list[str], sentence: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    checked = runner.invoke(app, ["config", "check", str(file), *arguments])
    assert checked.exit_code == 1
    assert sentence in checked.stderr


def test_of_settings_that_several_have_the_name_of_the_file_tells_whose_they_are(tmp_path: Path) -> None:
    file = tmp_path / "my-migrator.toml"
    file.write_text('log_level = "debug"\n')
    checked = runner.invoke(app, ["config", "check", str(file)])
    assert checked.stdout == f"{file}: settings of a migrator, nothing wrong; other than by default: log_level\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    checked = runner.invoke(app, ["config", "check", str(tmp_path / "none.toml")])
    assert checked.exit_code == 1
    assert "cannot be read: No such file or directory" in checked.stderr


def test_what_is_checked_is_what_was_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("workers = 4\n")
    read: list[Path] = []

    def counting(path: Path) -> bytes:
        read.append(path)
        return read_small(path)

    monkeypatch.setattr(settings, "read_small", counting)
    assert runner.invoke(app, ["config", "check", str(file)]).exit_code == 0
    assert read == [file]
