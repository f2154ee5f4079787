"""Keys that the engine finds by itself are those that plain Python would find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import commands
from slots.commands import Route
from slots.requests.commandlookup import CommandLookup
from slots.requests.keyplaces import keys_of

LOOKUP = CommandLookup(commands.table())
MOVABLE = [row for row in commands.table().values() if row.route is Route.MOVABLE and "admin" not in row.flags]
WORDS = st.sampled_from(b"STREAMS streams COUNT count GROUP NOACK BLOCK CLAIM STORE WEIGHTS $ >".split())
NUMBERS = st.sampled_from([*b"0 1 2 3 4 01 -1 +1 9 12345678 99999999999".split(), b" 1", b""])
ARGUMENTS = st.lists(st.one_of(WORDS, NUMBERS, st.sampled_from([b"a", b"b", b"key"])), min_size=1, max_size=10)


@given(st.sampled_from(MOVABLE), ARGUMENTS)
def test_one_owner_what_the_engine_finds_plain_python_finds(row: commands.Command, arguments: list[bytes]) -> None:
    argv = [row.name.encode(), *arguments]
    if len(argv) < -row.arity or (row.arity > 0 and len(argv) != row.arity):
        return
    found = keys_of(LOOKUP, argv)
    if found is not None:
        assert found == commands.keys_of(row, argv)


@pytest.mark.parametrize(
    ("request_", "keys"),
    [
        ("EVAL text 2 a b c", "a b"),
        ("evalsha_ro 0123 1 a", "a"),
        ("FCALL f 1 a b", "a"),
        ("ZUNION 2 a b WEIGHTS 1 2", "a b"),
        ("ZUNIONSTORE d 2 a b", "d a b"),
        ("SINTERCARD 2 a b LIMIT 1", "a b"),
        ("LMPOP 1 a LEFT", "a"),
        ("XREAD COUNT 10 STREAMS a b 0 0", "a b"),
        ("xread streams a 0", "a"),
        ("XREADGROUP GROUP g c COUNT 1 NOACK STREAMS a >", "a"),
        ("XREADGROUP GROUP STREAMS STREAMS STREAMS STREAMS >", "STREAMS"),
    ],
)
def test_requests_that_applications_send_are_found(request_: str, keys: str) -> None:
    assert keys_of(LOOKUP, request_.encode().split()) == keys.encode().split()


@pytest.mark.parametrize(
    "request_",
    [
        "EVAL text 0",
        "EVAL text 2 a",
        "EVAL text 01 a",
        "LMPOP 1 a",
        "XREAD BLOCK 0 STREAMS a 0",
        "XREAD STREAMS a",
        "XREAD GROUP g c STREAMS a 0",
        "XREADGROUP STREAMS a b c >",
        "GET a",
        "SORT a",
    ],
)
def test_all_others_are_for_plain_python(request_: str) -> None:
    assert keys_of(LOOKUP, request_.encode().split()) is None
