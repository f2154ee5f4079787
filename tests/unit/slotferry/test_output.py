"""How cells of tables are written."""

import pytest

from slotferry.output import show


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
