"""Settings of any process: where they come from, and the errors for what is wrong."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from slots.settings import Seconds, Settings, SettingsError


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
