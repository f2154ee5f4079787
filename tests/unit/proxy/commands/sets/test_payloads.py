"""What RESTORE writes; tests/integration/worker/test_stores_over_slots.py has servers of many versions read it."""

import pytest

from proxy.commands.sets.payloads import SET, SORTED_SET, Payload, length, scored, text
from rdb.input import crc64


@pytest.mark.parametrize(
    ("number", "written"),
    [
        *((0, b"\x00"), (63, b"\x3f"), (64, b"\x40\x40"), (16383, b"\x7f\xff")),
        *((16384, b"\x80\x00\x00\x40\x00"), (2**32 - 1, b"\x80\xff\xff\xff\xff")),
    ],
)
def test_lengths(number: int, written: bytes) -> None:
    assert length(number) == written


@pytest.mark.parametrize(
    ("score", "written"),
    [
        *((1.0, b"\x031.0"), (-0.0, b"\x04-0.0"), (0.1, b"\x030.1"), (1e300, b"\x061e+300")),
        *(
            (float("inf"), b"\xfe"),
            (float("-inf"), b"\xff"),
            (-2.2250738585072014e-308, b"\x18-2.2250738585072014e-308"),
        ),
    ],
)
def test_scores(score: float, written: bytes) -> None:
    assert scored((score, b"m")) == b"\x01m" + written


@pytest.mark.parametrize("kind", [SET, SORTED_SET])
def test_the_whole_has_a_version_and_a_checksum(kind: bytes) -> None:
    payload = Payload(kind, 2)
    payload.add(text(b"a"))
    payload.add(text(b"x" * 100))
    made = payload.end()
    assert made[:-8] == kind + b"\x02\x01a\x40\x64" + b"x" * 100 + b"\x06\x00"
    assert made[-8:] == crc64(made[:-8]).to_bytes(8, "little")


def test_a_checksum_goes_on_from_one_before() -> None:
    data = bytes(range(256))
    for place in range(0, 256, 37):
        assert crc64(data[place:], crc64(data[:place])) == crc64(data)
