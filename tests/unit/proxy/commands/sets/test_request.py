"""What a request over sets asks for, as Redis reads it."""

import pytest

from proxy.commands.sets.request import NO_WEIGHT, SYNTAX, SetRequest, understand
from slots import commands


def understood(line: str) -> SetRequest | str:
    argv = line.encode().split()
    return understand(commands.find(argv), argv)


def asked(line: str) -> SetRequest:
    found = understood(line)
    assert isinstance(found, SetRequest)
    return found


def test_every_computed_command_is_understood() -> None:
    computed = {row.name for row in commands.table().values() if row.computed}
    assert computed == {"SUNION", "SINTER", "SDIFF", "SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"}
    for name in computed:
        counted = name[0] == "Z" or name.endswith("CARD")
        found = asked(f"{name} {'2 ' if counted else ''}a b")
        assert (found.keys, found.weights) == ([b"a", b"b"], [1.0, 1.0])
        assert (found.is_sorted, found.counts) == (name[0] == "Z", name.endswith("CARD"))
        assert name == f"{'Z' if found.is_sorted else 'S'}{found.operation}{'CARD' if found.counts else ''}"
        # At the source of a moving slot, the command itself may run.
        assert commands.table()[name].at_source


def test_every_command_that_stores_is_understood() -> None:
    stored = {row.name for row in commands.table().values() if row.stored}
    assert stored == {f"{kind}{what}STORE" for kind in "SZ" for what in ("UNION", "INTER", "DIFF")}
    for name in stored:
        found = asked(f"{name} to {'2 ' if name[0] == 'Z' else ''}a to")
        assert (found.destination, found.keys, found.weights) == (b"to", [b"a", b"to"], [1.0, 1.0])
        assert name == f"{'Z' if found.is_sorted else 'S'}{found.operation}STORE"
        assert not found.counts
        assert not commands.table()[name].at_source


def test_options() -> None:
    found = asked("zunion 2 a b withscores WEIGHTS 2 -inf aggregate max WEIGHTS .5 1e3")
    assert (found.with_scores, found.aggregate, found.weights) == (True, b"MAX", [0.5, 1000.0])
    found = asked("zunionstore to 2 a b WEIGHTS 2 -inf aggregate max")
    assert (found.aggregate, found.weights) == (b"MAX", [2.0, float("-inf")])
    found = asked("SINTERCARD 2 a b LIMIT 5 LIMIT 3")
    assert found.limit == 3


@pytest.mark.parametrize(
    "line",
    [
        *("ZUNION 2 a b WEIGHTS 1", "ZUNION 2 a b WEIGHTS 1 x", "ZUNION 2 a b AGGREGATE", "ZUNION 2 a b AGGREGATE x"),
        *("ZUNION 2 a b LIMIT 1", "ZUNION 2 a b c", "ZDIFF 2 a b WEIGHTS 1 1", "ZDIFF 2 a b AGGREGATE SUM"),
        *("SINTERCARD 2 a b LIMIT", "SINTERCARD 2 a b LIMIT -1", "SINTERCARD 2 a b LIMIT x", "SINTERCARD 2 a b c"),
        *("SINTERCARD 2 a b WITHSCORES", "ZINTERCARD 2 a b WITHSCORES", "ZINTERCARD 2 a b WEIGHTS 1 1"),
    ],
)
def test_what_is_wrong_is_not_understood(line: str) -> None:
    assert isinstance(understood(line), str)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(("WITHSCORES", SYNTAX), ("LIMIT 1", SYNTAX), ("c", SYNTAX), ("AGGREGATE", SYNTAX), ("AGGREGATE x", SYNTAX)),
        *(("WEIGHTS 1", SYNTAX), ("WEIGHTS 1 x", NO_WEIGHT), ("WEIGHTS x 1 AGGREGATE x", NO_WEIGHT)),
        *(("AGGREGATE x WEIGHTS x 1", SYNTAX), ("WEIGHTS 1 1 WITHSCORES", SYNTAX)),
    ],
)
def test_the_first_that_is_wrong_counts(options: str, error: str) -> None:
    assert understood(f"ZUNIONSTORE to 2 a b {options}") == error


@pytest.mark.parametrize("weight", ["nan", "1e999", "-1e999", "1e-999", "0x10", "1_0", "1e", ".", "--1", "infin", "1f"])
def test_weights_that_are_none(weight: str) -> None:
    assert understood(f"ZINTER 2 a b WEIGHTS 1 {weight}") == NO_WEIGHT


@pytest.mark.parametrize(("weight", "value"), [("0e-999", 0.0), ("+1.", 1.0), ("-INF", float("-inf")), ("00", 0.0)])
def test_weights_that_are_some(weight: str, value: float) -> None:
    found = asked(f"ZINTER 2 a b WEIGHTS 1 {weight}")
    assert found.weights == [1.0, value]
