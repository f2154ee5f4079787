"""The page in a real browser, of a real cluster: who gets in, and what it shows."""

import json
import re
import socket
import time
from contextlib import ExitStack
from typing import Any

import pytest

from slots.table import DEFAULT_SLOTS
from tests import chromium
from tests.integration.clients import javascript
from tests.integration.cluster.harness import plain_client
from tests.integration.page.conftest import SLOTS, VIEWER, Site, on_a_thread, until
from topom.api.live.viewers import MOST_VIEWERS

TRICK = "<img src=x onerror=\"document.title='tricked'\">"
SERIOUS = ("serious", "critical")


def test_a_wrong_token_is_refused_and_a_right_one_taken(site: Site) -> None:
    with site.page() as page:
        page.fill("#token", "none of topom's tokens")
        page.click("text=Log in >> nth=-1")
        page.wait_for_selector("#login-says:has-text('the token is wrong')")
        assert page.is_hidden("#parts")
        page.fill("#token", site.token)
        page.keyboard.press("Enter")
        site.shown(page)
        assert page.inner_text("#role") == "operator"
        assert page.is_hidden("#login")
        page.reload()
        site.shown(page)
        page.click("text=Log out")
        page.wait_for_selector("#token")
        page.reload()
        page.wait_for_selector("#token")


def test_a_link_brings_a_token_which_leaves_the_address(site: Site) -> None:
    with site.page(site.token) as page:
        assert page.url == site.url + "/"
        # No script can read the cookie.
        assert page.evaluate("document.cookie") == ""
    with site.page() as page:
        page.goto(site.url + "/#token=wrong")
        page.wait_for_selector("#login-says:has-text('the token is wrong')")
        page.goto(f"{site.url}/#token={VIEWER}")
        site.shown(page)
        assert page.url == site.url + "/"


def test_numbers_are_told_in_words(site: Site) -> None:
    said = {
        "bytes(0)": "0 bytes",
        "bytes(1)": "1 byte",
        "bytes(1500)": "1.5 KiB",
        "bytes(null)": "unknown",
        "rate(0)": "0/s",
        "rate(0.02)": "under 0.1/s",
        "rate(2.5)": "2.5/s",
        "rate(1, 'keys')": "1 key a second",
        "rate(2000, 'keys')": "2,000 keys a second",
        "rate(undefined)": "unknown",
        "took(18.498)": "18 ms",
    }
    with site.page() as page:
        calls = ", ".join(f"words.{one}" for one in said)
        found = page.evaluate(f"import('/assets/js/words.js').then((words) => [{calls}])")
    assert found == list(said.values())


def told(page: Any, sections: str, expression: str) -> None:
    """Wait until an expression holds after the page was told these sections; topom may tell others in between."""
    until(
        page,
        f"""import("/assets/js/live.js").then((live) => {{
            live.take({sections}, false);
            return new Promise((done) => setTimeout(() => done({expression}), 100));
        }})""",
    )


def test_a_proxys_requests_are_of_now(site: Site) -> None:
    with site.page(VIEWER) as page:
        cell = "document.querySelector('#proxies td[data-label=Requests]').textContent"
        told(page, "{ load: { proxies: { 1: 1500 } } }", f"{cell} === '1,500/s'")
        # A proxy that rests says nothing else.
        told(page, "{ load: { proxies: { 1: 0 } } }", f"{cell} === '0/s'")


MIGRATORS = """{ migrators: {
    98: { id: 98, hostname: 'near', pid: 77, version: '1', node: 'n1', datacenter: 'd1', own: false, disk_bytes: 2e9,
        keys_per_second: 1500, copying: 23, copies: [
            { source: 'a:1', target: 'b:1', slots: 1, followed: 'a:2', follows: 'replica' },
            { source: 'c:1', target: 'd:1', slots: 12, followed: null, follows: null }] },
    97: { id: 97, hostname: 'here', pid: 22, version: '1', node: '', datacenter: '', own: true, disk_bytes: null,
        keys_per_second: 0, copying: 0, copies: [] },
} }"""


