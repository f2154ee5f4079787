"""Errors of TLS become sentences that say what to do, in the words of who meets them."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from slots.access import ServerTls
from slots.tls import TlsError, server_context
from slots.topomtls import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    NO_FILES,
    REMEDIES,
    Files,
    from_environment,
    into_environment,
)
from tests.certificates import Authority

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def served(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextmanager
def behind(context: ssl.SSLContext) -> Iterator[int]:
    """A program in front of a topom, such as nginx, that says what it does not like."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            taken, _ = listening.accept()
            taken.settimeout(20)
            with context.wrap_socket(taken, server_side=True, do_handshake_on_connect=False) as by_tls:
                with suppress(ssl.SSLError):
                    by_tls.do_handshake()
                by_tls.shutdown(socket.SHUT_WR)
                while socket.socket.recv(by_tls, 1000):  # else the system forgets what was said
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)


async def failure(port: int, tls: ServerTls, host: str = "127.0.0.1") -> Exception:
    async with httpx.AsyncClient(verify=tls.certificates().context, trust_env=False) as client:
        with pytest.raises((httpx.TransportError, ssl.SSLError)) as error:  # httpx lets some errors of TLS through
            await client.get(f"https://{host}:{port}/")
    return error.value


async def test_a_topom_that_cannot_be_trusted(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("topom")
    async with served(server_context(issued.certificate, issued.key, "", "none")) as port:
        other = Authority(tmp_path, "other")
        assert f"as {AUTHORITIES}" in REMEDIES.why(await failure(port, ServerTls(other.file)))
        assert "not for the host in its URL" in REMEDIES.why(
            await failure(port, ServerTls(authority.file), "localhost")
        )


async def test_a_topom_without_tls(authority: Authority) -> None:
    async with served(None) as port:
        assert "write http:// in its URL" in REMEDIES.why(await failure(port, ServerTls(authority.file)))


@pytest.mark.parametrize("shown", ["none", "of another authority"])
async def test_a_topom_that_wants_to_be_shown_another_certificate(
    authority: Authority, tmp_path: Path, shown: str
) -> None:
    issued = authority.issue("topom")
    other = Authority(tmp_path, "other").issue("other-client")
    tls = ServerTls(authority.file) if shown == "none" else ServerTls(authority.file, other.certificate, other.key)
    with behind(server_context(issued.certificate, issued.key, authority.file, "required")) as port:
        assert f"{CERTIFICATE} and {KEY}" in REMEDIES.why(await failure(port, tls))


def test_other_errors_are_left_to_others() -> None:
    assert not REMEDIES.why(ConnectionRefusedError("nobody is there"))


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://t", "https://"), ("ws://t", "https://"), ("wss://t", CERTIFICATE), ("https://t", "http://")],
)
def test_no_answer_is_explained(url: str, said: str) -> None:
    assert said in REMEDIES.unanswered(url)


def test_the_environment_names_files(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = authority.issue("client")
    for name in (AUTHORITIES, CERTIFICATE, KEY):
        monkeypatch.delenv(name, raising=False)
    assert from_environment() == NO_FILES
    monkeypatch.setenv(AUTHORITIES, authority.file)
    monkeypatch.setenv(CERTIFICATE, issued.certificate)
    monkeypatch.setenv(KEY, issued.key)
    files = Files(authority.file, issued.certificate, issued.key)
    assert from_environment() == files
    assert files.context_of("http://t") is None
    context = files.context_of("https://t")
    assert context is not None
    assert [dict(entry[0] for entry in one["subject"])["commonName"] for one in context.get_ca_certs()] == ["authority"]
    into_environment(Files("other"))
    assert from_environment() == Files("other")


@pytest.mark.parametrize(("certificate", "key"), [("client.crt", ""), ("", "client.key")])
def test_a_certificate_and_its_key_belong_together(certificate: str, key: str) -> None:
    with pytest.raises(TlsError, match="belong together"):
        Files("", certificate, key).context()


def test_files_go_before_others_and_no_certificate_gets_the_key_of_another_place() -> None:
    kept = Files("ca", "crt", "key")
    assert NO_FILES.over(kept) == kept
    assert Files("own").over(kept) == Files("own", "crt", "key")
    assert Files("", "own", "").over(kept) == Files("ca", "own", "")
    assert Files("", "", "own").over(kept) == Files("ca", "", "own")
    assert kept.over(Files("x", "y", "z")) == kept
