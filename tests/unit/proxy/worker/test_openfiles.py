"""Open files: as many as the clients need, or as many clients as there may be open files."""

import resource

import pytest
import structlog.testing

from proxy.settings import ProxySettings
from proxy.worker.openfiles import OTHERS, most_clients
from slots import openfiles

NO_LIMIT = resource.RLIM_INFINITY


class Limits:
    """The system's limits, played."""

    def __init__(self, now: int, most: int, strict: bool = False) -> None:
        self.now = now
        self.most = most
        self.strict = strict

    def getrlimit(self, kind: int) -> tuple[int, int]:
        return self.now, self.most

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        if self.strict:
            raise ValueError("current limit exceeds maximum limit")
        self.now, self.most = limits


@pytest.mark.parametrize(
    ("limits", "clients", "files"),
    [
        # Enough.
        (Limits(1_000_000, 1_000_000), 5000, 1_000_000),
        (Limits(NO_LIMIT, NO_LIMIT), 5000, NO_LIMIT),
        # Enough, once it is asked for.
        (Limits(1024, 1_000_000), 5000, 6000 + OTHERS),
        (Limits(1024, NO_LIMIT), 5000, 6000 + OTHERS),
        (Limits(1024, 6000 + OTHERS), 5000, 6000 + OTHERS),
        # Not enough.
        (Limits(1024, 5999 + OTHERS), 4999, 5999 + OTHERS),
        (Limits(1024, 3000 + OTHERS), 2000, 3000 + OTHERS),
        (Limits(1024, 1500 + OTHERS), 750, 1500 + OTHERS),
        (Limits(1024, 1024), (1024 - OTHERS) // 2, 1024),
        (Limits(1024, NO_LIMIT, strict=True), (1024 - OTHERS) // 2, 1024),
        (Limits(100, 100), 1, 100),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, limits: Limits, clients: int, files: int) -> None:
    monkeypatch.setattr(openfiles.resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(openfiles.resource, "setrlimit", limits.setrlimit)
    with structlog.testing.capture_logs() as logs:
        assert most_clients(ProxySettings(max_clients=5000, own_connections=1000)) == clients
    assert limits.now == files
    assert [entry["clients"] for entry in logs] == ([clients] if clients < 5000 else [])
    assert all("LimitNOFILE" in entry["reason"] for entry in logs)
