"""SLOWLOG, LATENCY, and the command statistics of INFO: the measurements of the engine, over all workers."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from proxy.commandmetrics import NOTHING, Statistic, added
from proxy.commands import replies
from proxy.commands.arguments import integer
from proxy.commands.family import Answer, Family, Handler
from proxy.commands.notable import SlowRequest
from proxy.commands.services import AskAll, Services
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session
from proxy.engine.statistics import TICK_MICROSECONDS, bucket_limits
from slots.messages import questions
from slots.messages.questions import Asked

DEFAULT_COUNT = 10
BAD_COUNT = b"-ERR count should be greater than or equal to -1\r\n"
DOCTOR = (
    "Slotferry watches for no latency events of its own. LATENCY HISTOGRAM tells how long commands take as a client of "
    "the proxy has it, SLOWLOG GET which ones took long; for what happens within a server, ask the server itself.\n"
)
LIMITS = [limit * TICK_MICROSECONDS for limit in bucket_limits()]
"""Upper limits of the histograms' buckets, in microseconds."""


async def statistics(ask_all: AskAll) -> dict[str, Statistic]:
    """The counts of all workers for each command, by name."""
    total: dict[str, Statistic] = {}
    for answer in await ask_all(questions.CommandStatistics()):
        for name, statistic in answer.items():
            total[name] = added(total.get(name, NOTHING), statistic)
    return dict(sorted(total.items()))


def percentile(statistic: Statistic, share: float) -> float:
    """The microseconds within which this share of a command's calls was answered: the upper limit of a bucket."""
    counts = list(accumulate(statistic[3]))
    wanted = share * counts[-1]
    return next((limit for limit, count in zip(LIMITS, counts, strict=True) if count >= wanted and count), 0.0)


def histogram(statistic: Statistic) -> dict[int, int]:
    """How many calls took up to so many microseconds, by powers of two; the form of LATENCY HISTOGRAM."""
    shown: dict[int, int] = {}
    for place, below in enumerate(accumulate(statistic[3])):
        if statistic[3][place]:
            # Every fourth of the engine's buckets ends at a power of two.
            shown[int(LIMITS[min(place | 3, len(LIMITS) - 1)])] = below
    return shown


class LatencyCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._ask_all = services.ask_all
        self._notable = services.notable
        self._statistics = services.router.loop.statistics

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "SLOWLOG|GET": self.slowlog_get,
            "SLOWLOG|LEN": self.slowlog_len,
            "SLOWLOG|RESET": self.slowlog_reset,
            "LATENCY|HISTOGRAM": self.latency_histogram,
            "LATENCY|LATEST": self.no_events,
            "LATENCY|HISTORY": self.no_events,
            "LATENCY|GRAPH": self.latency_graph,
            "LATENCY|RESET": self.latency_reset,
            "LATENCY|DOCTOR": self.latency_doctor,
        }

    def answers(self) -> dict[type[Asked], Answer]:
        """Those about slow requests, and about each command."""
        return {
            questions.SlowLog: self._newest,
            questions.SlowLogReset: lambda question: self._notable.reset(),
            questions.SlowLogLength: lambda question: len(self._notable),
            questions.CommandStatistics: lambda question: self._statistics.read(),
        }

    def _newest(self, question: questions.SlowLog) -> list[dict[str, Any]]:
        return [entry.to_wire() for entry in self._notable.newest(question.count)]

    # -- SLOWLOG -------------------------------------------------------------------------------------------

    async def slowlog_get(self, session: Session, argv: list[bytes]) -> Outcome:
        """SLOWLOG GET [count]: the newest of all workers. -1 is all of them."""
        if len(argv) > 3:
            name = replies.shown(argv[1])
            return replies.error(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try SLOWLOG HELP.")
        count = integer(argv[2]) if len(argv) == 3 else DEFAULT_COUNT
        if count is None or count < -1:
            return BAD_COUNT
        most = None if count == -1 else count
        answers = await self._ask_all(questions.SlowLog(count=most))
        entries = [SlowRequest(**entry) for answer in answers for entry in answer]
        entries.sort(key=lambda entry: entry.at, reverse=True)
        return replies.array(_entry(entry) for entry in entries[:most])

    async def slowlog_len(self, session: Session, argv: list[bytes]) -> Outcome:
        """SLOWLOG LEN."""
        return replies.integer(sum(await self._ask_all(questions.SlowLogLength())))

    async def slowlog_reset(self, session: Session, argv: list[bytes]) -> Outcome:
        """SLOWLOG RESET."""
        await self._ask_all(questions.SlowLogReset())
        return replies.OK

    # -- LATENCY -------------------------------------------------------------------------------------------

    async def latency_histogram(self, session: Session, argv: list[bytes]) -> Outcome:
        """LATENCY HISTOGRAM [command ...]."""
        names = [name.decode(errors="replace").lower() for name in argv[2:]]
        measured = await statistics(self._ask_all)
        if names:
            # The name of a command also means its subcommands.
            measured = {
                name: statistic
                for name, statistic in measured.items()
                if any(name == asked or name.startswith(asked + "|") for asked in names)
            }
        shown = {name: _calls(statistic, session.protocol) for name, statistic in measured.items()}
        return replies.mapping(shown, session.protocol)

    def no_events(self, session: Session, argv: list[bytes]) -> Outcome:
        """LATENCY LATEST, LATENCY HISTORY event."""
        return replies.array([])

    def latency_graph(self, session: Session, argv: list[bytes]) -> Outcome:
        """LATENCY GRAPH event."""
        return replies.error(f"ERR No samples available for event '{replies.shown(argv[2])}'")

    def latency_reset(self, session: Session, argv: list[bytes]) -> Outcome:
        """LATENCY RESET [event ...]: the number of events that were reset, which is 0."""
        return replies.integer(0)

    def latency_doctor(self, session: Session, argv: list[bytes]) -> Outcome:
        """LATENCY DOCTOR."""
        return replies.verbatim(DOCTOR, session.protocol)


def _entry(entry: SlowRequest) -> bytes:
    """One entry of SLOWLOG GET. Instead of the arguments, it has the command, its key, its slot and its server."""
    words: list[bytes | str] = [entry.command]
    if entry.key_bytes:
        key = entry.key.encode(errors="surrogateescape")
        left_out = entry.key_bytes - len(key)
        words.append(b"key " + key + (b"... (%d more bytes)" % left_out if left_out else b""))
    if entry.slot >= 0:
        words.append(f"slot {entry.slot}")
    if entry.server:
        words.append(f"server {entry.server}")
    return replies.array(
        [
            replies.integer(entry.id),
            replies.integer(int(entry.at)),
            replies.integer(entry.microseconds),
            replies.array(map(replies.bulk, words)),
            replies.bulk(entry.client),
            replies.bulk(entry.client_name),
        ]
    )


def _calls(statistic: Statistic, protocol: int) -> bytes:
    return replies.mapping(
        {"calls": replies.integer(statistic[0]), "histogram_usec": _numbers(histogram(statistic), protocol)}, protocol
    )


def _numbers(numbers: Mapping[int, int], protocol: int) -> bytes:
    body = b"".join(replies.integer(limit) + replies.integer(count) for limit, count in numbers.items())
    return b"%%%d\r\n%b" % (len(numbers), body) if protocol == 3 else b"*%d\r\n%b" % (len(numbers) * 2, body)
