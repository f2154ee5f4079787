"""A running proxy takes other files for TLS with clients, all of them or none."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slots.access import ServerTls
from tests.certificates import Authority, Issued
from tests.integration.reloading.processes import OLD, OWN, File, filed_topom
from tests.integration.reloading.proxies import NOW, WORKERS, Proxy

CONNECTIONS = 16
"""So many reach both workers, all but surely."""


class Served:
    """A proxy that serves TLS by the files of ``first``, to clients with a certificate of ``authority``."""

    def __init__(self, proxy: Proxy, folder: Path) -> None:
        self.proxy = proxy
        self.authority = Authority(folder)
        self.first = self.authority.issue("first")
        self.client = self.authority.issue("client")
        self.write(self.first)

    def write(self, issued: Issued, **more: Any) -> None:
        """Have the settings file name these files."""
        said = {"tls_certificate": issued.certificate, "tls_key": issued.key, "tls_client_ca": self.authority.file}
        self.proxy.file.write(
            listen="",
            tls_listen=f"127.0.0.1:{self.proxy.port}",
            tls_client_certificates="required",
            **{**said, **more},
        )

    def break_first(self) -> None:
        """Have the certificate that is shown be half written."""
        Path(self.first.certificate).write_text("half")

    async def connect(self, client: Issued | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        shown = client or self.client
        context = ServerTls(self.authority.file, shown.certificate, shown.key).certificates().context
        return await asyncio.open_connection("127.0.0.1", self.proxy.port, ssl=context)

    async def shown(self) -> set[str]:
        """The certificates that new connections get, by their names."""
        found = set()
        for _ in range(CONNECTIONS):
            _, writer = await self.connect()
            certificate: Any = writer.get_extra_info("peercert")
            found |= {value for part in certificate["subject"] for name, value in part if name == "commonName"}
            writer.close()
        return found


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    file = File(tmp_path / "topom.toml", token=OWN, tokens=[NOW])
    async with filed_topom(tmp_path / "data", file) as topom:
        proxy = Proxy(tmp_path, topom)
        one = Served(proxy, tmp_path)
        proxy.process.start()
        try:
            await proxy.until(lambda: bool(proxy.said("proxy_ready")))
            yield one
        finally:
            await proxy.process.stop()
    said = proxy.process.log.read_text()
    assert OLD not in said
    assert "Traceback" not in said


async def pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"PING\r\n")
    return await reader.readline() == b"+PONG\r\n"


@pytest.mark.long
async def test_other_files_count_for_new_connections_and_those_that_exist_go_on(served: Served, tmp_path: Path) -> None:
    assert await served.shown() == {"first"}
    former = await served.connect()
    assert await pings(*former)

    served.write(served.authority.issue("second"))
    assert sorted((await served.proxy.hang_up())["changed"]) == ["tls_certificate", "tls_key"]
    await served.proxy.until(lambda: len(served.proxy.said("certificates_loaded")) == WORKERS)

    assert await served.shown() == {"second"}
    assert await pings(*former)
    former[1].close()
    # Their authorities, too.
    other = Authority(tmp_path, "other")
    served.write(served.first, tls_client_ca=other.file)
    assert "tls_client_ca" in (await served.proxy.hang_up())["changed"]
    await served.proxy.until(lambda: len(served.proxy.said("certificates_loaded")) == 2 * WORKERS)
    for _ in range(CONNECTIONS):
        reader, writer = await served.connect(other.issue("of-other"))
        assert await pings(reader, writer)
        writer.close()
        with pytest.raises((ssl.SSLError, OSError, AssertionError)):
            assert await pings(*await served.connect())


@pytest.mark.long
async def test_files_that_cannot_be_used_change_nothing(served: Served) -> None:
    second, third = served.authority.issue("second"), served.authority.issue("third")
    for wrong, said in (
        (Issued(second.certificate, third.key), "cannot be used"),
        (Issued("/missing.crt", second.key), "/missing.crt cannot be read"),
        (Issued("", ""), "tls_listen: needs tls_certificate"),
    ):
        served.write(wrong, log_level="debug")
        refused = await served.proxy.hang_up()
        assert refused["event"] == "settings_refused"
        assert said in refused["reason"]
        assert await served.shown() == {"first"}
    served.write(second)
    assert sorted((await served.proxy.hang_up())["changed"]) == ["tls_certificate", "tls_key"]
    await served.proxy.until(lambda: len(served.proxy.said("certificates_loaded")) == WORKERS)
    assert await served.shown() == {"second"}


@pytest.mark.long
async def test_files_in_force_that_are_half_renewed_hold_up_no_other_change(served: Served) -> None:
    served.break_first()
    served.write(served.first, log_level="debug")
    assert (await served.proxy.hang_up())["changed"] == ["log_level"]
    assert await served.shown() == {"first"}
