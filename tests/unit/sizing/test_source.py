"""What docs/sizing-source.md says of columns, options and the environment is what the code does."""

import re
from dataclasses import fields
from pathlib import Path

from sizing import access
from sizing.options import ReadOptions
from sizing.schema import SERVER_COLUMNS

TEXT = (Path(__file__).parents[3] / "docs" / "sizing-source.md").read_text()


def test_every_column_stands_there() -> None:
    for column in SERVER_COLUMNS:
        assert f"| `{column.name}` | {column.kind} | {column.comment} |\n" in TEXT


def test_every_option_stands_there_with_its_default() -> None:
    for field in fields(ReadOptions):
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default or ""
        shown = f"`{default}`" if default != "" else ""
        assert f"| `{field.name}` | {shown} | {field.metadata['doc']} |\n" in TEXT


def test_every_variable_stands_there_and_in_the_module() -> None:
    assert set(re.findall(r"`(SLOTFERRY_\w+)`", TEXT)) == set(re.findall(r"SLOTFERRY_\w+", access.__doc__ or ""))
