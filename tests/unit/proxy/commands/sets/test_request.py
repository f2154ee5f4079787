"""What a request over sets asks for, as Redis reads it."""

import pytest

from proxy.commands.sets.request import SetRequest, understand
from slots import commands


def asked(line: str) -> SetRequest | None:
    argv = line.encode().split()
    return understand(commands.find(argv), argv)


def test_every_computed_command_is_understood() -> None:
    computed = {row.name for row in commands.table().values() if row.computed}
    assert computed == {"SUNION", "SINTER", "SDIFF", "SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"}
    for name in computed:
        counted = name[0] == "Z" or name.endswith("CARD")
        found = asked(f"{name} {'2 ' if counted else ''}a b")
        assert found is not None
        assert (found.keys, found.weights) == ([b"a", b"b"], [1.0, 1.0])
        assert (found.is_sorted, found.counts) == (name[0] == "Z", name.endswith("CARD"))
        assert name == f"{'Z' if found.is_sorted else 'S'}{found.operation}{'CARD' if found.counts else ''}"
        # At the source of a moving slot, the command itself may run.
        assert commands.table()[name].at_source


def test_options() -> None:
    found = asked("zunion 2 a b withscores WEIGHTS 2 -inf aggregate max WEIGHTS .5 1e3")
    assert found is not None
    assert (found.with_scores, found.aggregate, found.weights) == (True, b"MAX", [0.5, 1000.0])
    found = asked("SINTERCARD 2 a b LIMIT 5 LIMIT 3")
    assert found is not None
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
    assert asked(line) is None


@pytest.mark.parametrize("weight", ["nan", "1e999", "-1e999", "1e-999", "0x10", "1_0", "1e", ".", "--1", "infin", "1f"])
def test_weights_that_are_none(weight: str) -> None:
    assert asked(f"ZINTER 2 a b WEIGHTS 1 {weight}") is None


@pytest.mark.parametrize(("weight", "value"), [("0e-999", 0.0), ("+1.", 1.0), ("-INF", float("-inf")), ("00", 0.0)])
def test_weights_that_are_some(weight: str, value: float) -> None:
    found = asked(f"ZINTER 2 a b WEIGHTS 1 {weight}")
    assert found is not None
    assert found.weights == [1.0, value]
