"""The proxy's counters, and the HTTP address that serves them: ``/metrics`` for Prometheus, ``/livez``, ``/readyz``.

The supervisor's event loop answers, and ``/livez`` waits for nothing else: a supervisor that answers does not hang. It
ends workers that hang by itself, so there is nothing else that only a restart would mend.

**bounded**: the size of a request, its time, and the connections at once. One more takes the place of the oldest, so
clients that say nothing keep no probe out.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from proxy.commandmetrics import CommandCounters
from proxy.listening import ListenError
from proxy.supervisor.trafficmetrics import TrafficCounters
from proxy.supervisor.workermetrics import WORKER_METRICS
from slots import address
from slots.version import build_info

REQUEST_SECONDS = 5.0
REQUEST_LIMIT_BYTES = 16 * 1024
CONNECTIONS = 32
"""HTTP connections served at once; for one more, the oldest is closed."""

Number = int | float


class Counters:
    """The newest counters of each worker, and the sum of ended workers."""

    def __init__(self) -> None:
        self._by_worker: dict[int, Mapping[str, Number]] = {}
        self._of_the_dead: dict[str, Number] = {}
        self.commands = CommandCounters()
        """The same for each command."""
        self.traffic = TrafficCounters()
        """For each server and user."""
        self.restarts = 0
        """Workers that died and were started again."""

    def update(self, index: int, counters: Mapping[str, Number]) -> None:
        """Take the newest counters of a worker."""
        self._by_worker[index] = counters

    def ended(self, index: int) -> None:
        """The worker has ended; its counts stay in the sum."""
        self.commands.ended(index)
        for name, value in self._by_worker.pop(index, {}).items():
            if name in WORKER_METRICS and WORKER_METRICS[name].grows:
                self._of_the_dead[name] = self._of_the_dead.get(name, 0) + value

    def by_worker(self) -> dict[int, Mapping[str, Number]]:
        """By worker index."""
        return dict(sorted(self._by_worker.items()))

    def total(self) -> dict[str, Number]:
        """Sums over all workers; counters that only grow do not shrink when a worker dies."""
        total: dict[str, Number] = {"requests": 0, "errors": 0, "clients": 0, "held": 0, **self._of_the_dead}
        for counters in self._by_worker.values():
            for name, value in counters.items():
                total[name] = total.get(name, 0) + value
        return total


class ProxyCollector(Collector):
    """Makes Prometheus metrics from :class:`Counters` and from the supervisor's own figures.

    Args:
        own: gives the supervisor's figures, all gauges: name, then help and value.
        groups: gives the group of each server.
    """

    def __init__(
        self,
        counters: Counters,
        own: Callable[[], Mapping[str, tuple[str, Number]]],
        groups: Callable[[], Mapping[str, int]],
    ) -> None:
        self._counters = counters
        self._own = own
        self._groups = groups

    def collect(self) -> Iterator[Metric]:
        """One metric family for each counter, labelled with the worker's index."""
        yield build_info("slotferry_proxy")
        for name, (text, value) in self._own().items():
            yield GaugeMetricFamily(f"slotferry_proxy_{name}", text, value)
        yield CounterMetricFamily(
            "slotferry_proxy_worker_restarts", "Workers that died and were started again.", self._counters.restarts
        )
        by_worker = self._counters.by_worker()
        for name, metric in WORKER_METRICS.items():
            kind = CounterMetricFamily if metric.grows else GaugeMetricFamily
            family = kind(f"slotferry_proxy_{name}", metric.text, labels=["worker"])
            for index, counters in by_worker.items():
                if name in counters:
                    family.add_metric([str(index)], counters[name])
            yield family
        yield from self._counters.commands.metrics()
        yield from self._counters.traffic.metrics(self._groups())


class MetricsServer:
    """A small HTTP server with three addresses and no state.

    Args:
        collector: the metrics.
        not_ready: gives why no client should be sent to this proxy, in a sentence; None if clients are served.
    """

    def __init__(self, collector: Collector, not_ready: Callable[[], str | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._not_ready = not_ready
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first

    async def start(self, listen: str) -> str:
        """Listen on ``host:port`` (port 0: a free one) and give the true address. Raises :class:`ListenError`."""
        host, port = address.split(listen)
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=REQUEST_LIMIT_BYTES)
        except OSError as error:
            raise ListenError(
                f"Cannot serve metrics on {listen}: {error.strerror or error}. Choose another address, or none, "
                "with the setting metrics."
            ) from error
        return address.join(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Stop listening and close open connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()

        def over(task: asyncio.Task[None]) -> None:
            self._open.pop(task, None)
            if task.cancelled():
                writer.transport.abort()

        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = None
        task.add_done_callback(over)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request with one response, no keep-alive."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._respond(head.split(b"\r\n", 1)[0])
                lines = [
                    f"HTTP/1.1 {status.value} {status.phrase}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                ]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
                if not head.startswith(b"HEAD "):
                    writer.write(body)
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.transport.abort()
        else:
            writer.close()

    def _respond(self, request_line: bytes) -> tuple[HTTPStatus, str, bytes]:
        parts = request_line.split(b" ")
        if len(parts) != 3:
            return HTTPStatus.BAD_REQUEST, "text/plain", b"This is not an HTTP request.\n"
        method, target, _ = parts
        path = target.split(b"?", 1)[0]
        if path not in (b"/metrics", b"/livez", b"/readyz"):
            return HTTPStatus.NOT_FOUND, "text/plain", b"Here are /metrics, /livez and /readyz.\n"
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"Only GET and HEAD are served.\n"
        if path == b"/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        missing = self._not_ready() if path == b"/readyz" else None
        if missing is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", missing.encode() + b"\n"
        return HTTPStatus.OK, "text/plain", b"ok\n"
