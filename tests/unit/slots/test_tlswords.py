"""What goes wrong with TLS at a server is said in words that tell it from other failures, and from each other."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slots.access import ServerAccess, ServerTls
from slots.failures import FAILURES, in_words
from slots.tls import server_context
from slots.tlswords import Trouble, trouble
from tests.certificates import Authority, Issued

LIMIT_SECONDS = 60.0


@asynccontextmanager
async def server(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """What speaks with a client of Redis as far as a PONG."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1000):
            writer.write(b"+PONG\r\n")
        await reader.read(1000)
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def failure(port: int, tls: ServerTls, host: str = "127.0.0.1") -> BaseException:
    client = ServerAccess(tls=tls).client(host, port)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(FAILURES) as failed:
                await client.ping()
    finally:
        await client.aclose()
    return failed.value


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.long
async def test_a_server_that_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("server")
    async with server(server_context(issued.certificate, issued.key, "", "none")) as port:
        stranger = await failure(port, ServerTls(Authority(tmp_path, "other").file))
        elsewhere = await failure(port, ServerTls(authority.file), "localhost")
    assert in_words(stranger) == "no authority of redis_tls_ca has signed its certificate"
    assert in_words(elsewhere).startswith("its certificate is not for this host")


@pytest.mark.long
async def test_a_server_whose_certificate_has_expired(authority: Authority) -> None:
    issued = authority.issue("server", ends=datetime.timedelta(minutes=-1))
    async with server(server_context(issued.certificate, issued.key, "", "none")) as port:
        assert in_words(await failure(port, ServerTls(authority.file))) == "its certificate has expired"


@pytest.mark.long
async def test_a_server_without_tls(authority: Authority) -> None:
    async with server(None) as port:
        assert in_words(await failure(port, ServerTls(authority.file))).startswith("it speaks no TLS")


@pytest.mark.long
@pytest.mark.parametrize("shown", ["none", "of another authority", "not for clients"])
async def test_a_server_that_does_not_take_what_is_shown_to_it(
    authority: Authority, tmp_path: Path, shown: str
) -> None:
    issued = authority.issue("server")
    if shown == "none":
        tls = ServerTls(authority.file)
    else:
        other = authority if shown == "not for clients" else Authority(tmp_path, "other")
        client: Issued = other.issue("client", servers_only=shown == "not for clients")
        tls = ServerTls(authority.file, client.certificate, client.key)
    async with server(server_context(issued.certificate, issued.key, authority.file, "required")) as port:
        said = in_words(await failure(port, tls))
    # The client may also be cut off before it reads why.
    cut_off = ("it closed the connection", "the connection broke", "connection reset by peer", "broken pipe")
    assert "redis_tls_certificate" in said or said in cut_off


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("(1, '[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required')", "CERTIFICATE_WANTED"),
        ("Error 1 while writing to socket. [SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca.", "NOT_TRUSTED"),
        ("(1, '[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired')", "NOT_TAKEN"),
        ("(1, '[SSL: SSLV3_ALERT_UNSUPPORTED_CERTIFICATE] alert unsupported certificate')", "NOT_FOR_CLIENTS"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid", "TOO_EARLY"),
    ],
)
def test_what_a_server_says_as_it_cuts_a_client_off(said: str, meaning: str) -> None:
    assert trouble(said) is Trouble[meaning]


def test_other_failures_are_none_of_tls() -> None:
    assert trouble("Error 1 connecting to h:1. Operation not permitted.") is None
