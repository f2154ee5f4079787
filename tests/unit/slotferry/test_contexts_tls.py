"""Certificates of contexts: what is kept of them, which count for which cluster, and what is said of wrong ones."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from slotferry import contexts
from slotferry.client import TopomClient
from slotferry.contexts import Context
from slotferry.main import app
from slotferry.operator import options
from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY, NO_FILES, Files
from tests.certificates import Authority

runner = CliRunner()
VARIABLES = ("SLOTFERRY_TOPOM", "SLOTFERRY_TOKEN", "SLOTFERRY_CONTEXT", AUTHORITIES, CERTIFICATE, KEY)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in. In it are an authority and two certificates."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    authority.issue("mine")
    authority.issue("other")
    Authority(tmp_path, "stranger")
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Files]]:
    """Which hosts the verbs have asked, and with which certificates."""
    found: list[tuple[str, Files]] = []

    def connect(url: str, token: str, tls: Files) -> TopomClient:
        def handler(request: httpx.Request) -> httpx.Response:
            found.append((request.url.host, tls))
            return httpx.Response(200, json={"servers": []})

        return TopomClient(url, token, httpx.MockTransport(handler), tls)

    monkeypatch.setattr(options, "TopomClient", connect)
    return found


def run(line: str) -> str:
    result = runner.invoke(app, line.split(), input="secret\n")
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def refused(line: str) -> str:
    result = runner.invoke(app, line.split(), input="secret\n")
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def files(folder: Path) -> Files:
    return Files(*(str(folder / file) for file in ("authority.pem", "mine.crt", "mine.key")))


SET = "context set one --topom https://one:1 --tls-ca authority.pem --tls-certificate mine.crt --tls-key mine.key"


def test_whole_paths_are_kept_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(SET)
    run("context set bare --topom http://two:1")
    kept = files(folder)
    assert contexts.load().get("one") == Context("https://one:1", "secret", tls=kept)
    monkeypatch.chdir("/")
    said = run("context show one")
    assert all(file in said for file in (kept.authorities, f"{kept.certificate}, with the key {kept.key}"))
    assert "authorities, own" in run("context list")
    shown = json.loads(run("context show one -o json"))
    assert (shown["tls_ca"], shown["tls_certificate"], shown["tls_key"]) == (
        kept.authorities,
        kept.certificate,
        kept.key,
    )
    assert [one["tls_ca"] for one in json.loads(run("context list -o json"))["contexts"]] == ["", kept.authorities]


def test_the_same_options_before_the_verb_are_kept(folder: Path) -> None:
    run("--tls-ca authority.pem context set one --topom https://one:1")
    assert contexts.load().get("one").tls == Files(str(folder / "authority.pem"))


def test_a_file_of_an_earlier_version_has_no_certificates(folder: Path) -> None:
    run("context set one --topom http://one:1")
    file = folder / "config" / "slotferry" / "contexts.json"
    kept: dict[str, Any] = json.loads(file.read_text())
    for name in ("tls_ca", "tls_certificate", "tls_key"):
        del kept["contexts"]["one"][name]
    file.write_text(json.dumps(kept))
    assert contexts.load().get("one") == Context("http://one:1", "secret", tls=NO_FILES)


def test_options_go_before_the_environment_and_that_before_a_context(
    folder: Path, asked: list[tuple[str, Files]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(SET)
    run("context set bare --topom https://bare:1")
    run("pool list")
    run("--tls-ca stranger.pem pool list")
    run("--tls-certificate other.crt --tls-key other.key pool list")
    run("--tls-ca stranger.pem pool list --topom https://option:1")
    monkeypatch.setenv(AUTHORITIES, "stranger.pem")
    run("pool list")
    # Those of the environment are another cluster's, as its address and its token are.
    run("--context one pool list")
    run("--context bare pool list")
    monkeypatch.setenv("SLOTFERRY_CONTEXT", "bare")
    run("pool list")
    monkeypatch.setenv("SLOTFERRY_TOPOM", "https://environment:1")
    run("pool list")
    kept = files(folder)
    assert asked == [
        ("one", kept),
        ("one", Files("stranger.pem", kept.certificate, kept.key)),
        ("one", Files(kept.authorities, "other.crt", "other.key")),
        # A context's certificates count for no other address.
        ("option", Files("stranger.pem")),
        ("one", Files("stranger.pem", kept.certificate, kept.key)),
        ("one", kept),
        ("bare", NO_FILES),
        ("bare", Files("stranger.pem")),
        ("environment", Files("stranger.pem")),
    ]
    said = run("context show")
    assert f"{AUTHORITIES} of the environment goes before the context" in said


@pytest.mark.parametrize("verb", ["status", "top --once", "sizing show", "slot move 0-9 --to 2 --wait"])
def test_a_file_that_is_missing_is_named_by_every_verb(folder: Path, verb: str) -> None:
    run(SET)
    run("context set two --topom http://two:1")
    (folder / "authority.pem").unlink()
    sentence = refused(verb)
    assert f"{folder}/authority.pem cannot be read: No such file or directory" in sentence
    assert "slotferry context show says which" in sentence
    for look in ("context list", "context show one"):
        assert f"{folder}/authority.pem cannot be read" in run(look)
    assert "cannot be read" in json.loads(run("context show one -o json"))["tls_wrong"]
    assert "cannot be read" not in run("context show two")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--topom https://t --tls-ca missing.pem", "missing.pem cannot be read: No such file"),
        ("--topom https://t --tls-ca config", "config cannot be read: Is a directory"),
        ("--topom https://t --tls-ca mine.key", "mine.key cannot be used"),
        ("--topom https://t --tls-certificate mine.crt", "belong together; name both, or none"),
        ("--topom https://t --tls-certificate mine.crt --tls-key other.key", "other.key cannot be used"),
        ("--topom http://t --tls-ca authority.pem", "http://t is no address with TLS; write https:// there"),
        ("--tls-ca authority.pem", "is no address with TLS"),
    ],
)
def test_what_cannot_be_used_is_not_kept(folder: Path, options: str, said: str) -> None:
    (folder / "config").mkdir()
    assert said in refused(f"context set one {options}")
    assert contexts.load().known == {}


def test_an_address_without_tls_is_not_asked_where_certificates_are_named(
    folder: Path, asked: list[tuple[str, Files]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "write https:// there" in refused("--tls-ca authority.pem pool list --topom http://t:1")
    run("--tls-ca authority.pem pool list --topom http://t:1,https://u:1")
    # The environment's may be for another cluster.
    monkeypatch.setenv(AUTHORITIES, "authority.pem")
    run("pool list --topom http://t:1")
    assert {host for host, _ in asked} == {"t"}


def test_files_stay_when_a_context_goes(folder: Path) -> None:
    run(SET)
    run("context remove one")
    assert (folder / "authority.pem").exists()
    assert contexts.load().known == {}
