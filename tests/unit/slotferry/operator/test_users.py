"""What ``slotferry user set`` makes of its words, and where passwords come from."""

import hashlib
import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from slotferry.main import app
from tests.unit.slotferry.played_topom import play_topom

SECRET = "the secret of ada"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
runner = CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What topom was asked."""
    return play_topom(monkeypatch, lambda _: httpx.Response(200, json={"users": [], "left_out": [], "behind": []}))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("read_only=true", True),
        ("read_only=false", False),
        ("databases=0", [0]),
        ("databases=0,3", [0, 3]),
        ("databases=[0, 3]", [0, 3]),
        ("addresses=10.1.0.0/16, 10.2.0.1", ["10.1.0.0/16", "10.2.0.1"]),
        ("addresses=::1", ["::1"]),
        ("connections=7", 7),
        ("connections=many", "many"),
        ("rules=~app:* +@all", "~app:* +@all"),
        ("rules=+get ~a=b", "+get ~a=b"),
        ("rules=true", "true"),
        ("over_limit=refuse", "refuse"),
        ("rules=", None),
        ("of_a_later_version=12", 12),
        ("of_a_later_version=some text", "some text"),
    ],
)
def test_a_field_gets_the_value_that_its_type_takes(seen: list[httpx.Request], word: str, value: object) -> None:
    result = runner.invoke(app, ["user", "set", "ada", word])
    assert result.exit_code == 0, result.output
    assert json.loads(seen[-1].content) == {"fields": {word.partition("=")[0]: value}}


def test_a_password_comes_from_standard_input_or_a_file_and_only_its_digest_goes_out(
    seen: list[httpx.Request], tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\nanother line\n")
    hashed = tmp_path / "hash"
    hashed.write_text(f"{DIGEST}\n")
    for words, given in (
        (["--password"], f"{SECRET}\n"),
        (["--password"], SECRET),
        (["--password-file", str(file)], None),
        (["--sha256", "--password-file", str(hashed)], None),
    ):
        result = runner.invoke(app, ["user", "set", "ada", *words], input=given)
        assert result.exit_code == 0, result.output
        assert json.loads(seen[-1].content) == {"fields": {"password_sha256": DIGEST}}
        assert SECRET not in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["password=x"], "other users see what is on a command line"),
        (["password_sha256=x"], "other users see what is on a command line"),
        (["read_only"], "write FIELD=VALUE"),
        (["=x"], "write FIELD=VALUE"),
        (["--sha256"], "--sha256 goes with"),
        (["--password"], "the password is empty"),
        (["--password-file", "/nowhere/at/all"], "the password cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_at_once(seen: list[httpx.Request], words: list[str], says: str) -> None:
    result = runner.invoke(app, ["user", "set", "ada", *words], input="")
    assert result.exit_code == 1
    assert says in " ".join(result.stderr.split())
    assert seen == []


def test_default_is_removed_by_a_word_more(seen: list[httpx.Request]) -> None:
    for words, said in (([], "false"), (["--open"], "true")):
        assert runner.invoke(app, ["user", "remove", "default", *words]).exit_code == 0
        assert seen[-1].url.params["open"] == said
