"""Tokens: how they are written down, kept and found."""

import stat
from pathlib import Path

import pytest

from slots.settings import SettingsError
from topom.term.settings import TopomSettings
from topom.term.tokens import MOST_TOKENS, Role, Token, Tokens, kept_token, parse_tokens

SECRET = "geheim-und-lang-genug"
OTHER = "anders-und-lang-genug"


def test_the_token_is_made_once_and_private(tmp_path: Path) -> None:
    token = kept_token(tmp_path / "token", make=True)
    assert len(token) >= 32
    assert kept_token(tmp_path / "token", make=True) == token
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_token_is_not_made_while_topom_runs(tmp_path: Path, content: str | None) -> None:
    """Who replaces the file may be in the midst of it."""
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises((OSError, ValueError)):
        kept_token(tmp_path / "token", make=False)
    assert {path.name for path in tmp_path.iterdir()} <= {"token"}
    assert content is None or (tmp_path / "token").read_text() == content


def test_a_kept_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(ValueError, match="16 to 256 characters"):
        kept_token(tmp_path / "token", make=True)


def test_a_token_is_found_by_the_whole_secret() -> None:
    grafana = Token(Role.VIEWER, "grafana", b"abc")
    tokens = Tokens("own", grafana)
    assert tokens.find(b"abc") is grafana
    assert tokens.find(b"own") == Token(Role.OPERATOR, "operator", b"own")
    for secret in (b"", b"ab", b"abcd", b"ABC", b"abc\x00", "äbc".encode(), b"\xff"):
        assert tokens.find(secret) is None


def test_an_empty_secret_is_none() -> None:
    assert Tokens("", Token(Role.OPERATOR, "x", b"")).find(b"") is None


def test_operators_are_told_with_the_own_token_first() -> None:
    more = (Token(Role.VIEWER, "v", b"1"), Token(Role.OPERATOR, "next", b"2"), Token(Role.PROXY, "p", b"3"))
    assert list(Tokens("0", *more).operators) == ["0", "2"]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_what_a_role_is_enough_for(role: Role, needed: Role) -> None:
    assert role.may(needed) == (role is needed or role is Role.OPERATOR)


def test_entries_have_a_role_a_name_and_a_secret() -> None:
    settings = TopomSettings.load(tokens=[f"viewer:grafana:{SECRET}", f"proxy:rack-1.a_b:{OTHER}:with:colons"])
    assert settings.more_tokens("own") == (
        Token(Role.VIEWER, "grafana", SECRET.encode()),
        Token(Role.PROXY, "rack-1.a_b", f"{OTHER}:with:colons".encode()),
    )
    assert "geheim" not in repr(settings)
    assert "geheim" not in repr(settings.more_tokens("own"))


def test_two_tokens_may_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one follows the other."""
    monkeypatch.setenv("SLOTFERRY_TOPOM_TOKENS", f"viewer:grafana:{SECRET}, viewer:grafana:{OTHER}")
    assert [token.name for token in TopomSettings.load().more_tokens("")] == ["grafana", "grafana"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([SECRET], "entry 1 has to be like viewer:grafana:SECRET"),
        ([f"viewer:{SECRET}"], "entry 1 has to be like viewer:grafana:SECRET"),
        ([f"viewer:a:{OTHER}", f"admin:geheim:{SECRET}"], "entry 2: its role has to be viewer, operator, proxy"),
        ([f"Viewer:a:{SECRET}"], "entry 1: its role has to be"),
        ([f":a:{SECRET}"], "entry 1: its role has to be"),
        ([f"viewer::{SECRET}"], "entry 1: its name consists of 1 to 64"),
        ([f"viewer:geheim ada:{SECRET}"], "entry 1: its name consists of 1 to 64"),
        ([f"viewer:ädä:{SECRET}"], "entry 1: its name consists of 1 to 64"),
        ([f"viewer:a\n:{SECRET}"], "entry 1: its name consists of 1 to 64"),
        ([f"operator:topom:{SECRET}"], "is not topom"),
        (["viewer:a:geheim"], "entry 1: a secret has 16 to 256 characters"),
        (["viewer:a:" + "geheim" * 100], "entry 1: a secret has 16 to 256 characters"),
        ([f"viewer:a:{SECRET} "], "entry 1: a secret consists of printable ASCII characters"),
        ([f"viewer:a:{SECRET}é"], "entry 1: a secret consists of printable ASCII characters"),
        ([f"viewer:a:{SECRET},{OTHER}"], "entry 1: a secret consists of printable ASCII characters"),
        ([f"viewer:a:{SECRET}", f"operator:b:{SECRET}"], "entry 2 has the same secret as entry 1"),
        ([f"viewer:a:{number}-{SECRET}" for number in range(MOST_TOKENS + 1)], "there may be 100 at most"),
        ([3], "entry 1 has to be text"),
        ({"viewer": SECRET}, "has to be a list"),
    ],
)
def test_entries_that_cannot_be_used(entries: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        TopomSettings.load(tokens=entries)
    assert "geheim" not in str(refused.value)
    assert "tokens" in str(refused.value)


def test_as_many_as_there_may_be() -> None:
    assert len(parse_tokens([f"viewer:a:{number}-{SECRET}" for number in range(MOST_TOKENS)])) == MOST_TOKENS


@pytest.mark.parametrize("token", ["geheim", "geheim" * 100, f"{SECRET} ", f"{SECRET}ü"])
def test_a_token_that_cannot_be_used(token: str) -> None:
    with pytest.raises(SettingsError, match=r"Setting token .*: a secret") as refused:
        TopomSettings.load(token=token)
    assert "geheim" not in str(refused.value)


def test_no_entry_has_the_secret_of_the_token() -> None:
    with pytest.raises(
        SettingsError, match="Setting tokens: entry 1 has the same secret as the setting token"
    ) as refused:
        TopomSettings.load(token=SECRET, tokens=[f"viewer:grafana:{SECRET}"])
    assert "geheim" not in str(refused.value)