def test_migrators_are_shown_with_what_each_copies_and_follows(site: Site) -> None:
    # The cluster may have one of its own, which comes before these.
    rows = "[...document.querySelectorAll('#migrators tbody tr')].filter((row) => /near|here/.test(row.textContent))"
    with site.page(VIEWER) as page:
        told(page, MIGRATORS, f"{rows}.length === 2")
        first, second = page.evaluate(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))")
        assert first == ["97 here process 22, 1 started by topom", "not said", "none", "", "unknown"]
        assert second == [
            "98 near process 77, 1 on its own",
            "n1, d1",
            "a:1 to b:1, 1 slot; follows replica a:2c:1 to d:1, 12 slots; follows none yetand 21 more",
            "1,500 keys a second",
            "1.9 GiB",
        ]
        told(page, "{ migrators: { 97: null, 98: null } }", f"!{rows}.length")


def test_empty_parts_say_so(site: Site) -> None:
    load = """{
        total: { requests: 0.03, bytes_in: 1, bytes_out: 0 }, proxies_telling: 1, proxies_total: 1,
        slots: [{ slot: 7, group_id: 1, requests: 0.02, bytes_in: 1, bytes_out: 0 }], users: [], hot_keys: [],
    }"""
    with site.page(VIEWER) as page:
        for sections, says in (
            ("{ groups: { 1: null, 2: null, 3: null } }", "There are no groups."),
            ("{ proxies: { 1: null } }", "No proxy is registered."),
            (f"{{ load: {load} }}", "No key stands out."),
            (f"{{ load: {load} }}", "No slot has a request each ten seconds."),
            (f"{{ load: {load} }}", "under 0.1 requests a second, 1 byte/s in"),
        ):
            told(page, sections, f"document.querySelector('#parts').textContent.includes('{says}')")


def test_a_remainder_that_is_not_known_any_more_is_not_told(site: Site) -> None:
    take = "import('/assets/js/live.js').then((live) => live.take({ migration: %s }, false))"
    says = "document.getElementById('migration-says').textContent"
    with site.page(VIEWER) as page:
        page.evaluate(take % "{ slots_moving: 2, keys_per_second: 10, remaining_keys: 100 }")
        until(page, f"{says}.includes('about 10 s left')")
        page.evaluate(take % "{ remaining_keys: 5 }")
        until(page, f"{says}.includes('; under 1 s left')")
        page.evaluate(take % "{ slots_moving: 3, remaining_keys: null }")
        until(page, f"{says}.startsWith('3 slots move')")
        assert "left" not in page.evaluate(says)


def test_a_viewer_sees_all_parts_and_no_act(site: Site) -> None:
    with site.page(VIEWER) as page:
        assert page.inner_text("#role") == "viewer"
        page.wait_for_selector("#verdict:text-is('All is well')")
        names = set(page.locator("main button").all_inner_texts())
        more = {f"Show more {what}" for what in ("groups", "migrators", "proxies", "nodes")}
        assert names <= {*more, "Show older events"}, names
        refused = page.evaluate(
            "fetch('/api/v1/migration/pause', { method: 'POST', headers: { 'X-Slotferry-Request': '1' } })"
            ".then((answer) => answer.status)"
        )
        assert refused == 403
        for part in ("slots", "migration", "rebalance", "groups", "proxies", "load", "sizes", "placement", "events"):
            assert page.locator(f"#{part} > .root").inner_text().strip(), part
        assert page.locator("#proxies td >> text=online").count() == 1
        assert page.locator("#groups tbody tr").count() == 3
        for servers in site.cluster.groups.values():
            assert page.locator(f"#groups .address:has-text('{servers[0]}')").count() == 1


def colours(page: Any) -> list[str]:
    """The colour of each slot's cell, at a point in its upper half."""
    found = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas.cells");
            const { cell, columns, slots } = canvas.dataset;
            const scale = devicePixelRatio;
            const context = canvas.getContext("2d");
            return Array.from({ length: Number(slots) }, (_, slot) => {
                const x = ((slot % columns) * cell + cell / 3) * scale;
                const y = (Math.floor(slot / columns) * cell + cell / 3) * scale;
                return `rgb(${context.getImageData(x, y, 1, 1).data.slice(0, 3).join(", ")})`;
            });
        }"""
    )
    assert isinstance(found, list)
    return found


def by_map(page: Any) -> list[int]:
    """The group of each slot, as the map and its legend say."""
    legend = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#map-legend li[data-group]")].map((entry) =>
            [getComputedStyle(entry.querySelector(".swatch")).backgroundColor, Number(entry.dataset.group)]))"""
    )
    return [legend.get(colour, 0) for colour in colours(page)]


