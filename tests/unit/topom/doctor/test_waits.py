import pytest

from tests.unit.topom.doctor.patients import found, names, server
from topom.doctor.findings import Severity
from topom.reasons import Kind, Reason

RULES = {
    **dict.fromkeys(Kind, ("hurts-now",)),
    **dict.fromkeys((Kind.HOURS, Kind.PACE, Kind.BUSY), ()),
    Kind.PAUSED: ("paused",),
    Kind.PROXY: ("waits",),
}


@pytest.mark.parametrize("kind", Kind)
def test_what_passes_by_itself_is_left_out(kind: Kind) -> None:
    assert names(waits=[("migration", Reason(kind, "it waits"))]) == [*RULES[kind]]


def test_a_reason_is_a_finding() -> None:
    [one] = found(waits=[("group 1", Reason(Kind.DATA, "its master lacks data", 7.0, "see both servers"))])
    assert (one.severity, one.subject) == (Severity.CRITICAL, "group 1")
    assert (one.seen, one.remedy) == ("its master lacks data", "see both servers")
    [one] = found(waits=[("group 1", Reason(Kind.DATA, "its master lacks data"))])
    assert one.remedy == "slotferry status shows how it goes on"


def test_a_silent_server_is_told_once() -> None:
    waits = [("server 10.0.0.3:6379", Reason(Kind.SERVER, "it has failed")), ("server h:1", Reason(Kind.SERVER, "no"))]
    assert names(server(3, silent="gone"), waits=waits) == ["hurts-now", "server-silent"]
