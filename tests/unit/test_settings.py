"""The files under configs/ say what the code does: every setting, its default, one comment."""

import importlib
import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_settings import BaseSettings

from slots.settings import LIVE

CONFIGS = Path(__file__).parents[2] / "configs"
PROCESSES = [("proxy", "ProxySettings"), ("topom", "TopomSettings"), ("migrator", "MigratorSettings")]
MODULES = {"proxy": "proxy.settings", "topom": "topom.term.settings", "migrator": "migrator.process.settings"}


def plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def settings_of(process: str, name: str) -> type[BaseSettings]:
    found: type[BaseSettings] = getattr(importlib.import_module(MODULES[process]), name)
    return found


@pytest.mark.parametrize(("process", "name"), PROCESSES)
def test_the_file_holds_every_setting_with_its_default(process: str, name: str) -> None:
    written = tomllib.loads((CONFIGS / f"{process}.toml").read_text())
    defaults = {field: plain(info.get_default()) for field, info in settings_of(process, name).model_fields.items()}
    assert written == defaults
    assert list(written) == list(defaults), "the file and the class should have the same order"


@pytest.mark.parametrize(("process", "name"), PROCESSES)
def test_every_setting_has_a_comment(process: str, name: str) -> None:
    lines = (CONFIGS / f"{process}.toml").read_text().splitlines()
    bare = [
        line.split()[0]
        for above, line in zip(["", *lines], lines, strict=False)
        if re.match(r"\w+ *=", line) and not re.match(r"# \S", above) and "#" not in line
    ]
    assert bare == []


@pytest.mark.parametrize(("process", "name"), PROCESSES)
def test_the_file_can_be_loaded(process: str, name: str) -> None:
    settings = settings_of(process, name)
    assert settings.load(CONFIGS / f"{process}.toml") == settings.load()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("process", "name"), PROCESSES)
def test_what_changes_while_the_process_runs_is_said_and_nothing_else(process: str, name: str) -> None:
    settings = settings_of(process, name)
    said = {field for field, info in settings.model_fields.items() if (info.description or "").endswith(f" {LIVE}")}
    assert said == settings.live()  # type: ignore[attr-defined]
    lines = (CONFIGS / f"{process}.toml").read_text().splitlines()
    pairs = itertools.pairwise(lines)
    assert {line.split()[0] for above, line in pairs if above.endswith(f" {LIVE}")} == said


@pytest.mark.parametrize(("process", "name"), [one for one in PROCESSES if one[0] != "topom"])
def test_comments_are_the_descriptions_in_the_code(process: str, name: str) -> None:
    text = (CONFIGS / f"{process}.toml").read_text()
    for field, info in settings_of(process, name).model_fields.items():
        assert f"# {info.description}\n{field} = " in text
