"""What the shell offers: what a topom that is played here says, and nothing where it cannot be asked."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from slotferry import contexts
from slotferry.contexts import Context
from slotferry.main import app, main
from slots.tls import server_context
from slots.topomtls import AUTHORITIES, Files
from tests.certificates import Authority

GROUPS = {
    "groups": [
        {"id": 1, "slots": 512, "servers": [{"address": "10.0.0.1:6379"}, {"address": "10.0.0.2:6379"}]},
        {"id": 12, "slots": 0, "servers": [{"address": "host:7001"}]},
    ]
}
ANSWERS: dict[str, Any] = {
    "/api/v1/groups": GROUPS,
    "/api/v1/proxies": {"proxies": [{"id": 3, "address": "10.0.0.3:6380"}, {"id": 4, "address": "10.0.0.4:6380"}]},
    "/api/v1/placement": {"nodes": [{"name": "rack1", "datacenter": ""}, {"name": "rack2", "datacenter": ""}]},
}


class Played(BaseHTTPRequestHandler):
    """A topom whose token is ``right``."""

    def do_GET(self) -> None:
        welcome = self.headers.get("Authorization") == "Bearer right"
        body = json.dumps(ANSWERS[self.path] if welcome else {"error": "Unauthorized"}).encode()
        self.send_response(200 if welcome else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class Other(Played):
    """Another program."""

    def do_GET(self) -> None:
        self.send_error(501)


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture
def topom() -> Iterator[str]:
    with served(Played) as url:
        yield url


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SLOTFERRY_TOPOM", "SLOTFERRY_TOKEN", "SLOTFERRY_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def offered(line: str, shell: str = "complete_bash", **environment: str) -> list[str]:
    """What is offered for the last word of a line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_SLOTFERRY_COMPLETE": shell}
    result = CliRunner().invoke(app, [], prog_name="slotferry", env={**asked, **environment})
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("group show ", ["1", "12"]),
        ("group drain 12", ["12"]),
        ("server add ", ["1", "12"]),
        ("server show 10", ["10.0.0.1:6379", "10.0.0.2:6379"]),
        ("server drain ", ["10.0.0.1:6379", "10.0.0.2:6379", "host:7001"]),
        ("group promote 1 host", ["host:7001"]),
        ("proxy drain ", ["3", "4"]),
        ("proxy remove 4", ["4"]),
        ("node drain rack", ["rack1", "rack2"]),
        ("slot move 0-9 --to ", ["1", "12"]),
        ("rebalance --drain 1", ["1", "12"]),
    ],
)
def test_names_of_the_cluster_are_offered(topom: str, line: str, expected: list[str]) -> None:
    assert offered(f"slotferry {line}", SLOTFERRY_TOPOM=topom, SLOTFERRY_TOKEN="right") == expected


def test_the_cluster_is_the_one_that_the_line_names(topom: str) -> None:
    contexts.change(lambda kept: contexts.with_context(kept, "mine", Context(topom, "right")))
    assert offered("slotferry --context mine proxy drain ") == ["3", "4"]
    assert offered("slotferry proxy drain ", SLOTFERRY_CONTEXT="mine") == ["3", "4"]
    assert offered(f"slotferry proxy drain --topom {topom} --token right ") == ["3", "4"]
    # The context's token goes to no other address.
    assert offered("slotferry proxy drain ", SLOTFERRY_CONTEXT="mine", SLOTFERRY_TOPOM=topom) == []


def test_a_topom_that_serves_tls_is_asked_with_the_certificates_of_the_environment(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("topom")
    with served(Played, server_context(issued.certificate, issued.key, "", "none")) as url:
        known = {"SLOTFERRY_TOPOM": url.replace("http", "https"), "SLOTFERRY_TOKEN": "right"}
        assert offered("slotferry proxy drain ", **known, **{AUTHORITIES: authority.file}) == ["3", "4"]
        assert offered("slotferry proxy drain ", **known) == []
        assert offered("slotferry proxy drain ", **known, **{AUTHORITIES: str(tmp_path / "missing.pem")}) == []


def test_a_topom_that_serves_tls_is_asked_with_the_certificates_of_the_line_or_the_context(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued, shown = authority.issue("topom"), authority.issue("client")
    mutual = Files(authority.file, shown.certificate, shown.key)
    with served(Played, server_context(issued.certificate, issued.key, authority.file, "required")) as url:
        by_tls = url.replace("http", "https")
        contexts.change(lambda kept: contexts.with_context(kept, "mine", Context(by_tls, "right", tls=mutual)))
        contexts.change(lambda kept: contexts.with_context(kept, "bare", Context(by_tls, "right")))
        assert offered("slotferry --context mine proxy drain ") == ["3", "4"]
        assert offered("slotferry --context bare proxy drain ") == []
        line = f"--tls-ca {authority.file} --tls-certificate {shown.certificate} --tls-key {shown.key}"
        assert offered(f"slotferry --context bare {line} proxy drain ") == ["3", "4"]


def test_bash_breaks_words_at_colons(
    topom: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme, host, port = topom.split(":")
    asked = f"slotferry server show --topom {scheme} : {host} : {port} --token right"
    monkeypatch.setenv("_SLOTFERRY_COMPLETE", "complete_bash")
    for typed, expected in (
        ("10.0.0.2 : 63", ["6379"]),
        ("host :", ["7001"]),
        ("ho", ["host:7001"]),
        ("", ["10.0.0.1:6379", "10.0.0.2:6379", "host:7001"]),
    ):
        line = f"{asked} {typed}"
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        assert capsys.readouterr().out.split() == expected


def test_nothing_is_offered_and_nothing_said_without_a_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, served(Other) as other:
        closed = "http://127.0.0.1:1"
        for url in (f"http://127.0.0.1:{silent.getsockname()[1]}", other, closed, "nonsense", "http://[", "no where"):
            assert offered("slotferry group show ", SLOTFERRY_TOPOM=url) == []
        assert offered("slotferry --context nosuch group show ") == []


def test_a_wrong_token_or_another_program_offers_nothing(topom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("slotferry group show ", SLOTFERRY_TOPOM=topom, SLOTFERRY_TOKEN="wrong") == []
    for answer in ([], {"groups": 3}, {"groups": [{}]}, "text"):
        monkeypatch.setitem(ANSWERS, "/api/v1/groups", answer)
        assert offered("slotferry server show ", SLOTFERRY_TOPOM=topom, SLOTFERRY_TOKEN="right") == []
