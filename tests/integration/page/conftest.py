"""One browser and one cluster for all tests of the page. Each test leaves the cluster with all slots at rest."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests import chromium
from tests.integration.cluster.harness import Cluster, plain_client

SLOTS = 256
KEYS = 3000
VIEWER = "vera" * 8
LIMIT_SECONDS = 60
PAGE_SECONDS = 120
"""How long a test may look at one page."""


_THREAD = ThreadPoolExecutor(1)
"""One thread for all: processes that a thread has started end with it."""


def on_a_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end. Playwright's own loop runs on the main thread."""
    return _THREAD.submit(asyncio.run, work).result(LIMIT_SECONDS)


def until(page: Any, expression: str) -> None:
    """Wait until an expression of JavaScript holds. The page's rules forbid Playwright's own way, which needs eval."""
    end = time.monotonic() + chromium.STEP_MILLISECONDS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"it never held: {expression}"
        page.wait_for_timeout(50)


class Site:
    """The cluster, its API, and pages that show it."""

    def __init__(self, cluster: Cluster, browser: Any) -> None:
        self.cluster = cluster
        self.browser = browser
        self.url = cluster.topom_url
        self.token = cluster.token

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask topom, as an operator."""
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        answer = httpx.request(method, f"{self.url}/api/v1{path}", json=body, headers=headers, timeout=20)
        assert answer.is_success, answer.text
        return answer.json()

    def owners(self) -> list[int]:
        """The group of each slot, which all have to be at rest."""
        slots = self.call("GET", "/slots?biggest=0")["slots"]
        assert [slot["id"] for slot in slots if slot["action"]] == []
        return [slot["group_id"] for slot in slots]

    @contextmanager
    def page(self, token: str | None = None, **options: Any) -> Iterator[Any]:
        """A page of a browser without cookies; logged in, if a token is given."""
        with chromium.watched(PAGE_SECONDS):
            yield from self._page(token, options)

    def _page(self, token: str | None, options: dict[str, Any]) -> Iterator[Any]:
        context = self.browser.new_context(**options)
        context.set_default_timeout(chromium.STEP_MILLISECONDS)
        errors: list[str] = []
        try:
            page = context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda said: errors.append(said.text) if "Content Security" in said.text else None)
            page.goto(self.url + ("/" if token is None else f"/#token={token}"))
            if token is not None:
                self.shown(page)
            yield page
        finally:
            context.close()
        assert errors == []

    def shown(self, page: Any) -> None:
        """Wait until the page shows the live picture, all drawn."""
        page.wait_for_selector("html[data-connection=open] canvas.cells[data-drawn]")
        page.wait_for_selector("#verdict")


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    cluster = Cluster(
        groups=3, slots_on=[1, 2], number_of_slots=SLOTS, topom_settings={"tokens": [f"viewer:vera:{VIEWER}"]}
    )
    chromium.binary()  # nothing is started where there is no browser
    try:
        on_a_thread(cluster.start())
        on_a_thread(fill(cluster))
        with chromium.browser() as browser:
            yield Site(cluster, browser)
    finally:
        on_a_thread(cluster.stop())


async def fill(cluster: Cluster) -> None:
    async with plain_client(cluster.proxy_addresses[0]) as client:
        for start in range(0, KEYS, 500):
            await client.mset({f"user:{number}": "secret value" for number in range(start, start + 500)})


@pytest.fixture
def at_rest(site: Site) -> Iterator[Callable[[], None]]:
    """Waits until no slot moves; at the end, all slots are where they were at the start."""
    before = site.owners()

    def wait() -> None:
        async def until() -> None:
            async with site.cluster.visit():
                await site.cluster.at_rest()

        on_a_thread(until())

    yield wait
    site.call("POST", "/migration/resume")
    site.call("PATCH", "/migration", {"keys_per_second": 0})
    wait()
    for group in set(before):
        slots = ",".join(str(slot) for slot, owner in enumerate(before) if owner == group)
        site.call("POST", "/slots/move", {"slots": slots, "group_id": group})
    wait()
