"""What operators do on the page: by clicks, or by keys alone."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.page.conftest import SLOTS, VIEWER, Site, until
from tests.integration.page.test_page import map_shows

MOST_TABS = 60


def answer(page: Any, button: str) -> None:
    """Say yes to the question that is open, and wait until it is done."""
    page.click(f"dialog button.act:has-text('{button}')")
    page.wait_for_selector("dialog", state="detached")


def begin_rebalance(page: Any) -> None:
    page.click("#plan")
    page.click("#begin")
    page.wait_for_selector("dialog >> text=Slots move with their keys while clients work")
    answer(page, "Move")


def told(page: Any, what: str, text: str) -> None:
    """The story of events has this, under the filter for its kind."""
    page.fill("#event-filter", what)
    page.wait_for_selector(f"#events li:has-text('{text}')")
    page.fill("#event-filter", "no event says this")
    page.wait_for_selector("#events li", state="detached")


@pytest.mark.long
def test_a_rebalance_by_clicks_from_the_plan_to_rest(site: Site, at_rest: Callable[[], None]) -> None:
    with site.page(site.token) as page:
        page.select_option("#policy", "codis")
        page.click("#plan")
        page.wait_for_selector("#the-plan >> text=85 slots move")
        assert 'by keys: migration_way is "keys"; about ' in page.inner_text("#the-plan .way")
        after = page.locator("#the-plan .bars .right").all_inner_texts()
        assert after == ["128 slots → 86 slots", "128 slots → 85 slots", "0 slots → 85 slots"]
        page.click("#begin")
        page.click("dialog >> text=Leave it")
        assert Counter(site.owners()) == {1: 128, 2: 128}
        begin_rebalance(page)
        page.wait_for_selector("#map-summary:has-text('3 groups; none on its way')", timeout=30_000)
        at_rest()
        assert Counter(site.owners()) == {1: 86, 2: 85, 3: 85}
        page.wait_for_selector("#map-legend li[data-group='3']:has-text('85')")
        until(page, "Number(document.querySelector('#migration').textContent.match(/(\\d+) slots, /)?.[1]) >= 85")
        map_shows(page, site.owners())
        told(page, "rebalance_planned", "codis")


@pytest.mark.long
def test_a_copy_is_shown_with_its_migrator_and_the_server_that_it_follows(
    site: Site, at_rest: Callable[[], None]
) -> None:
    source, target = site.cluster.groups[1][0], site.cluster.groups[3][0]
    site.call("PATCH", "/migration", {"way": "stream", "keys_per_second": 50})
    try:
        with site.page(VIEWER) as page:
            site.call("POST", "/slots/move", {"slots": "0-63", "group_id": 3})
            row = "#migrators tr:has-text('started by topom')"
            page.wait_for_selector(f"{row} >> text=follows master {source}", timeout=30_000)
            assert f"{source} to {target}, 64 slots" in page.inner_text(row)
            [migrator] = site.call("GET", "/migrators")["migrators"]
            by = f"copied by migrator {migrator['id']} (process {migrator['pid']} on {migrator['hostname']})"
            page.wait_for_selector(f"#migration .batches li:has-text('{by}') >> text=follows master {source}")
            site.call("PATCH", "/migration", {"keys_per_second": 0})
            at_rest()
            assert site.owners()[:64] == [3] * 64
            page.wait_for_selector(f"{row} >> text=none")
    finally:
        site.call("PATCH", "/migration", {"way": "keys"})


@pytest.mark.long
def test_a_move_is_paced_paused_and_cancelled(site: Site, at_rest: Callable[[], None]) -> None:
    with site.page(site.token) as page:
        page.click("summary:has-text('Pace')")
        page.fill("input[name=keys_per_second]", "10")
        page.click("text=Change the pace…")
        page.wait_for_selector("dialog >> text=Keys a second: 0 becomes 10.")
        answer(page, "Change it")
        assert site.call("GET", "/migration")["settings"]["keys_per_second"] == 10
        begin_rebalance(page)
        page.wait_for_selector("#migration .batches li >> text=migrating")
        page.wait_for_selector("#map-summary:has-text('on their way')")
        page.click("text=Pause moving…")
        answer(page, "Pause moving")
        page.wait_for_selector("#migration .tag.waits")
        assert site.call("GET", "/migration")["paused"]
        page.click("text=Resume moving…")
        answer(page, "Resume moving")
        page.click("text=Cancel all…")
        page.wait_for_selector("dialog >> text=keys that have moved go back")
        page.click("dialog button.act")
        page.wait_for_selector("dialog >> text=slot")
        page.click("dialog >> text=Close")
        site.call("PATCH", "/migration", {"keys_per_second": 0})
        page.wait_for_selector("#migration-says:has-text('No slot is on its way')", timeout=30_000)
        at_rest()
        assert Counter(site.owners()) == {1: SLOTS // 2, 2: SLOTS // 2}
        told(page, "slots_cancelled", "go back")


def test_a_refusal_is_said_where_it_was_asked(site: Site) -> None:
    with site.page(site.token) as page:
        page.select_option("#policy", "bytes")
        page.click("#plan")
        until(
            page,
            "document.querySelector('#rebalance [role=status]').textContent || document.querySelector('#the-plan')",
        )
        page.click("summary:has-text('Pace')")
        page.fill("input[name=parallel_slots]", "0")
        page.click("text=Change the pace…")
        page.click("dialog button.act")
        page.wait_for_selector("dialog .error:has-text('It was not done: parallel_slots')")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")


def press_until(page: Any, selector: str) -> None:
    """Press Tab until the focus is there; it has to be seen."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            style, width = page.evaluate(
                "[getComputedStyle(document.activeElement)].map((found) => [found.outlineStyle, found.outlineWidth])[0]"
            )
            assert style == "solid", f"the focus at {selector} is not seen"
            assert float(width.removesuffix("px")) >= 2
            return
    raise AssertionError(f"{MOST_TABS} times Tab did not reach {selector}")


def test_by_keys_alone(site: Site) -> None:
    with site.page() as page:
        page.wait_for_selector("#token:focus")
        page.keyboard.type(site.token)
        page.keyboard.press("Enter")
        site.shown(page)
        press_until(page, "canvas.cells")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#map-says:has-text('Slot 0:')")
        press_until(page, "#plan")
        page.keyboard.press("Enter")
        page.wait_for_selector("#begin")
        press_until(page, "#begin")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        # The focus stays within the question.
        for _ in range(4):
            page.keyboard.press("Tab")
            assert page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.wait_for_selector("#begin:focus")
        assert set(site.owners()) == {1, 2}
        press_until(page, "#group-filter")
        page.keyboard.type(site.cluster.groups[3][0])
        until(page, "document.querySelector('#groups tbody strong').textContent === '3'")
