"""Which token a verb shows when one stands in a file, and what it says if nobody named a cluster."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slotferry import contexts
from slotferry.contexts import Context, ContextError
from slotferry.main import app
from slotferry.operator import addressing
from slotferry.operator.addressing import Line, resolve

URL = "http://127.0.0.1:8380"


def token_for(topom: str, given: str = "") -> str:
    return resolve(topom, given, Line()).token


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no contexts"))
    monkeypatch.delenv("SLOTFERRY_CONTEXT", raising=False)
    monkeypatch.setenv("SLOTFERRY_TOKEN_FILE", str(tmp_path / "token"))
    return tmp_path / "token"


def test_it_is_read_at_each_verb_and_one_that_is_given_goes_before_it(file: Path) -> None:
    for secret in ("secret-of-yesterday", "secret-of-tomorrow"):
        file.write_text(f"{secret}\n")
        assert token_for(URL) == token_for("") == secret
    assert token_for(URL, "given") == "given"


def test_an_empty_one_is_said_and_a_contexts_token_does_not_take_its_place(file: Path) -> None:
    contexts.change(lambda kept: contexts.with_context(kept, "one", Context(URL, "of-the-context")))
    for written in ("", "\n"):
        file.write_text(written)
        with pytest.raises(ContextError, match="SLOTFERRY_TOKEN_FILE names, is empty"):
            resolve("", "", Line())
        assert resolve("", "", Line("one")).token == "of-the-context"


@pytest.mark.timeout(30)
def test_one_that_cannot_be_read_is_said_and_nobody_waits_for_it(file: Path) -> None:
    with pytest.raises(ContextError, match="SLOTFERRY_TOKEN_FILE names, cannot be read: No such file"):
        token_for(URL)
    os.mkfifo(file)
    with pytest.raises(ContextError, match="not a regular file"):
        token_for(URL)
    assert token_for(URL, "given") == "given"


def test_a_context_that_is_kept_and_not_in_use_is_named_where_no_topom_answers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLOTFERRY_TOKEN_FILE")
    monkeypatch.setattr(addressing, "DEFAULT_URL", "http://127.0.0.1:1")
    says = "No context is in use; kept are: one, two (slotferry context use NAME)"
    assert "No context" not in CliRunner().invoke(app, ["status"]).stderr, "none is kept"
    for name in ("two", "one"):
        contexts.change(lambda kept, name=name: contexts.with_context(kept, name, Context("http://127.0.0.1:1")))  # type: ignore[misc]
    said = CliRunner().invoke(app, ["status"])
    assert said.exit_code == 1
    assert says in said.stderr
    assert "(connection refused); check that it runs" in said.stderr
    assert says not in CliRunner().invoke(app, ["--context", "one", "status"]).stderr
    assert says not in CliRunner().invoke(app, ["status", "--topom", "http://127.0.0.1:1"]).stderr
