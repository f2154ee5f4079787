"""The ways in which a link breaks, and which of all faults are tried when nothing else is asked for."""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.integration.breaking_relay import BreakingRelay, Direction, Fault, Matches
from tests.integration.cluster.harness import eventually

EVERY_FAULT = bool(os.environ.get("SLOTFERRY_EVERY_FAULT"))
"""Whether to try every combination, which takes some minutes more."""

T = TypeVar("T")
Break = Callable[[BreakingRelay, Matches], Fault]


def usually(some: Sequence[T], others: Sequence[T]) -> list[T]:
    """Those that are tried always, and with :data:`EVERY_FAULT` the others, too."""
    return [*some, *others] if EVERY_FAULT else list(some)


def cut(relay: BreakingRelay, matches: Matches) -> Fault:
    return relay.cut(matches)


def silent(relay: BreakingRelay, matches: Matches) -> Fault:
    return relay.hold(matches)


def silent_to_server(relay: BreakingRelay, matches: Matches) -> Fault:
    return relay.hold(matches, frozenset({Direction.TO_SERVER}))


def silent_from_server(relay: BreakingRelay, matches: Matches) -> Fault:
    return relay.hold(matches, frozenset({Direction.TO_PEER}))


async def felt(fault: Fault) -> None:
    """Wait until the fault has stopped something."""

    async def look() -> int:
        return fault.met

    await eventually(look, bool, "something to run into the fault")
