"""What shared stores report when something is wrong, and how often; the tests play the store's servers."""

import asyncio
from typing import cast

import pytest
from structlog.testing import capture_logs

from slots.access import ServerTls
from topom.store import Leader, StoreError, shared
from topom.store.books import Cells
from topom.store.etcd_gateway import EtcdGateway
from topom.store.lease import Lease
from topom.store.shared import SharedStore


class Unwilling(SharedStore):
    """Lets nobody stand for election, for each of these reasons in turn."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(cast(Cells, None))
        self.reasons = reasons

    async def open(self) -> None: ...

    async def leader(self) -> Leader | None:
        return None

    async def _changed(self, mark: int, seconds: float) -> None: ...

    async def _disconnect(self) -> None: ...

    async def _stand(self, instance: str, url: str, lease_seconds: float) -> Lease:
        if self.reasons:
            raise StoreError(self.reasons.pop(0))
        raise asyncio.CancelledError


async def test_why_nobody_can_be_elected_is_said_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(shared, "LONGEST_WAIT_SECONDS", 0.001)
    store = Unwilling([*(20 * ["wrong password"]), "no answer", *(5 * ["wrong password"])])
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await store.campaign("i", "http://a", 5.0)
    assert [entry["reason"] for entry in logs] == ["wrong password", "no answer", "wrong password"]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"])
async def test_an_etcd_that_speaks_no_tls_is_told_from_one_that_is_not_there(answer: bytes) -> None:
    async def in_the_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(in_the_clear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Nobody listens at port 1.
    for address, told in ((f"127.0.0.1:{port}", True), ("127.0.0.1:1", False)):
        gateway = EtcdGateway([f"https://{address}"], "", "", ServerTls(), 10.0)
        with pytest.raises(StoreError) as raised:
            await gateway.ask("kv/range", {})
        assert ("does not seem to speak TLS there; set store_tls = false" in str(raised.value)) is told
        await gateway.close()
    server.close()
