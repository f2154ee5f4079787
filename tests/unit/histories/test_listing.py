"""What is wrong with lists of keys."""

from typing import Any

import pytest

from tests.histories import listing
from tests.histories.cluster import BALLAST
from tests.histories.listing import Lister

ALL = [f"ballast:{number}".encode() for number in range(BALLAST)]


class Answering:
    """A connection over which KEYS is answered with a list, and SCAN with two pages."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys

    async def open(self, address: str, database: int) -> "Answering":
        return self

    async def call(self, commands: Any) -> list[Any]:
        [(name, *arguments)] = commands
        if name == b"KEYS":
            return [self._keys]
        return [[b"0", self._keys[300:]] if arguments[0] == b"7" else [b"7", self._keys[:300]]]

    def close(self) -> None:
        return


async def asked(monkeypatch: pytest.MonkeyPatch, keys: list[bytes]) -> Lister:
    monkeypatch.setattr(listing, "Connection", Answering(keys))
    lister = Lister(["a:1"], 1, lambda: 1.0, lambda: [1])
    await lister._ask(0)
    assert lister.asked == 1
    return lister


async def test_a_whole_list_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not (await asked(monkeypatch, ALL)).findings(lambda key: False)


async def test_a_key_that_is_listed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = (await asked(monkeypatch, [*ALL, ALL[7]])).findings(lambda key: True)
    assert "more than once: ['ballast:7']" in found


async def test_a_key_that_is_left_out_unless_it_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    lister = await asked(monkeypatch, ALL[1:])
    assert not lister.findings(lambda key: key == "ballast:0")
    (found,) = lister.findings(lambda key: False)
    assert "leaves out 1 keys: ['ballast:0']" in found


@pytest.mark.parametrize(("keys", "restarts", "missing"), [(ALL, 0, []), (ALL[1:], 0, ["ballast:0"]), (ALL[1:], 1, [])])
async def test_a_scan_misses_no_key_unless_a_server_restarts(
    monkeypatch: pytest.MonkeyPatch, keys: list[bytes], restarts: int, missing: list[str]
) -> None:
    monkeypatch.setattr(listing, "Connection", Answering(keys))
    processes = iter([[1], [1 + restarts]])
    lister = Lister(["a:1"], 1, lambda: 1.0, lambda: next(processes))
    await lister._scan()
    assert lister.scanned == 1 - restarts
    assert [names for _, names in lister.missing] == [missing] * bool(missing)
