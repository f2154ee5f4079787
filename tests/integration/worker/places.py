"""What the tests of a worker's places have in common: connections of all kinds, and looks at log and counters."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import redis.asyncio

from slotferry.processes import free_ports
from tests.certificates import Authority, Issued
from tests.integration.worker.harness import LIMIT, WorkerHarness


def tls_settings(issued: Issued, **more: Any) -> dict[str, Any]:
    return {
        "tls_listen": f"127.0.0.1:{free_ports(1)[0]}",
        "tls_certificate": issued.certificate,
        "tls_key": issued.key,
        **more,
    }


def trusting(authority: Authority, shown: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


def tls_client(worker: WorkerHarness, authority: Authority, **options: Any) -> redis.asyncio.Redis:
    host, port = worker.settings.tls_listen.split(":")
    return redis.asyncio.Redis(host=host, port=int(port), ssl=True, ssl_ca_certs=authority.file, **options)


@contextlib.asynccontextmanager
async def opened(
    address: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to a place of the worker."""
    async with asyncio.timeout(LIMIT):
        if address.startswith("/"):
            reader, writer = await asyncio.open_unix_connection(address, limit=2**26)
        else:
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context, limit=2**26)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(LIMIT):
        return await reader.readline()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What comes until the worker closes the connection."""
    async with asyncio.timeout(LIMIT):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def counted(worker: WorkerHarness, **wanted: int) -> None:
    """Wait until the worker's counters say so."""
    await worker.next(
        lambda message: (
            message.type == "counters" and all(message.counters[name] == value for name, value in wanted.items())
        )
    )


def logged(worker: WorkerHarness, event: str) -> list[dict[str, Any]]:
    text = (worker.directory / "worker.log").read_text()
    entries = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [entry for entry in entries if entry["event"] == event]


async def until_logged(worker: WorkerHarness, event: str, count: int = 1) -> list[dict[str, Any]]:
    async with asyncio.timeout(LIMIT):
        while len(found := logged(worker, event)) < count:
            await asyncio.sleep(0.02)
    return found


async def refused(reader: asyncio.StreamReader) -> bool:
    """Whether the worker ends TLS instead of answering."""
    async with asyncio.timeout(LIMIT):
        try:
            return await reader.read() == b""
        except (ssl.SSLError, ConnectionResetError):
            return True


def spoil(path: str) -> None:
    """Make a file one that cannot be used."""
    Path(path).write_text("not what it was")
