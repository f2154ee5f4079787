"""The page of a large fleet: 1,000 groups, 16,384 slots, many of which move. What it costs: ``benchmarks.page``."""

from collections.abc import Iterator

import pytest

from benchmarks.livefleet import served
from slots.slot import MAXIMUM_SLOTS
from tests import chromium
from tests.integration.page.conftest import PAGE_SECONDS, Site, until

FRAMES = 20


@pytest.fixture(scope="module")
def fleet() -> Iterator[str]:
    with served() as url:
        yield url


@pytest.mark.long
def test_a_large_fleet_opens_and_moves(site: Site, fleet: str) -> None:
    with chromium.watched(PAGE_SECONDS):
        context = site.browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(chromium.STEP_MILLISECONDS)
        try:
            page = context.new_page()
            page.goto(fleet)
            page.wait_for_selector("canvas.cells[data-drawn]")
            page.wait_for_selector("#groups tbody tr")
            assert page.get_attribute("canvas.cells", "data-slots") == str(MAXIMUM_SLOTS)
            assert page.locator("#groups tbody tr").count() <= 3 * 20
            assert page.inner_text("#hot-keys code") == "<b>feed</b>"
            page.select_option("#map-by", "load")
            page.focus("canvas.cells")
            for key in ("Home", *["ArrowRight"] * 7):
                page.keyboard.press(key)
            page.wait_for_selector("#map-says:has-text('5,000 requests a second')")
            page.select_option("#map-by", "group")
            until(page, "document.querySelector('#map-summary').textContent.includes('512 on their way')")
            # The map is drawn again and again while slots move.
            until(page, f"slotferry.spent.frames >= {page.evaluate('slotferry.spent.frames') + FRAMES}")
        finally:
            context.close()
