"""How cells of tables are written."""

import time

import pytest

from slotferry.output import drawn, fail, in_words, note, out, say, show, span


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
