"""The measurements of many clients: spans of a probe's time, the worker's memory in each, and the figures made of
them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks import processes
from benchmarks.goals import IDLE_BYTES, LATENCY_TO_NOISE, MEMORY_TO_LIMITS
from benchmarks.probe import Kind, Request
from benchmarks.report import Spread

BEFORE = "before"
FILLING = "filling"
BESIDE = "beside"
AFTER = "after"
QUIET = (BEFORE, AFTER)
"""The spells in which no client is stuck."""
MIB = 1 << 20


@dataclass(frozen=True)
class Span:
    """A span of the monotonic clock within a spell, with the highest memory in it.

    ``kernel_bytes`` is what the system keeps for all TCP connections of the machine.
    """

    spell: str
    begin: float
    end: float
    worker_bytes: int
    kernel_bytes: int


@dataclass(frozen=True)
class Window:
    """The probe's figures in one span; times are in milliseconds."""

    spell: str
    seconds: float
    requests: int
    failed: int
    p50: float
    p99: float
    maximum: float
    worker_bytes: int
    kernel_bytes: int

    @classmethod
    def of(cls, requests: Sequence[Request], span: Span) -> "Window":
        """The window of the requests that began within the span."""
        within = [request for request in requests if span.begin <= request.at < span.end]
        times = sorted(1e3 * request.seconds for request in within if request.kind is Kind.ANSWERED)
        p50, p99, maximum = (processes.percentile(times, percent) for percent in (50, 99, 100))
        return cls(
            spell=span.spell,
            seconds=span.end - span.begin,
            requests=len(within),
            failed=len(within) - len(times),
            p50=p50,
            p99=p99,
            maximum=maximum,
            worker_bytes=span.worker_bytes,
            kernel_bytes=span.kernel_bytes,
        )


@dataclass(frozen=True)
class Crowd:
    """The figures of one run.

    Attributes:
        clients: how many are connected, including those that are stuck for a while.
        stuck_requests: requests for a large value that the stuck clients could send.
        stuck_left: how many stuck clients the proxy had not closed at the end of their spell.
        idle_left: clients that never asked again and were still connected at the end.
        base_bytes: the worker's memory before they came; ``held_bytes`` with all of them idle.
        most_bytes: the most memory that it ever had, by the system's count.
        limit_bytes: the further memory that the settings allow: unsent replies, and requests and replies of its
            servers.
    """

    clients: int
    stuck: int
    stuck_requests: int
    stuck_left: int
    idle_left: int
    base_bytes: int
    held_bytes: int
    most_bytes: int
    limit_bytes: int
    windows: list[Window] = field(default_factory=list)

    def p99(self, *spells: str) -> list[float]:
        """The p99 of each window of some spells."""
        return [window.p99 for window in self.windows if window.spell in spells and window.requests]

    @property
    def idle_client_bytes(self) -> float:
        """The worker's memory for one more idle client."""
        return (self.held_bytes - self.base_bytes) / self.clients

    @property
    def grown_bytes(self) -> int:
        """The worker's growth above its memory with all clients idle."""
        return max(0, self.most_bytes - self.held_bytes)

    def values(self) -> dict[str, list[float]]:
        """The series for the goals.

        The noise is the p99 of the quiet windows: each window with stuck readers is divided by the worst of them.
        """
        quiet = max(self.p99(*QUIET), default=0.0)
        return {
            IDLE_BYTES: [self.idle_client_bytes],
            MEMORY_TO_LIMITS: [self.grown_bytes / self.limit_bytes],
            LATENCY_TO_NOISE: [p99 / quiet for p99 in self.p99(BESIDE)] if quiet else [],
        }

    def describe(self) -> list[str]:
        """The figures in sentences."""
        base, held = self.base_bytes / MIB, self.held_bytes / MIB
        lost = self.clients - self.stuck - self.idle_left
        lines = [
            f"an idle client costs {self.idle_client_bytes / 1024:.2f} KiB: the worker has {base:.1f} MiB before "
            f"{self.clients} clients come, {held:.1f} MiB then",
            f"{self.stuck} stuck readers sent {self.stuck_requests} requests; beside them the worker grew by "
            f"{self.grown_bytes / MIB:.1f} MiB at the most, {self.limit_bytes / MIB:.0f} MiB are allowed; "
            f"{self.stuck_left} of them and all but {lost} of the idle were still connected",
        ]
        for window in self.windows:
            if window.spell == FILLING:
                lines.append(
                    f"while they got stuck, for {window.seconds:.1f} s, the others' p99 was {window.p99:.2f} ms, "
                    f"the longest {window.maximum:.2f} ms"
                )
        if self.p99(*QUIET) and self.p99(BESIDE):
            lines.append(
                f"the others' p99, ms: {Spread.of(self.p99(*QUIET)).show()} in {len(self.p99(*QUIET))} quiet windows, "
                f"{Spread.of(self.p99(BESIDE)).show()} in {len(self.p99(BESIDE))} beside the stuck"
            )
        return lines
