"""Sizes on the page: prefixes of names as a treemap and as a table."""

import json
import re
import time
from itertools import combinations
from random import Random
from typing import Any

import pytest

from tests.integration.page.conftest import VIEWER, Site, until

TRICK = "<script>document.title='tricked'</script>:"
PREFIXES = [
    {"depth": 1, "prefix": "user:", "keys": 60, "bytes": 500_000},
    {"depth": 2, "prefix": "user:profile:", "keys": 40, "bytes": 300_000},
    {"depth": 2, "prefix": "user:inbox:", "keys": 20, "bytes": 150_000},
    {"depth": 1, "prefix": TRICK, "keys": 9, "bytes": 200_000},
    {"depth": 0, "prefix": "", "keys": 5, "bytes": 100_000},
    {"depth": 2, "prefix": "stray:of:", "keys": 1, "bytes": 50_000},
    *({"depth": 1, "prefix": f"\\xff{number}:", "keys": 1, "bytes": 900 - number} for number in range(40)),
]
MEASURED = 1_000_000
LEAST_CONTRAST = 4.5
ROUNDING = 0.01
"""Pixels, or a share."""

Box = dict[str, float]


def tell(site: Site, prefixes: list[dict[str, Any]]) -> None:
    slots = [{"slot": 1, "bytes": MEASURED, "keys": 200}]
    site.call(
        *("POST", "/sizes"),
        {"taken_at": time.time(), "seconds": 1.0, "complete": False, "slots": slots, "prefixes": prefixes},
    )


def function(page: Any, name: str, *arguments: Any) -> Any:
    """What a function of the layout gives."""
    given = ", ".join(map(json.dumps, arguments))
    return page.evaluate(f"import('/assets/js/treemap.js').then((treemap) => treemap.{name}({given}))")


def apart(one: Box, other: Box) -> bool:
    return any(
        first[edge] + first[side] <= second[edge] + ROUNDING
        for first, second in ((one, other), (other, one))
        for edge, side in (("x", "width"), ("y", "height"))
    )


def within(one: Box, outer: Box) -> bool:
    return all(
        one[edge] >= outer[edge] - ROUNDING and one[edge] + one[side] <= outer[edge] + outer[side] + ROUNDING
        for edge, side in (("x", "width"), ("y", "height"))
    )


@pytest.mark.long
def test_rectangles_are_as_large_as_they_should_be_and_stand_apart(site: Site) -> None:
    with site.page() as page:
        # The example of the article.
        found = function(page, "squarify", [6, 6, 4, 3, 2, 2, 1], 24, {"x": 0, "y": 0, "width": 6, "height": 4})
        assert found[:2] == [{"x": 0, "y": 0, "width": 3, "height": 2}, {"x": 0, "y": 2, "width": 3, "height": 2}]
        chance = Random(7)
        box = {"x": 5, "y": 7, "width": 353, "height": 211}
        for many in (1, 2, 30, 100):
            sizes = sorted((int(chance.paretovariate(0.6)) for _ in range(many)), reverse=True)
            whole = sum(sizes) + chance.choice((0, sizes[0]))
            found = function(page, "squarify", sizes, whole, box)
            for size, one in zip(sizes, found, strict=True):
                area = one["width"] * one["height"]
                assert area == pytest.approx(size / whole * box["width"] * box["height"], rel=ROUNDING)
                assert within(one, box)
            assert all(apart(one, other) for one, other in combinations(found, 2))
        # Nothing at all, and a box that is not drawn yet.
        assert function(page, "squarify", [], 1, box) == []
        assert function(page, "nest", [], {"bytes": 0, "keys": 0}) == []
        nothing = function(page, "layOut", [{"bytes": 2, "inside": []}] * 2, 0, {**box, "width": 0, "height": 0})
        assert [one["width"] for one in nothing] == [0, 0]