def map_shows(page: Any, owners: list[int]) -> None:
    """Wait until the map shows these groups: its cells are drawn over several frames, after the rest or before."""
    end = time.monotonic() + chromium.STEP_MILLISECONDS / 1000
    while (found := by_map(page)) != owners:
        assert time.monotonic() < end, found
        page.wait_for_timeout(50)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_is_the_table(site: Site, scheme: str) -> None:
    with site.page(VIEWER, color_scheme=scheme) as page:
        owners = site.owners()
        assert len(owners) == SLOTS != DEFAULT_SLOTS
        assert set(owners) == {1, 2}
        map_shows(page, owners)
        page.focus("canvas.cells")
        page.keyboard.press("Home")
        page.wait_for_selector(f"#map-says:has-text('Slot 0: group {owners[0]}')")
        page.keyboard.press("End")
        page.wait_for_selector(f"#map-says:has-text('Slot {SLOTS - 1}: group {owners[-1]}')")
        page.keyboard.press("ArrowUp")
        columns = int(page.get_attribute("canvas.cells", "data-columns"))
        page.wait_for_selector(f"#map-says:has-text('Slot {SLOTS - 1 - columns}:')")


@pytest.mark.long
@pytest.mark.parametrize("zoom", [0.7, 1.5])
def test_a_move_leaves_no_trace_on_the_map_at_any_zoom(site: Site, zoom: float) -> None:
    with site.page(VIEWER, device_scale_factor=zoom) as page:
        cells = "document.querySelector('canvas.cells').toDataURL()"
        dots = """(() => { const over = document.querySelector("canvas.over");
            return over.getContext("2d").getImageData(0, 0, over.width, over.height).data.some(Boolean); })()"""
        take = "import('/assets/js/live.js').then((live) => live.take({ slots: [[0, 64, 1%s]] }, false))"
        before = page.evaluate(cells)
        page.evaluate(take % ", 'migrating', 2")
        until(page, f"{dots} && {cells} !== '{before}'")
        page.wait_for_timeout(1000)  # for dots to travel
        page.evaluate(take % "")
        until(page, f"!{dots} && {cells} === '{before}'")


def test_names_are_text_whatever_they_say(site: Site) -> None:
    now = time.time()
    sizes = {
        "taken_at": now,
        "seconds": 1.0,
        "complete": False,
        "missing": [{"server": TRICK, "reason": TRICK}],
        "slots": [{"slot": 1, "bytes": 1000, "keys": 2}],
        "prefixes": [{"depth": 1, "prefix": TRICK, "keys": 1, "bytes": 900}],
    }
    site.call("POST", "/pause", {"why": TRICK}, **{"X-Slotferry-User": TRICK})
    try:
        site.call("POST", "/sizes", sizes)
        with site.page(site.token) as page:
            page.wait_for_selector("#health .what:has-text('tricked')")
            page.wait_for_selector("#events li:has-text('tricked')")
            page.wait_for_selector("#sizes .tree >> text=<img src=x onerror=")
            page.fill("#group-filter", TRICK)
            page.fill("#event-filter", "tricked")
            page.fill("#group-filter", "")
            page.evaluate(
                """(name) => import("/assets/js/live.js").then((live) => live.take({
                    groups: { 9: { id: 9, slots: 1, servers: [
                        { address: name, node: name, datacenter: name, condition: name, role: name }] } },
                    proxies: { 9: { id: 9, address: name, hostname: name, version: name, state: name, counters: {} } },
                    migrators: { 9: { id: 9, pid: 9, hostname: name, version: name, node: name, datacenter: name,
                        copying: 1, copies: [
                            { source: name, target: name, slots: 1, followed: name, follows: name }] } },
                }, false))""",
                TRICK,
            )
            for part in ("#groups .address", "#proxies .address", "#migrators .address", "#placement .node"):
                page.wait_for_selector(f"{part}:has-text('<img src=x onerror=')")
            assert page.locator("img").count() == 0
            assert page.title() == "Slotferry"
    finally:
        site.call("POST", "/resume")


@pytest.mark.long
def test_a_big_key_is_shown_as_text_with_who_asked_for_it(site: Site) -> None:
    async def ask() -> None:
        async with plain_client(site.cluster.proxy_addresses[0]) as client:
            await client.set(TRICK, "secret value" * 200_000)
            await client.delete(TRICK)

    on_a_thread(ask())
    with site.page(VIEWER) as page:
        page.wait_for_selector("#notable tr:has-text('<img src=x')", timeout=30_000)
        shown = page.inner_text("#notable tbody tr:has-text('tricked')")
        assert "set" in shown
        assert "big request, 2.3 MiB" in shown
        assert "default" in shown
        assert page.locator("img").count() == 0
        assert page.title() == "Slotferry"
        assert "secret value" not in page.content()


