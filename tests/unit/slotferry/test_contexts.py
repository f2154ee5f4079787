"""Contexts: who may read them, which cluster is asked by them, and that no token is shown or sent elsewhere."""

import fcntl
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from slotferry import contexts
from slotferry.contexts import Context, ContextError, Contexts
from slotferry.main import app
from tests.unit.slotferry.played_topom import play_topom

runner = CliRunner()


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SLOTFERRY_TOPOM", "SLOTFERRY_TOKEN", "SLOTFERRY_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "slotferry" / "contexts.json"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which hosts the verbs have asked, and with which header of authorisation."""
    found = []

    def handler(request: httpx.Request) -> httpx.Response:
        found.append((request.url.host, request.headers.get("Authorization", "")))
        return httpx.Response(200, json={"servers": []})

    play_topom(monkeypatch, handler)
    return found


def run(line: str, told: str | None = None) -> str:
    result = runner.invoke(app, line.split(), input=told)
    assert result.exit_code == 0, result.output
    return result.output


def refused(line: str, told: str | None = None) -> str:
    result = runner.invoke(app, line.split(), input=told)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert "Traceback" not in result.stderr
    return result.stderr


def test_contexts_are_kept_chosen_and_removed() -> None:
    assert "slotferry context set" in run("context list")
    assert "http://127.0.0.1:8380" in run("context show")
    assert "is in use" in run("context set one --topom http://one:1", "secret-1\n")
    assert "slotferry context use two" in run("context set two --topom http://two:2,http://two:3", "secret-2\n")
    assert run("context show").startswith("context one: topom at http://one:1, with a token")
    assert "http://two:2" in run("context use two")
    assert run("context show").startswith("context two")
    assert "context one:" in run("context show one")
    assert '"in_use": true' in run("context show -o json")
    assert "removed" in run("context remove two")
    assert "no context is in use" in run("context show")
    assert "there is no context two; kept are: one" in refused("context use two")
    assert "there is no context two" in refused("--context two pool list")
    assert "is no name" in refused("context set -- a/b")


def test_a_token_that_no_header_can_have_is_not_kept_and_not_shown() -> None:
    for told in ("the secret\n", "the-secr\u00e9t\n"):
        said = refused("context set one --topom http://one:1", told)
        assert "a token consists of printable ASCII characters" in said
        assert "secr" not in said
    assert "context set" in run("context list"), "none is kept"


def test_a_context_without_a_token_is_said_to_have_none() -> None:
    assert "context one is kept without a token and is in use" in run("context set one --topom http://one:1", "\n")
    assert "context one is kept and is in use" in run("context set one --topom http://one:1", "secret-1\n")


def test_no_verb_shows_a_token() -> None:
    said = [run("context set one --topom http://one:1 --token secret-1")]
    for verb in (
        "list",
        "list -o json",
        "show",
        "show one -o json",
        "use one --output json",
        "set one --token secret-1",
    ):
        said.append(run(f"context {verb}"))
    said.append(run("context remove one --output json"))
    assert "secret" not in "".join(said)
    assert "secret" not in repr(Context("http://one:1", "secret-1"))


def test_only_its_owner_can_read_the_file(file: Path) -> None:
    former = os.umask(0)
    try:
        run("context set one --topom http://one:1 --token secret-1")
        run("context set two --topom http://two:1 --token secret-2")
    finally:
        os.umask(former)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert sorted(found.name for found in file.parent.iterdir()) == ["contexts.json", "contexts.lock"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_read_is_refused(file: Path, asked: list[tuple[str, str]], mode: int) -> None:
    run("context set one --topom http://one:1 --token secret-1")
    file.chmod(mode)
    for line in ("context list", "context show", "context use one", "context set two --token x", "pool list"):
        sentence = refused(line)
        assert f"chmod 600 {file}" in sentence
        assert "secret" not in sentence
    assert asked == []
    # Who says address and token needs no context.
    run("pool list --topom http://two:2 --token other")
    assert asked == [("two", "Bearer other")]
    file.chmod(0o600)
    assert "one" in run("context list")


ENDLESS = '{"format": 1, "current": "", "contexts": {"a": {"topom": "", "token": "", "pid": 1e999}}}'


ODD = '{"format": 1, "current": "", "contexts": {"a": 1}}'


@pytest.mark.parametrize("content", ["", "[]", "{}", ODD, ENDLESS, "\x00"])
def test_another_file_is_refused(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    file.chmod(0o600)
    assert "is not what slotferry writes" in refused("context list")


def test_an_option_goes_before_the_environment_and_that_before_a_context(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pool list --topom http://option:1")
    run("context set one --topom http://one:1 --token secret-1")
    run("context set two --topom http://two:1 --token secret-2")
    run("pool list")
    run("--context two pool list")
    run("pool list --token other")
    monkeypatch.setenv("SLOTFERRY_CONTEXT", "two")
    run("pool list")
    monkeypatch.setenv("SLOTFERRY_TOPOM", "http://environment:1")
    run("pool list")
    monkeypatch.setenv("SLOTFERRY_TOKEN", "of-environment")
    run("pool list")
    run("--context one pool list")
    run("--context one pool list --token other")
    run("pool list --topom http://option:1 --token other")
    assert asked == [
        ("option", ""),
        ("one", "Bearer secret-1"),
        ("two", "Bearer secret-2"),
        ("one", "Bearer other"),
        ("two", "Bearer secret-2"),
        # A context's token goes to no other address.
        ("environment", ""),
        ("environment", "Bearer of-environment"),
        ("one", "Bearer secret-1"),
        ("one", "Bearer other"),
        ("option", "Bearer other"),
    ]
    assert "both name a cluster" in refused("--context one pool list --topom http://option:1")


def test_commands_that_write_at_the_same_time_lose_nothing() -> None:
    def keep(number: int) -> None:
        contexts.change(lambda kept: contexts.with_context(kept, f"c{number}", Context("http://h:1")))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(keep, range(40)))
    assert len(contexts.load().known) == 40


def test_a_throw_away_cluster_has_a_context_while_it_is_there() -> None:
    contexts.change(lambda kept: Contexts({"local": Context("http://mine:1", "mine")}, "local"))
    with contexts.lent("local", "http://h:2", "secret") as first, contexts.lent("local", "http://h:3", "x") as second:
        assert (first, second) == ("local-2", "local-3")
        assert contexts.load().get("local-2") == Context("http://h:2", "secret", os.getpid())
        # Somebody keeps another cluster under that name.
        contexts.change(lambda kept: contexts.with_context(kept, "local-3", Context("http://other:1")))
    assert contexts.load() == Contexts(
        {"local": Context("http://mine:1", "mine"), "local-3": Context("http://other:1")}, "local"
    )


def test_the_name_of_one_that_was_killed_is_free_again() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = Context("http://h:1", "old", ended.pid)
    contexts.change(lambda kept: replace(kept, known={"local": gone}))
    with contexts.lent("local", "http://h:2", "new") as name:
        assert (name, contexts.load().get("local").token) == ("local", "new")
    assert contexts.load().known == {}


def test_a_command_that_is_paused_as_it_writes_holds_nobody_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "LENT_SECONDS", 0.05)
    with contexts.lent("local", "http://h:2", "secret"):
        other = os.open(file.with_suffix(".lock"), os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ContextError, match=r"contexts\.lock locked for over 0\.1 s"):
            contexts.change(lambda kept: kept, 0.1)
        with pytest.raises(ContextError, match="locked"), contexts.lent("local", "http://h:3", "x"):
            pass
    os.close(other)
    assert "local" in contexts.load().known, "it could not be taken away"
    contexts.change(lambda kept: contexts.without(kept, "local"))


def test_without_a_home_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ContextError, match="XDG_CONFIG_HOME"):
        contexts.load()


def test_the_shell_completes_their_names() -> None:
    for name in ("prod", "production", "test"):
        run(f"context set {name} --token x")
    for line in ("slotferry context use prod", "slotferry --context prod"):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        result = runner.invoke(app, [], prog_name="slotferry", env={"_SLOTFERRY_COMPLETE": "complete_bash", **words})
        assert result.stdout.split() == ["prod", "production"], result.output
