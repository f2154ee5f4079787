"""A large JSON object that is read and written in pieces: as ``json`` would, and with limits."""

import json
import random
from typing import Any

import pytest

from topom.api import large_json

NAMES = ("slots", "a", "b", "", "\u00e9\ud800")


def drawn(depth: int) -> Any:
    """A random JSON value."""
    kind = random.randrange(8 if depth else 5)
    if kind < 5:
        return (None, True, random.randrange(-(10**20), 10**20), random.random(), random.choice(NAMES) + ']},:\\"')[
            kind
        ]
    if kind < 7:
        return [drawn(depth - 1) for _ in range(random.randrange(4))]
    return {name: drawn(depth - 1) for name in random.sample(NAMES, random.randrange(4))}


@pytest.mark.parametrize("seed", range(300))
def test_it_reads_what_json_does(seed: int) -> None:
    random.seed(seed)
    value = {name: drawn(3) for name in random.sample(NAMES, random.randrange(5))}
    text = json.dumps(value, indent=random.choice([None, 1]), ensure_ascii=random.random() < 0.5)
    assert large_json.read(text.encode("utf-8", "surrogatepass"), "slots", 100) == value


@pytest.mark.parametrize("seed", range(100))
def test_it_writes_what_json_does(seed: int) -> None:
    random.seed(seed)
    value = {name: drawn(3) for name in random.sample(NAMES, random.randrange(5))}
    assert large_json.write(value) == json.dumps(value, separators=(",", ":")).encode()


def test_no_call_writes_more_than_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    encoded = large_json._encoded
    monkeypatch.setattr(large_json, "_encoded", lambda value: (written.append(value), encoded(value))[1])
    assert large_json.write({"of": "x", "slots": [[1], [2]]}) == b'{"of":"x","slots":[[1],[2]]}'
    assert written == ["of", "x", "slots", [1], [2]]


def test_elements_are_handed_over_as_they_are_read() -> None:
    seen: list[tuple[int, Any]] = []
    body = b' { "x" : [1] , "slots" : [ {"a": 1} , 2 ] } '
    assert large_json.read(body, "slots", 2, lambda place, one: seen.append((place, one))) == {
        "x": [1],
        "slots": [None] * 2,
    }
    assert seen == [(0, {"a": 1}), (1, 2)]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"1", b"{", b'{"a"}', b'{"a":}', b'{"a":1', b'{"a":1,}', b"{1:2}", b'{"slots":[1', b'{"a":1} x'),
        *(b'{"slots":[1,]}', b'{"slots":[,]}', b'{"slots":[1 2]}', b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000),
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(large_json.NotJson):
        large_json.read(body, "slots", 100)


def test_an_array_that_is_too_long_is_not_read_to_its_end() -> None:
    seen: list[int] = []
    body = b'{"slots": [' + b"0," * 1000 + b"0]}"
    with pytest.raises(large_json.NotJson, match="100 elements"):
        large_json.read(body, "slots", 100, lambda place, one: seen.append(place))
    assert len(seen) == 100
