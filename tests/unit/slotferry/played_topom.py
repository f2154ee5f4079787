"""A topom that is played by a function, for verbs of the command line."""

from collections.abc import Callable

import httpx
import pytest

from slotferry.client import TopomClient
from slotferry.operator import options
from slots.topomtls import Files


def play_topom(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[httpx.Request], httpx.Response]
) -> list[httpx.Request]:
    """Have the verbs ask a topom that answers so; give the list of what it will be asked."""
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return answer(request)

    def connect(url: str, token: str, tls: Files) -> TopomClient:
        return TopomClient(url, token, httpx.MockTransport(handler), tls)

    monkeypatch.setattr(options, "TopomClient", connect)
    return requests