def test_prefixes_are_shown_by_their_memory(site: Site) -> None:
    tell(site, PREFIXES)
    with site.page(VIEWER, viewport={"width": 1280, "height": 900}) as page:
        page.wait_for_selector("#sizes .tree .outside")
        top, [rest], inside = boxes(page, "outside", "rest", "inside")
        assert [one["text"] for one in top[:3]] == [
            "user: 488 KiB, 50.0%",
            f"{TRICK}\n195 KiB, 20.0%",
            "(no separator)\n98 KiB, 10.0%",
        ]
        unit = sum(one["width"] * one["height"] for one in (*top, rest)) / MEASURED
        told = sorted((one for one in PREFIXES if one["depth"] < 2), key=lambda one: -one["bytes"])
        for prefix, tile in zip(told, top, strict=True):
            if tile["text"]:
                assert tile["width"] * tile["height"] == pytest.approx(prefix["bytes"] * unit, rel=0.02)
        left = MEASURED - sum(prefix["bytes"] for prefix in told)
        assert rest["width"] * rest["height"] == pytest.approx(left * unit, rel=0.02)
        assert [one["text"].split()[0] for one in inside] == ["profile:", "inbox:"]
        assert all(within(one, top[0]) for one in inside)
        assert apart(*inside)
        profile, inbox, outer = (one["width"] * one["height"] for one in (*inside, top[0]))
        assert profile / inbox == pytest.approx(300 / 150, rel=0.02)
        assert 0.5 < profile / outer < 0.6, "all but the name and the edges is for what is in it"
        page.hover("#sizes .tree .inside >> nth=1")
        page.wait_for_selector("#prefix-says:has-text('user:inbox: 146 KiB, 15.0%, 20 keys')")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert [ratio for ratio in contrasts(page) if ratio < LEAST_CONTRAST] == []
        # By keyboard: the table has each prefix as text.
        page.focus("#sizes summary")
        page.keyboard.press("Enter")
        rows = [row.split("\t") for row in page.locator("#prefixes tbody tr").all_inner_texts()]
        assert rows[:4] == [
            ["user:", "488 KiB", "50.0%", "60"],
            ["user:profile:", "293 KiB", "30.0%", "40"],
            [TRICK, "195 KiB", "20.0%", "9"],
            ["user:inbox:", "146 KiB", "15.0%", "20"],
        ]
        assert {row[0] for row in rows} == {prefix["prefix"] or "(no separator)" for prefix in PREFIXES}
        assert page.locator("#sizes script").count() == 0
        assert page.title() == "Slotferry"
        # On a phone it is laid out anew, no wider than the window.
        page.set_viewport_size({"width": 400, "height": 800})
        right = "[...document.querySelectorAll('.tree div')].map((tile) => tile.getBoundingClientRect().right)"
        until(page, f"{right}.every((at) => at <= 400)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert len(boxes(page, "outside")[0]) == len(told)
        # A measurement that tells none takes the picture away.
        page.evaluate("import('/assets/js/live.js').then((live) => live.take({ sizes: { prefixes: [] } }, false))")
        page.wait_for_selector("#sizes >> text=The measurement told no prefixes of names.")
        assert page.locator("#sizes .tree").count() == 0


def boxes(page: Any, *kinds: str) -> list[list[dict[str, Any]]]:
    """The tiles of each kind, at one moment: what is above them on the page moves them."""
    found = page.evaluate(
        """(kinds) => kinds.map((kind) => [...document.querySelectorAll(`#sizes .tree .${kind}`)].map((tile) => {
            const { x, y, width, height } = tile.getBoundingClientRect();
            return { x, y, width, height, text: tile.innerText };
        }))""",
        kinds,
    )
    assert isinstance(found, list)
    return found


def contrasts(page: Any) -> list[float]:
    """Of each tile that has text, between text and ground."""
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("#sizes .tree div")].filter((tile) => tile.innerText)
            .map((tile) => [getComputedStyle(tile).color, getComputedStyle(tile).backgroundColor])"""
    )
    assert len(pairs) > 5
    found = []
    for pair in pairs:
        low, high = sorted(luminance(colour) for colour in pair)
        found.append((high + 0.05) / (low + 0.05))
    return found


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
