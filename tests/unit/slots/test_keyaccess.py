"""What commands do with the values of their keys, as an ACL counts it."""

import pytest

from slots import commands
from slots.keyaccess import READS, WRITES, most, needs


def test_every_command_with_keys_says_what_it_does_with_them() -> None:
    for name, row in commands.table().items():
        has_keys = bool(row.first or row.keys) and "pubsub" not in row.flags
        assert bool(row.access) == has_keys, name


@pytest.mark.parametrize(
    ("request_line", "count", "expected"),
    [
        ("SET k v", 1, [WRITES]),
        ("SET k v EX 1 get", 1, [READS | WRITES]),
        ("BITFIELD k GET u8 0 OVERFLOW SAT", 1, [READS]),
        ("BITFIELD k GET u8 0 INCRBY u8 0 1", 1, [READS | WRITES]),
        ("BITFIELD k GET u8", 1, [READS | WRITES]),
        ("BITOP AND a b c", 3, [WRITES, READS, READS]),
        ("COPY a b", 2, [READS, WRITES]),
        ("EXISTS a b", 2, [0, 0]),
    ],
)
def test_what_a_request_does_with_its_keys(request_line: str, count: int, expected: list[int]) -> None:
    argv = request_line.encode().split()
    assert needs(commands.find(argv), argv, count) == expected


def test_the_most_that_a_command_does_is_not_less_than_what_a_request_does() -> None:
    table = commands.table()
    assert most(table["SET"]) == most(table["BITFIELD"]) == most(table["COPY"]) == READS | WRITES
    assert most(table["GET"]) == READS
    assert most(table["EXISTS"]) == 0
