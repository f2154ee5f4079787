"""What each worker counts, beside commands, and what Prometheus is told that it is.

A worker sends its figures by these names (:class:`proxy.worker.figures.Figures`), and the supervisor shows them
(:mod:`proxy.supervisor.metrics`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerMetric:
    """One figure.

    Attributes:
        text: what it is, in a sentence.
        grows: whether it only grows while the worker lives.
    """

    text: str
    grows: bool = True


WORKER_METRICS = {
    "requests": WorkerMetric("Requests of clients; each counts once, when it is answered or sent to its server."),
    "errors": WorkerMetric("Error replies to clients, of servers and of the proxy itself."),
    "shed": WorkerMetric("Requests of sheddable users that were refused because their server was slow."),
    "cached": WorkerMetric("GETs of hot keys that were answered without their server, for users with cached_reads."),
    "clients": WorkerMetric("Clients that are connected.", grows=False),
    "max_clients": WorkerMetric("Clients that may be connected.", grows=False),
    "max_clients_lacking": WorkerMetric("By how many that is less than was set, for lack of open files.", grows=False),
    "connections": WorkerMetric("Connections that clients have opened and the proxy has accepted."),
    "refused": WorkerMetric("Connections that were refused because there were too many clients."),
    "arriving": WorkerMetric("Connections whose TLS handshake or PROXY header is awaited.", grows=False),
    "arrivals_failed": WorkerMetric("Connections that ended because their TLS handshake or PROXY header failed."),
    "authentications_failed": WorkerMetric("AUTH and HELLO with a wrong name or password."),
    "logins_refused": WorkerMetric(
        "Clients of users that may not come from there, or that have no connection free there."
    ),
    "held": WorkerMetric("Requests that wait because their slot is locked.", grows=False),
    "moving": WorkerMetric("Keys that requests wait for while they move.", grows=False),
    "moved": WorkerMetric("Keys that were moved because a request waited for them, or that had moved already."),
    "replica_slots": WorkerMetric("Slots whose keys may be read from a replica.", grows=False),
    "in_flight": WorkerMetric("Requests that a server has yet to answer, and keys on their way.", grows=False),
    "cpu_seconds": WorkerMetric("CPU time that the worker's process has used, in seconds."),
    "memory_bytes": WorkerMetric("Memory of the worker's process, in bytes.", grows=False),
}
"""By name, without the prefix and what Prometheus adds."""
