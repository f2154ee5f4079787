"""The driver asks a topom that serves TLS by the certificates of the environment, and says what is wrong with them."""

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from sizing import posting, topom
from sizing.errors import TopomFailed
from sizing.posting import PostError
from slots.tls import server_context
from slots.topomtls import AUTHORITIES
from tests.certificates import Authority


class Played(BaseHTTPRequestHandler):
    """A topom that takes sizes, and says one thing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def _answer(self) -> None:
        body = json.dumps({"said": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(authority: Authority) -> Iterator[str]:
    issued = authority.issue("topom")
    with ThreadingHTTPServer(("127.0.0.1", 0), Played) as server:
        server.socket = server_context(issued.certificate, issued.key, "", "none").wrap_socket(
            server.socket, server_side=True
        )
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def test_a_topom_that_is_trusted_is_asked_and_told(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTHORITIES, authority.file)
    assert topom.get(url, "/x", 10.0) == {"said": "/x"}
    posting.post(url, "secret", {})


def test_one_that_is_not_is_explained(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTHORITIES, Authority(tmp_path, "other").file)
    with pytest.raises(TopomFailed, match=f"as {AUTHORITIES}"):
        topom.get(url, "/x", 10.0)
    with pytest.raises(PostError, match=f"as {AUTHORITIES}"):
        posting.post(url, "secret", {})


def test_a_file_that_is_missing_is_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUTHORITIES, str(tmp_path / "missing.pem"))
    with pytest.raises(TopomFailed, match=r"missing\.pem cannot be read"):
        topom.get(url, "/x", 10.0)
    with pytest.raises(PostError, match=r"missing\.pem cannot be read"):
        posting.post(url, "secret", {})


@pytest.mark.parametrize("says_more", [False, True])
def test_one_that_is_asked_in_the_clear_is_explained(says_more: bool) -> None:
    """A TLS server ends such a connection, with an alert or without a word, and the rest of the request unread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20.0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            for _ in range(2):
                with listening.accept()[0] as taken:
                    taken.recv(1)
                    if says_more:
                        taken.sendall(b"\x15\x03\x01\x00\x02\x02\x46\r\n")

        serving = Thread(target=serve, daemon=True)
        serving.start()
        with pytest.raises(TopomFailed, match="if it is topom and serves TLS, write https:// in its URL"):
            topom.get(url, "/x", 10.0)
        with pytest.raises(PostError, match="if it is topom and serves TLS, write https:// in its URL"):
            posting.post(url, "secret", {"slots": [0] * 100_000})
        serving.join()


@pytest.mark.parametrize("token", ["the-secret\n", "the secret", "the-secr\u00e9t"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(
    url: str, token: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTHORITIES, authority.file)
    monkeypatch.setenv("SLOTFERRY_TOKEN", token)
    with pytest.raises(TopomFailed, match=r"SLOTFERRY_TOKEN.*printable ASCII characters") as asked:
        topom.get(url, "/api/v1/status", 5.0)
    with pytest.raises(PostError, match="printable ASCII characters") as posted:
        posting.post(url, token, {})
    assert "secr" not in f"{asked.value}{posted.value}"
