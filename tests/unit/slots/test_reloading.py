"""Settings are read anew: all that may change does, or nothing; and no value of any is told."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from pydantic import SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from slots.reloading import Reloading, on_hangup
from slots.settings import Live, Settings, SettingsError


class Few(Settings):
    model_config = SettingsConfigDict(
        env_prefix="SLOTFERRY_FEW_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    most: Live[int] = 10
    secret: Live[SecretStr] = SecretStr("")
    place: str = "here"
    lamp: bool = False
    bulb: Live[str] = ""
    least: int = 1

    @model_validator(mode="after")
    def _check_together(self) -> "Few":
        if self.least > self.most:
            raise ValueError("least: may not be larger than most")
        return self

    def bound(self) -> dict[str, object]:
        return {"bulb": self.lamp}


class Part:
    """A part of a process that uses the settings."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.used: Few | None = None

    def look(self, settings: Few) -> Callable[[], None]:
        if settings.most > self.most:
            raise SettingsError("so many do not go")

        def put() -> None:
            self.used = settings

        return put


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "few.toml"
    path.write_text("")
    return path


def reloading_of(file: Path, *parts: Part) -> Reloading[Few]:
    reloading = Reloading(Few.load(file), file)
    reloading.takers += [part.look for part in parts]
    return reloading


def test_the_classes_say_which_settings_change() -> None:
    assert Few.live() == {"most", "secret", "bulb"}


def test_what_may_change_does_and_of_the_rest_the_name_is_kept(file: Path) -> None:
    part = Part()
    reloading = reloading_of(file, part)
    file.write_text('most = 20\nplace = "there"\n')
    before = reloading.since
    assert reloading.reload() == ("most",)
    assert (reloading.restart, reloading.since > before) == (("place",), True)
    assert reloading.settings == part.used == Few.load(None, most=20)
    file.write_text("most = 20\n")
    assert (reloading.reload(), reloading.restart) == ((), ())


def test_what_is_bound_to_something_that_needs_a_restart_waits_with_it(file: Path) -> None:
    reloading = reloading_of(file)
    file.write_text('bulb = "warm"\nlamp = true\nmost = 20')
    assert (reloading.reload(), reloading.restart) == (("most",), ("lamp", "bulb"))
    assert reloading.settings.bulb == ""
    file.write_text('bulb = "warm"')
    assert (reloading.reload(), reloading.restart) == (("most", "bulb"), ())


@pytest.mark.parametrize(
    "text", ["most = ", "most = 20\nmore = 1", 'most = 20\nleast = "x"', "most = 2000", "most = 0"]
)
def test_what_cannot_be_used_changes_nothing(file: Path, text: str) -> None:
    first, second = Part(10_000), Part()
    reloading = reloading_of(file, first, second)
    settings, since = reloading.settings, reloading.since
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        reloading.reload()
    assert (first.used, second.used) == (None, None)
    assert (reloading.settings, reloading.since, reloading.refused) == (settings, since, str(refused.value))
    file.write_text("most = 20")
    assert (reloading.reload(), reloading.refused) == (("most",), "")


def test_a_file_that_is_gone_changes_nothing(file: Path) -> None:
    file.write_text("most = 20")
    reloading = reloading_of(file)
    file.unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        reloading.reload()
    assert reloading.settings.most == 20


def test_settings_that_fit_only_with_what_needs_a_restart_wait_for_it(file: Path) -> None:
    file.write_text("least = 5")
    reloading = reloading_of(file)
    file.write_text("least = 2\nmost = 3")
    with pytest.raises(SettingsError, match=r"needs a restart \(least\)"):
        reloading.reload()
    assert reloading.settings.most == 10


def test_no_secret_is_told(file: Path) -> None:
    reloading = reloading_of(file)
    with structlog.testing.capture_logs() as said:
        file.write_text('secret = "of nobody else"')
        assert reloading.reload() == ("secret",)
        file.write_text('secret = ["of nobody else"]')
        with pytest.raises(SettingsError) as refused:
            reloading.reload()
    assert [one["event"] for one in said] == ["settings_reloaded", "settings_refused"]
    assert "nobody" not in str(said) + str(refused.value)


def test_the_environment_wins_as_at_the_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTFERRY_FEW_MOST", "30")
    reloading = reloading_of(file)
    file.write_text("most = 20")
    assert (reloading.reload(), reloading.settings.most, reloading.hidden) == ((), 30, ("most",))
    file.write_text("most = 30")
    assert (reloading.reload(), reloading.hidden) == ((), ())


def test_a_token_of_the_environment_that_hides_another_one_in_the_file_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "secret"
    kept.write_text("of-yesterday\n")
    monkeypatch.setenv("SLOTFERRY_FEW_SECRET_FILE", str(kept))
    reloading = reloading_of(file)
    file.write_text('secret = "of-tomorrow"\nmost = 20')
    with structlog.testing.capture_logs() as said:
        assert reloading.reload() == ("most",)
    assert said[0]["hidden"] == ["secret"]
    assert "of-" not in str(said).replace(str(file), "")
    file.write_text('secret = "of-yesterday"')
    reloading.reload()
    assert reloading.hidden == ()


async def test_a_hangup_reads_them_anew_and_ends_nothing(file: Path) -> None:
    reloading = reloading_of(file)
    done: asyncio.Queue[int] = asyncio.Queue()

    def reload() -> None:
        done.put_nowait(reloading.settings.most)
        reloading.reload()

    def write(text: str) -> None:
        file.write_text(text)

    on_hangup(reload)
    try:
        for text, most in (("most = ", 10), ("most = 20", 10), ("", 20)):
            write(text)
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(60):
                assert await done.get() == most
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
