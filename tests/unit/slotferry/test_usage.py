"""The sentences that the command says where it is used in a wrong way, and where it cannot print."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from slotferry.main import app

COMMAND = Path(sys.executable).with_name("slotferry")


def refused(*words: str) -> str:
    run = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    # The frame around the sentence folds it.
    return " ".join(run.stderr.replace("│", " ").split())


@pytest.mark.long
def test_an_option_at_the_wrong_side_of_the_verb_is_told_where_it_goes() -> None:
    assert "behind the verb: slotferry VERB --topom" in refused("--topom", "http://127.0.0.1:1", "status")
    assert "before the verb: slotferry --context ... VERB" in refused("status", "--context", "local")
    assert "before the verb" in refused("group", "list", "--context", "local")
    assert "the verb:" not in refused("status", "--nothing")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("group", "add", "127.0.0.1:7003"), "Invalid value for 'GROUP': it has to be a whole number"),
        (("group", "add", "0", "127.0.0.1:7003"), "it has to be at least 1"),
        (("local", "--port", "80000"), "it has to be at most 65000"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("group", "delete", "1"), "No such command 'delete'. Did you mean 'remove'?"),
        (("server", "rm", "1", "a:1"), "Did you mean 'remove'?"),
        (("user", "add", "ada"), "No such command 'add'. Did you mean 'set'?"),
        (("server", "create", "a:1"), "Did you mean 'add'?"),
        (("migration", "status"), "Did you mean 'show'?"),
        (("migration", "cancel", "0-1023"), "(0-1023). Slots are named by --slots"),
    ],
)
def test_a_word_that_is_meant_is_told(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*words)


def test_a_help_is_folded_by_the_terminal_only() -> None:
    helps: dict[str, str] = {}

    def look(verb: Any, name: str) -> None:
        helps[name] = verb.help
        for word, below in getattr(verb, "commands", {}).items():
            look(below, f"{name} {word}".strip())

    look(typer.main.get_command(app), "")
    assert "It runs until SIGINT or SIGTERM" in helps["local"]
    assert helps["context set"].startswith("Keep a cluster under a name. The token")
    assert [name for name, text in helps.items() if "\n" in text.replace("\n\n", "")] == []


@pytest.mark.long
def test_a_verb_that_is_not_there_is_not_proposed() -> None:
    assert "Did you mean" not in refused("config", "delete")
    assert "--slots" not in refused("pause", "0-7")


@pytest.mark.long
@pytest.mark.parametrize("words", [("context", "list"), ("config", "topom"), ("--help",)])
def test_a_full_disk_is_a_sentence(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run([COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "error: what the command prints cannot be written: No space left on device\n"
