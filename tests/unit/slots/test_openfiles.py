"""The limit of open files is raised as far as the system allows it, and never lowered."""

import pytest

from slots import openfiles
from slots.openfiles import raise_limit

INFINITE = openfiles.resource.RLIM_INFINITY


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was asked of the system."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(openfiles.resource, "setrlimit", lambda of, limits: asked.append(limits))
    return asked


@pytest.mark.parametrize(
    ("now", "most", "given", "asked"),
    [
        (100, 4096, 1000, [(1000, 4096)]),
        (100, 500, 500, [(500, 500)]),
        (100, INFINITE, 1000, [(1000, INFINITE)]),
        (1000, 4096, 1000, []),
        (2000, 4096, 1000, []),
        (INFINITE, INFINITE, 1000, []),
    ],
)
def test_as_far_as_the_system_allows_it(
    monkeypatch: pytest.MonkeyPatch,
    raised: list[tuple[int, int]],
    now: int,
    most: int,
    given: int,
    asked: list[tuple[int, int]],
) -> None:
    monkeypatch.setattr(openfiles.resource, "getrlimit", lambda of: (now, most))
    assert raise_limit(1000) == given
    assert raised == asked


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_system_that_refuses_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(of: int, limits: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(openfiles.resource, "getrlimit", lambda of: (100, INFINITE))
    monkeypatch.setattr(openfiles.resource, "setrlimit", refuse)
    assert raise_limit(1000) == 100
