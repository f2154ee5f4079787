"""How many clients wait or are subscribed: counted for INFO, and not for each one anew."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from proxy.commands.clients.clientlist import COUNTS_SECONDS, ClientList
from slots.messages.questions import ClientCounts


class Sessions:
    """Sessions that know how often they were gone through."""

    def __init__(self, *states: Any) -> None:
        self.states = list(states)
        self.times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return iter([SimpleNamespace(state=state, tracker=None) for state in self.states])


def state(blocking: Any = None, subscription: Any = None) -> Any:
    return SimpleNamespace(blocking=blocking, subscription=subscription)


def test_many_questions_at_once_cost_one_look() -> None:
    sessions = Sessions(None, state(), state(blocking="BLPOP"), state(subscription="news"), state(subscription="more"))
    clock = [100.0]
    services: Any = SimpleNamespace(
        router=SimpleNamespace(sessions=sessions),
        ask_all=None,
        now=lambda: clock[0],
        settings=SimpleNamespace(users=[]),
    )
    count = ClientList(services).answers()[ClientCounts]
    for _ in range(1000):
        assert count(ClientCounts()) == {"blocked": 1, "subscribed": 2, "tracking": 0}
    assert sessions.times == 1
    sessions.states.append(state(blocking="XREAD"))
    clock[0] += COUNTS_SECONDS * 2
    assert count(ClientCounts()) == {"blocked": 2, "subscribed": 2, "tracking": 0}
    assert sessions.times == 2
