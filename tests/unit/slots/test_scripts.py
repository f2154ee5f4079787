"""The scripts that run at servers: each says what it is given and gives, and is put together by one rule."""

import hashlib
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from slots import reserved, scripts
from slots.scripts import FOLDER, SHARED, Script, load

ROOT = Path(__file__).parents[3]
FILES = sorted(FOLDER.glob("*.lua"))
PIECES = sorted(SHARED.glob("*.lua"))
OWN = {"TYPES": ("string", "it's"), "ENCODINGS": ("int",)}
USE = re.compile(r"^-- use: (.+)$", re.MULTILINE)
DECLARED = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)


def code(file: Path) -> str:
    return re.sub(r"--.*", "", file.read_text())


def names_of(name: str) -> set[str]:
    """What a name after ``use:`` declares."""
    return {name} if name.isupper() else set(DECLARED.findall((SHARED / f"{name}.lua").read_text()))


def used(file: Path) -> list[str]:
    return [name for line in USE.findall(file.read_text()) for name in line.split(", ")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_head_of_a_script_says_what_it_is_given_and_gives_and_why_it_is_one_step(file: Path) -> None:
    head = re.match(r"(?:--.*\n)+", file.read_text())
    assert head
    said = re.findall(r"^-- (KEYS|ARGV|Reply|One step): \S", head[0], re.MULTILINE)
    assert said == ["KEYS", "ARGV", "Reply", "One step"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_every_server_can_read_a_script(file: Path, redis: Redis) -> None:
    script = load(file.stem, **OWN)
    assert (await redis.script_load(script.text)) in (script.digest, script.digest.encode())
    assert script.digest == hashlib.sha1(script.text.encode()).hexdigest()
    assert not re.search(r"\bregister_function\b|\brequire\b|^#!", script.text, re.MULTILINE)


@pytest.mark.parametrize("file", [*FILES, *PIECES], ids=lambda file: file.stem)
def test_a_file_says_all_that_it_uses_and_nothing_else(file: Path) -> None:
    words = set(re.findall(r"\w+", code(file)))
    shared = set().union(*(names_of(piece.stem) for piece in PIECES)) | {*scripts._CONSTANTS, *OWN}
    own = re.findall(r"\blocal (?:function )?(\w+(?:, \w+)*)", code(file))
    own += re.findall(r"\bfunction \w+\((\w+(?:, \w+)*)", code(file))
    declared = {name for names in own for name in names.split(", ")}
    given = set().union(*(names_of(name) for name in used(file)))
    assert (words & shared) - declared - given == set()
    assert [name for name in used(file) if (found := names_of(name)) and not found & words] == []


def test_every_file_is_used() -> None:
    folders = ("slots", "proxy", "migrator", "topom", "sizing")
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    loaded = re.findall(r"\bload\(\"(\w+)\"", "\n".join(sources))
    assert sorted(loaded) == [file.stem for file in FILES]
    assert {name for file in [*FILES, *PIECES] for name in used(file) if not name.isupper()} == {
        piece.stem for piece in PIECES
    }


@pytest.mark.parametrize("file", [*FILES, *PIECES], ids=lambda file: file.stem)
def test_a_name_that_python_knows_too_is_taken_from_there(file: Path) -> None:
    assert "__slotferry" not in code(file)
    prefixes = {reserved.CLAIM_FIELD, reserved.FLUSH_FIELD, reserved.IN_PIECES}
    errors = {scripts.NOT_PERMITTED, scripts.CLAIMED, scripts.COPIED}
    texts = set(re.findall(r"'([^']*)'", code(file)))
    assert [text for text in texts for known in prefixes | errors if text.startswith(known)] == []


def test_what_several_pieces_use_is_there_once_and_comments_are_left_out() -> None:
    text = load("digest_keys").text
    assert text.count("local function clock") == 1
    assert not re.search(r"^\s*(--|$)", text.removesuffix("\n"), re.MULTILINE)


async def test_constants_arrive_as_they_are(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = bytes(range(256))
    (tmp_path / "some.lua").write_text("-- use: TEXT, LIST, TABLE\nreturn {TEXT, LIST[2], TABLE['it\\'s']}\n")
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    script = load("some", TEXT=odd, LIST=("a", "]]\n"), TABLE={"it's": "\\1"})
    assert await redis.eval(script.text, 0) == [odd, b"]]\n", b"\\1"]


def test_a_name_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    for name, error in (("NO_CONSTANT", KeyError), ("no_piece", FileNotFoundError)):
        (tmp_path / "some.lua").write_text(f"-- use: {name}\n")
        with pytest.raises(error):
            load("some")


def test_a_digest_is_of_the_text_that_is_sent() -> None:
    assert Script("return 1").digest == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
