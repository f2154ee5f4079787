"""Summaries, their pages, and the text form of their values."""

import io
import json

import matplotlib.image
import pytest

from sizing.buckets import TTL_RANGES, size, size_label
from sizing.outcome import BigKey, Failure, SlotBytes, Summary, Total
from sizing.picture import DPI, HEIGHT, WIDTH, draw
from sizing.summary import from_json, to_json


def a_summary(slots: int = 16, sampled: float = 1.0, missing: tuple[Failure, ...] = ()) -> Summary:
    total = Total("group 1", 10, 5000, 1.0, 70.0)
    return Summary(
        source="2 servers",
        product="shop",
        taken_at=1_772_316_000.0,
        seconds=3.5,
        complete=not missing,
        missing=missing,
        sampled=sampled,
        number_of_slots=16,
        total=total,
        groups=(total,),
        types=(Total("hash", 10, 5000),),
        prefixes=(Total("a$b$:", 10, 5000),),
        sizes=tuple(Total(size_label(n), 1, 500) for n in range(5, 15)),
        lives=tuple(Total(each.label, 1, 500) for each in TTL_RANGES),
        biggest=(BigKey("user:1", "h:1", 0, 3, "hash", 900),),
        slots=tuple(SlotBytes(n, 1, n * 100, n) for n in range(slots)),
    )


@pytest.mark.parametrize("summary", [a_summary(), a_summary(0), a_summary(sampled=0.5, missing=(Failure("h:2", "x"),))])
def test_a_summary_comes_back_from_json_as_it_was(summary: Summary) -> None:
    kept = json.loads(json.dumps(to_json(summary)))

    assert "slots" not in kept
    assert from_json(kept, summary.slots) == summary


@pytest.mark.parametrize(
    "summary",
    [
        a_summary(),
        a_summary(0),
        a_summary(sampled=0.5, missing=tuple(Failure(f"h:{n}", "x") for n in range(9))),
        Summary("none", "", 0.0, 0.0, True, (), 1.0, 1024, Total("all", 0, 0), (), (), (), (), (), (), ()),
    ],
)
def test_every_summary_makes_a_page(summary: Summary) -> None:
    page = matplotlib.image.imread(io.BytesIO(draw(summary)))

    assert page.shape[:2] == (int(HEIGHT * DPI), int(WIDTH * DPI))
    assert page.min() < page.max()


def test_of_a_partial_run_the_page_differs() -> None:
    assert draw(a_summary()) != draw(a_summary(missing=(Failure("h:2", "gone"),)))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2**70, "1024.0 EiB"),
    ],
)
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("exponent", "text"),
    [(0, "1 - 2 B"), (6, "64 - 128 B"), (9, "512 B - 1 KiB"), (20, "1 - 2 MiB"), (62, "4 - 8 EiB")],
)
def test_ranges_of_sizes(exponent: int, text: str) -> None:
    assert size_label(exponent) == text


def test_ranges_of_times_to_live_leave_no_gap() -> None:
    ranges = [each for each in TTL_RANGES if each.low is not None]

    assert ranges[0].low == 0
    assert [each.high for each in ranges[:-1]] == [each.low for each in ranges[1:]]
    assert ranges[-1].high is None
    assert [each.low for each in TTL_RANGES[len(ranges) :]] == [None]
