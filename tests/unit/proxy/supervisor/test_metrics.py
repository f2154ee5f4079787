import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.engine.statistics import bucket_limits
from proxy.listening import ListenError
from proxy.supervisor import metrics
from proxy.supervisor.metrics import Counters, MetricsServer, ProxyCollector
from proxy.supervisor.workermetrics import WORKER_METRICS
from slots.messages.load import ServerTraffic, Traffic
from slots.version import program_version
from tests import promtool


class Running:
    def __init__(self) -> None:
        self.counters = Counters()
        self.missing: str | None = None
        collector = ProxyCollector(self.counters, lambda: {"epoch": ("Epoch.", 7)}, lambda: {"10.0.0.2:6379": 3})
        self.server = MetricsServer(collector, lambda: self.missing)
        self.address = ""

    async def send(self, request: bytes) -> tuple[str, str]:
        """Status line and body of the response; both empty if there is none."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        response = ""
        with contextlib.suppress(OSError):  # a connection that is refused may end at any of these
            writer.write(request)
            writer.write_eof()
            response = (await reader.read()).decode()
        writer.close()
        head, _, body = response.partition("\r\n\r\n")
        return head.split("\r\n")[0], body

    async def get(self, path: str) -> tuple[str, str]:
        return await self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    async def samples(self) -> dict[tuple[str, str | None], float]:
        _, body = await self.get("/metrics")
        families: list[Any] = list(text_string_to_metric_families(body))
        return {(one.name, one.labels.get("worker")): one.value for family in families for one in family.samples}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    started = Running()
    started.address = await started.server.start("127.0.0.1:0")
    yield started
    await started.server.close()


async def test_counters_are_shown_for_each_worker(running: Running) -> None:
    running.counters.update(0, {"requests": 5, "clients": 2})
    running.counters.update(1, {"requests": 7, "clients": 1})
    samples = await running.samples()
    assert samples["slotferry_proxy_requests_total", "0"] == 5
    assert samples["slotferry_proxy_requests_total", "1"] == 7
    assert samples["slotferry_proxy_clients", "1"] == 1
    assert samples["slotferry_proxy_epoch", None] == 7


async def test_every_figure_says_what_it_is_and_prometheus_finds_no_fault(running: Running) -> None:
    running.counters.update(0, dict.fromkeys(WORKER_METRICS, 1) | {"of another version": 1})
    running.counters.commands.update(0, {"get": (3, 1, 12.0, [3, *[0] * (len(bucket_limits()) - 1)], 60, 15)})
    running.counters.traffic.add(
        {"10.0.0.2:6379": ServerTraffic(3, 1, 60, 15, 12.0, 3)}, {"default": Traffic(3, 1, 60, 15)}
    )
    _, body = await running.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(body)}
    for name, metric in WORKER_METRICS.items():
        assert families[f"slotferry_proxy_{name}"].documentation == metric.text
        assert families[f"slotferry_proxy_{name}"].type == ("counter" if metric.grows else "gauge")
    assert families["slotferry_proxy_build_info"].samples[0].labels == {"version": program_version()}
    assert "another" not in body
    await asyncio.to_thread(promtool.check, body)


def test_what_the_dead_counted_stays_in_the_sum_but_not_their_clients() -> None:
    counters = Counters()
    counters.update(0, {"requests": 5, "clients": 2})
    counters.update(1, {"requests": 7, "clients": 1})
    counters.ended(0)
    assert counters.total() == {"requests": 12, "errors": 0, "clients": 1, "held": 0}
    counters.update(0, {"requests": 1, "clients": 1})
    assert counters.total()["requests"] == 13


async def test_probes_are_a_status_and_a_reason_and_who_is_not_ready_lives(running: Running) -> None:
    well = ("HTTP/1.1 200 OK", "ok\n")
    assert await running.get("/readyz?verbose") == await running.get("/livez") == well
    running.missing = "this proxy drains"
    assert await running.get("/readyz") == ("HTTP/1.1 503 Service Unavailable", "this proxy drains\n")
    assert await running.get("/livez") == well


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"PING\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET /metrics", ""),
        (b"x" * 100_000, ""),
    ],
)
async def test_other_requests_are_refused(running: Running, request_bytes: bytes, status: str) -> None:
    assert (await running.send(request_bytes))[0] == status
    assert (await running.get("/livez"))[0] == "HTTP/1.1 200 OK"


async def test_head_has_no_body(running: Running) -> None:
    assert await running.send(b"HEAD /readyz HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "")


async def test_a_client_that_says_nothing_is_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_SECONDS", 0.01)
    host, _, port = running.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_connections_have_a_limit(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CONNECTIONS", 2)
    host, _, port = running.address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    assert (await running.get("/livez"))[0] == "HTTP/1.1 200 OK", "clients that say nothing keep no probe out"
    with contextlib.suppress(ConnectionError):
        assert await silent[0][0].read() == b"", "the oldest has made room"
    assert not silent[1][0].at_eof()
    for _, writer in silent:
        writer.close()


async def test_an_address_in_use_is_explained(running: Running) -> None:
    with pytest.raises(ListenError, match=r"Cannot serve metrics on .*setting metrics"):
        await Running().server.start(running.address)
