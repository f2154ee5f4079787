"""How cells of tables are written."""

import time

import pytest

from slotferry.output import drawn, fail, in_words, note, out, say, show, size, span
from slots.counting import counted


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (1.5, "1.5"),
        (0.0625, "0.0625"),
        (12.0, "12"),
        (99.96, "100"),
        (1234567.8, "1,234,568"),
        (1234567, "1,234,567"),
        (-2.25, "-2.25"),
        (True, "yes"),
        (None, "-"),
        ("", "-"),
        (0, "0"),
        (0.0, "0"),
    ],
)
def test_numbers_are_short_and_not_wrong(cell: object, text: str) -> None:
    assert show(cell) == text


@pytest.mark.parametrize(
    ("ago", "to_do", "text"),
    [
        (12.2, "raise it", "it is full (for 12 s); to do: raise it"),
        (12.2, "", "it is full (for 12 s)"),
        # A clock that is behind topom's.
        (-30.0, "", "it is full (for 0 s)"),
        (None, "raise it", "it is full; to do: raise it"),
    ],
)
def test_why_something_waits_is_said_with_what_can_be_done(ago: float | None, to_do: str, text: str) -> None:
    since = 0.0 if ago is None else time.time() - ago
    assert in_words({"kind": "server", "what": "it is full", "since": since, "to_do": to_do}) == text
    assert in_words(None) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (119.0, "119 s"), (125.0, "2 min"), (7100.0, "118 min"), (7300.0, "2 h"), (200_000.0, "2 days")],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize("name", ["[/x]", "\\[/x]", "\\\\[red]a[/red]", "[link=http://a]b[/link]", "a:smile:b"])
def test_a_name_is_shown_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients choose the names of keys, and nothing in one is an instruction to the terminal."""
    with out.capture() as shown:
        out.print(drawn(("key",), [(name,)]))
        say(name)
    assert shown.get().split() == ["key", name, name]
    note(name)
    fail(name)
    assert capsys.readouterr().err.split() == [name, "error:", name]


ADDRESSES = ("127.0.0.1:31035", "[2001:db8::17]:6379")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_an_address_and_a_number_are_never_cut_in_two(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", width)
    text = "the server does not answer, and nobody knows why that is so since this morning"
    rows = [(address, address, 1234567, text) for address in ADDRESSES]
    with out.capture() as shown:
        out.print(drawn(("server", "another", "requests", "why"), rows))
    lines = shown.get().splitlines()
    for address in ADDRESSES:
        assert [line.count(address) for line in lines if address in line] == [2]
    assert shown.get().count("1,234,567") == len(ADDRESSES)
    assert shown.get().split().count("morning") == len(ADDRESSES)
    if width == 200:
        assert len(lines) == 1 + len(ADDRESSES)


def test_words_of_numbers_and_units() -> None:
    assert [counted(number, "slot") for number in (0, 1, 1000)] == ["0 slots", "1 slot", "1,000 slots"]
    assert [counted(number, "proxy is", "proxies are") for number in (1, 2)] == ["1 proxy is", "2 proxies are"]
    assert [size(1000 * 1024**power) for power in range(5)] == [
        "1000 B",
        "1000.0 KiB",
        "1000.0 MiB",
        "1000.0 GiB",
        "1000.0 TiB",
    ]
