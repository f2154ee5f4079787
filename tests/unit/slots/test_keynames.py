"""Keys as people read them."""

import pytest

from slots.keynames import readable


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"user:1", "user:1"),
        ("für:😀".encode(), "für:😀"),
        (b"\xff\x00a\n", r"\xff\x00a\n"),
        ("\u202eevil".encode(), r"\u202eevil"),
        (b"\x1b[2J", r"\x1b[2J"),
        (b"x" * 61, "x" * 59 + "…"),
        (b"", ""),
    ],
)
def test_a_key_is_one_line_of_text_whatever_its_bytes_are(key: bytes, shown: str) -> None:
    assert readable(key) == shown
