"""What Prometheus is shown of servers and users: sums, of a bounded number of names."""

import pytest
from prometheus_client.core import Metric

from proxy.supervisor import trafficmetrics
from proxy.supervisor.trafficmetrics import TrafficCounters
from slots.messages.load import ServerTraffic, Traffic, UserDemand


def values(metrics: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    (family,) = (metric for metric in metrics if metric.name == f"slotferry_proxy_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_each_figure_is_a_sum_by_server_and_by_user() -> None:
    counters = TrafficCounters()
    for _ in range(2):
        counters.add({"a:1": ServerTraffic(5, 1, 100, 200, 3000.0, 4)}, {"one": Traffic(4, 2, 30, 40)})
    shown = list(counters.metrics({"a:1": 7}))
    assert {name: values(shown, name)["a:1", "7"] for name, _ in trafficmetrics.SERVER_FIGURES} == {
        "server_requests": 10,
        "server_errors": 2,
        "server_sent_bytes": 200,
        "server_received_bytes": 400,
    }
    (time,) = (metric for metric in shown if metric.name == "slotferry_proxy_server_reply_seconds")
    assert {sample.name.rpartition("_")[2]: sample.value for sample in time.samples} == {
        "count": 8,
        "sum": pytest.approx(0.006),
    }
    assert {name: values(shown, name)["one",] for name, _ in trafficmetrics.USER_FIGURES} == {
        "user_requests": 8,
        "user_errors": 4,
        "user_received_bytes": 60,
        "user_sent_bytes": 80,
    }


def test_what_limits_delayed_and_refused_is_a_sum_by_user() -> None:
    counters = TrafficCounters()
    for _ in range(2):
        counters.add({}, {"one": Traffic(4, 2, 30, 40)}, {"one": UserDemand(100, 1000, 3, 2, 250_000)})
    shown = list(counters.metrics({}))
    found = {name: values(shown, name)["one",] for name, _ in trafficmetrics.LIMIT_FIGURES}
    assert found == {"user_delayed": 6, "user_refused": 4, "user_worker_seconds": 0.5}


def test_names_beyond_the_bound_are_one() -> None:
    counters = TrafficCounters()
    for _ in range(2):
        for number in range(trafficmetrics.MOST_USERS + 10):
            counters.add({}, {f"user{number}": Traffic(1, 0, 0, 0)})
    found = values(list(counters.metrics({})), "user_requests")
    assert len(found) == trafficmetrics.MOST_USERS + 1
    assert found["user0",] == 2
    assert found["other",] == 20


def test_servers_that_have_gone_are_shown_for_an_hour() -> None:
    now = 0.0
    counters = TrafficCounters(lambda: now)
    counters.add({"a:1": ServerTraffic(1, 0, 1, 1, 1.0, 1), "b:1": ServerTraffic(1, 0, 1, 1, 1.0, 1)}, {})
    now = 3599.0
    assert values(list(counters.metrics({"a:1": 1})), "server_requests") == {("a:1", "1"): 1, ("b:1", ""): 1}
    now = 3601.0
    assert values(list(counters.metrics({"a:1": 1})), "server_requests") == {("a:1", "1"): 1}
