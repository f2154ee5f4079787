"""What one topom tells Prometheus: :class:`TopomCollector`, shown at ``/metrics`` (:mod:`topom.api.metrics`).

A topom that does not lead shows that, and what the store's newest state says. It leaves out what only a leader knows,
so a sum or a maximum over all topoms is the leader's figure. Counters begin anew with each term, as Prometheus expects
it of a restarted process.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slots.slot import OFFLINE
from slots.states import SlotState
from slots.table import SlotTable
from slots.version import build_info
from topom.cluster.topology import all_servers
from topom.masters.outcomes import Kind, Outcome
from topom.servers.detector import Condition
from topom.term.service import Topom

PREFIX = "slotferry_topom_"
REST = "rest"
"""State of a slot that is in a group and does not move."""
NO_GROUP = "offline"
MOST_GROUPS = 1000
"""Groups whose load is told: the busiest."""


class TopomCollector(Collector):
    """Makes the metrics of a topom process.

    Args:
        served: the topom whose state is shown; None while nothing is known.
        term: the term while this topom leads, 0 if no other topom uses the store; None while it does not lead.
        store: the metrics of the store's calls.
        failures: how often each of the process's own loops failed.
    """

    def __init__(
        self,
        served: Callable[[], Topom | None],
        term: Callable[[], int | None],
        store: Callable[[], Iterable[Metric]] = lambda: (),
        failures: Mapping[str, int] | None = None,
    ) -> None:
        self._served = served
        self._term = term
        self._store = store
        self._failures = failures or {}

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        topom = self._served()
        term = self._term()
        leads = topom is not None and term is not None and topom.leads()
        yield build_info("slotferry_topom")
        yield _gauge("leads", "1 while this topom leads, else 0.", int(leads))
        yield from self._store()
        yield self._loop_failures(topom)
        if topom is None:
            return
        yield from _of_state(topom)
        if leads:
            assert term is not None
            yield _gauge("term", "The term in which this topom leads; 0 where no other uses the store.", term)
            yield from _of_members(topom)
            yield from _of_moves(topom)
            yield from _of_masters(topom)
            yield from _of_load(topom)

    def _loop_failures(self, topom: Topom | None) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}loop_failures", "How often what goes on by itself failed and was started again.", labels=["loop"]
        )
        for name, count in {**self._failures, **(topom.tending.failures if topom is not None else {})}.items():
            family.add_metric([name], count)
        return family


def _of_state(topom: Topom) -> Iterator[Metric]:
    state = topom.ledger.state
    yield _gauge("table_epoch", "Epoch of the slot table.", state.table.epoch)
    yield _gauges("slots", "Slots by state.", "state", _slots(state.table))
    yield CounterMetricFamily(
        f"{PREFIX}events", "Events since the store was filled.", state.events[-1].id if state.events else 0
    )
    yield _gauge("protection_lifted", "1 while an operator has lifted it.", int(state.protection_lifted is not None))
    yield _gauge("paused", "1 while an operator has topom do nothing by itself.", int(state.pause is not None))
    last = topom.sizes.known.last
    if last is not None:
        age = max(0.0, topom.sizes.clock() - last.taken_at)
        yield _gauge("sizes_age_seconds", "Since the latest measurement of slots' sizes began.", age)


def _slots(table: SlotTable) -> Mapping[str, int]:
    counts = Counter(
        slot.action.state.value if slot.action else NO_GROUP if slot.group_id == OFFLINE else REST
        for slot in table.slots
    )
    return {name: counts[name] for name in (NO_GROUP, REST, *(state.value for state in SlotState))}


def _of_members(topom: Topom) -> Iterator[Metric]:
    proxies = Counter(
        "lost" if member.lost else "leaving" if member.draining else "online" for member in topom.members.all()
    )
    states = ("online", "lost", "leaving")
    yield _gauges("proxies", "Proxies by state.", "state", {name: proxies[name] for name in states})
    servers = Counter(topom.health.of(server).condition for server in all_servers(topom.ledger.table))
    conditions = {condition.value: servers[condition] for condition in Condition}
    yield _gauges("servers", "Redis servers by what is thought of them.", "condition", conditions)
    twice = len(topom.identities.conflicts())
    yield _gauge("servers_twice", "Redis servers that topom has by more than one address.", twice)
    protection = topom.protection
    yield _gauge("protection", "1 while so many are lost that nothing is done by itself.", int(protection.active))
    yield _gauge("members_lost", "Servers that have failed and proxies that are lost.", protection.lost)


def _of_moves(topom: Topom) -> Iterator[Metric]:
    actions = topom.actions
    totals = actions.totals
    for name, text, value in (
        ("slots_moved", "Slots that came to rest where they were sent.", actions.slots_moved),
        ("keys_moved", "Keys that went to their target.", totals.keys_moved),
        ("bytes_moved", "Memory that those keys took.", totals.bytes_moved),
    ):
        yield CounterMetricFamily(f"{PREFIX}{name}", text, value)
    yield _gauge("batches", "Batches of slots that are under way.", len(actions.batches))
    stuck = len(actions.levelling.stuck)
    yield _gauge("copies_not_level", "Copies by the stream whose lag does not sink.", stuck)
    lag = max((lag for lag in actions.lags().values() if lag is not None), default=0)
    yield _gauge("copy_lag_bytes", "The most that is missing at a target of what its source has written.", lag)
    yield _gauge("keys_per_second", "Keys that moved over the last few seconds.", totals.keys_per_second)
    migrators = topom.migrators.all()
    yield _gauge("migrators", "Processes that make copies by the replication stream, registered now.", len(migrators))
    yield _gauge("copies", "Copies by the replication stream that they have.", topom.migrators.copies)
    if actions.last_batch_seconds is not None:
        seconds = actions.last_batch_seconds
        yield _gauge("last_batch_seconds", "How long the latest batch took that came to its end.", seconds)


def _of_masters(topom: Topom) -> Iterator[Metric]:
    counts = Counter(topom.promotions.outcomes.counts)
    counts[Kind.SENTINEL, Outcome.DONE] += topom.sentinels.switches
    family = CounterMetricFamily(
        f"{PREFIX}master_changes", "Changes of a group's master, by what they came to.", labels=["kind", "outcome"]
    )
    for kind in Kind:
        for outcome in Outcome:
            family.add_metric([kind.value, outcome.value], counts[kind, outcome])
    yield family
    yield _gauge("masters_not_replaced", "Masters that have failed and have no successor.", len(topom.masters.reasons))
    yield _gauges(
        "digest_differences",
        "Keys in which replicas differ from their masters, as checks found; until they are filled anew.",
        "server",
        {entry.server: entry.keys for entry in topom.differing.entries},
    )


def _of_load(topom: Topom) -> Iterator[Metric]:
    groups = topom.load.by_group.busiest(MOST_GROUPS)
    requests = {str(row.name): row.rates.requests for row in groups}
    yield _gauges("group_requests_per_second", "Requests for slots of a group.", "group", requests)
    name, text = f"{PREFIX}group_bytes_per_second", "Bytes of requests and replies for slots of a group."
    family = GaugeMetricFamily(name, text, labels=["group", "direction"])
    for row in groups:
        family.add_metric([str(row.name), "in"], row.rates.bytes_in)
        family.add_metric([str(row.name), "out"], row.rates.bytes_out)
    yield family
    yield _gauge("proxies_telling_load", "Proxies that tell topom what they count.", topom.asking.telling)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", text, value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family