def test_no_value_of_a_key_is_shown(site: Site) -> None:
    with site.page(site.token) as page:
        answers: list[str] = []
        page.on("response", lambda answer: answers.append(answer.url))
        page.reload()
        site.shown(page)
        assert "secret value" not in page.content()
        assert {re.sub(r"^http://[^/]+", "", url).split("/")[1] for url in answers} <= {"", "assets", "api"}


@pytest.mark.long
def test_what_is_wrong_comes_first_with_what_to_do(site: Site) -> None:
    site.call("POST", "/pause", {"why": "switches are changed"})
    try:
        with site.page(VIEWER) as page:
            page.wait_for_selector("#verdict.waits:has-text('Nothing is wrong; 1 thing waits')")
            problem = page.locator("#health .problems li")
            assert "switches are changed" in problem.inner_text()
            assert "To do: let it act again once that is over" in problem.inner_text()
            command = "{ problems: { one: { grave: true, what: 'it waits', since: 0, to_do: 'say `<b>x` twice' } } }"
            told(page, command, "document.querySelector('#health .problems code').innerText === '<b>x'")
            told(page, "{ problems: { one: null } }", "!document.querySelector('#health .problems code')")
            site.call("POST", "/resume")
            page.wait_for_selector("#verdict.good")
    finally:
        site.call("POST", "/resume")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_has_no_serious_finding(site: Site, scheme: str, width: int) -> None:
    javascript.find_node()
    axe = (javascript.FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    with site.page(color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.wait_for_selector("#token")
        page.evaluate(axe)
        assert serious(page) == []
        page.fill("#token", site.token)
        page.keyboard.press("Enter")
        site.shown(page)
        page.click("#plan")
        page.wait_for_selector("#begin")
        told(page, MIGRATORS, "document.querySelector('#migrators')")
        assert serious(page) == []
        # Nothing is wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#begin")
        page.wait_for_selector("dialog[open]")
        assert serious(page) == []


def serious(page: Any) -> list[str]:
    found = page.evaluate(
        "axe.run({ resultTypes: ['violations'] }).then((result) => JSON.stringify(result.violations))"
    )
    return [
        f"{finding['id']}: {[node['html'][:200] for node in finding['nodes']]}"
        for finding in json.loads(found)
        if finding["impact"] in SERIOUS
    ]


@pytest.mark.long
def test_one_page_too_many_is_told_so_and_gets_in_later(site: Site) -> None:
    host, _, port = site.url.removeprefix("http://").partition(":")
    head = f"GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {site.token}\r\n\r\n".encode()
    with ExitStack() as streams:
        until_then = time.monotonic() + chromium.STEP_MILLISECONDS / 1000
        looking = 0
        while looking < MOST_VIEWERS:
            stream = streams.enter_context(socket.create_connection((host, int(port)), 10))
            stream.sendall(head)
            said = stream.recv(12)
            if said == b"HTTP/1.1 200":
                looking += 1
                continue
            # The page of a test before may be closed, and topom not know it yet.
            assert said == b"HTTP/1.1 503"
            assert time.monotonic() < until_then, f"{looking} pages look at it"
            time.sleep(0.05)
        with site.page() as page:
            page.fill("#token", site.token)
            page.keyboard.press("Enter")
            page.wait_for_selector("#connection:has-text('64 pages look at this cluster already')")
            streams.close()
            site.shown(page)


@pytest.mark.long
def test_the_page_says_that_topom_is_gone_and_recovers(site: Site) -> None:
    with site.page(site.token) as page:
        on_a_thread(site.cluster.topom.kill())
        page.wait_for_selector("#connection:has-text('The page tries again by itself')")
        assert page.get_attribute("html", "data-connection") == "lost"
        assert "as last heard" in page.inner_text("#verdict")
        on_a_thread(site.cluster.restart_topom())
        page.wait_for_selector("html[data-connection=open]", timeout=30_000)
        site.call("POST", "/pause", {"why": "after the restart"})
        page.wait_for_selector("#health .what:has-text('after the restart')")
        assert page.inner_text("#connection") == ""
    site.call("POST", "/resume")
