"""Rows made of what servers say: the same keys as the server finds, and nothing served that cannot be."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection
from redis.exceptions import ResponseError

from slots import commands, keys, learned
from slots.commands import Command, Route
from tests.searching import examples
from tests.unit.slots.test_commands import reported

WORDS = st.sampled_from(
    [b"a", b"b", b"0", b"1", b"2", b"3", b"-1", b"STREAMS", b"store", b"STOREDIST", b"KEYS", b"x", b"\xff", b""]
)


@pytest.fixture(scope="session")
def entries(redis_address: str) -> dict[str, Any]:
    """The entries of COMMAND by their names."""
    return asyncio.run(reported(redis_address))


@pytest.fixture(scope="module")
def asked(redis_address: str) -> Iterator[Connection]:
    """A plain connection to the real server."""
    host, _, port = redis_address.rpartition(":")
    connection = Connection(host=host, port=int(port), protocol=2)
    yield connection
    connection.disconnect()


def learn(entry: Any) -> Command:
    [row] = learned.rows([[*entry[:9], []] if len(entry) > 9 else entry]).values()
    return row


@pytest.fixture(scope="session")
def specified(entries: dict[str, Any]) -> list[Command]:
    """The rows of the commands whose keys the server specifies."""
    rows = [learn(entry) for _, entry in sorted(entries.items())]
    return [row for row in rows if row.keys.startswith("spec") or row.first]


@pytest.mark.long
@settings(max_examples=examples(2000), deadline=None)
@given(st.integers(0, 10_000), st.lists(WORDS, min_size=8, max_size=8), st.integers(0, 6))
def test_the_server_finds_the_same_keys(
    specified: list[Command], asked: Connection, number: int, words: list[bytes], more: int
) -> None:
    row = specified[number % len(specified)]
    argv = [*row.name.encode().split(b"|"), *words][: abs(row.arity) + (more if row.arity < 0 else 0)]
    asked.send_command("COMMAND", "GETKEYS", *argv)
    try:
        theirs = asked.read_response()
    except ResponseError:
        # A request that is sent is still routed by keys that it has: the server gives its own error.
        theirs = None
    try:
        ours = commands.keys_of(row, argv)
    except commands.KeysError:
        # Nothing is sent: then the server would not have run it. Its GETKEYS takes a STREAMS in GROUP's place for the
        # keyword; the command itself does not.
        without_group = row.name == "XREADGROUP" and argv[1] != b"GROUP"
        assert theirs in (None, []) or row.name in ("MSET", "MSETNX") or without_group
        return
    if theirs is not None:
        # If a keyword stands there twice, both places count.
        assert ours == theirs or (set(theirs) <= set(ours) and "keyword" in row.keys), (argv, ours, theirs)


def test_rows_of_commands_that_are_known(entries: dict[str, Any]) -> None:
    """If the table had no row for these commands, they would be learned as the table has them."""
    table = commands.table()
    unlike = {
        name
        for name, entry in entries.items()
        if table[name].route is Route.KEYED
        and (learn(entry).first, learn(entry).last) != (table[name].first, table[name].last)
    }
    assert unlike == set()
    for name in ("XREAD", "ZUNIONSTORE", "EVAL", "LMPOP", "GEORADIUS"):
        row = learn(entries[name])
        assert row.keys.startswith("spec:"), row
        assert row.route is (Route.BLOCKING if "blocking" in row.flags else Route.MOVABLE)
    for name in ("SORT", "MIGRATE"):
        assert learn(entries[name]).keys == learned.ASKED
    for name in ("BLPOP", "BLMOVE", "BZMPOP"):
        assert learn(entries[name]).route is Route.BLOCKING


def test_only_what_is_missing_is_learned(entries: dict[str, Any]) -> None:
    table = commands.table()
    rows = learned.rows(entries.values())
    assert learned.missing(table, rows) == {}
    fewer = {name: row for name, row in table.items() if name not in ("GETEX", "OBJECT|FREQ", "LCS")}
    found = learned.missing(fewer, rows)
    assert set(found) == {"GETEX", "OBJECT|FREQ", "LCS"}
    assert all(row.learned and row.route is Route.KEYED for row in found.values())
    assert (found["LCS"].first, found["LCS"].last) == (1, 2)
    # All of a container that is refused is refused, also what is new.
    fewer = {name: row for name, row in table.items() if name != "CLUSTER|SLOTS"}
    [row] = learned.missing(fewer, rows).values()
    assert commands.refusal(row) == commands.refusal(table["CLUSTER|SLOTS"])
    # A subcommand of a command that is known to have none.
    plain = {name: row for name, row in table.items() if not name.startswith("OBJECT|")}
    plain["OBJECT"] = Command("OBJECT", -2, 0, 0, 0, frozenset(), Route.REFUSED)
    assert learned.missing(plain, rows) == {}


def entry(name: str, flags: list[str], first: int = 0, last: int = 0, step: int = 0, *specifications: Any) -> list[Any]:
    """An entry as a server of version 7 gives it."""
    return [name, -2, flags, first, last, step, [], [], list(specifications), []]


def specification(flags: list[str], begin: list[Any], find: list[Any]) -> list[Any]:
    return ["flags", flags, "begin_search", begin, "find_keys", find]


AT_ONE = ["type", "index", "spec", ["index", 1]]
ONE = ["type", "range", "spec", ["lastkey", 0, "keystep", 1, "limit", 0]]
UNKNOWN = ["type", "unknown", "spec", []]


def test_commands_of_modules() -> None:
    made_up = specification(["RW", "variable_flags"], AT_ONE, ONE)
    rows = learned.rows(
        [
            entry("graph.QUERY", ["write", "module", "blocking"], 1, 1, 1, specification(["RW"], AT_ONE, ONE)),
            entry("demo.fixed", ["readonly", "module"], 1, 1, 1, specification(["RW"], AT_ONE, ONE)),
            entry("demo.own", ["readonly", "module", "movablekeys"], 1, 1, 1, made_up),
            entry("demo.none", ["readonly", "module", "movablekeys"]),
            entry(
                "demo.vague", ["readonly", "module", "movablekeys"], 0, 0, 0, specification(["RO"], UNKNOWN, UNKNOWN)
            ),
            entry("demo.some", ["readonly", "movablekeys"], 1, 1, 1, specification(["RO", "incomplete"], AT_ONE, ONE)),
            entry("demo.channel", ["pubsub"], 1, 1, 1, specification(["not_key"], AT_ONE, ONE)),
            entry("demo.silent", ["module"], 1, 1, 1),
        ]
    )
    assert rows["GRAPH.QUERY"].route is Route.BLOCKING
    assert rows["GRAPH.QUERY"].first == 1
    assert (rows["DEMO.FIXED"].route, rows["DEMO.FIXED"].first, rows["DEMO.FIXED"].writes) == (Route.KEYED, 1, False)
    for name in ("DEMO.OWN", "DEMO.NONE", "DEMO.VAGUE", "DEMO.SOME"):
        assert (rows[name].route, rows[name].keys) == (Route.MOVABLE, learned.ASKED)
    assert (rows["DEMO.CHANNEL"].route, rows["DEMO.CHANNEL"].first) == (Route.KEYED, 1)
    assert rows["DEMO.SILENT"].writes


def test_servers_before_version_7() -> None:
    rows = learned.rows([["foo", 2, ["readonly"], 1, 1, 1, []], ["bar", -3, ["write", "movablekeys"], 0, 0, 0, []]])
    assert (rows["FOO"].route, rows["FOO"].first) == (Route.KEYED, 1)
    assert (rows["BAR"].route, rows["BAR"].keys) == (Route.MOVABLE, learned.ASKED)


def test_commands_without_keys() -> None:
    container = entry("demo", [])
    container[9] = [entry("demo|list", ["readonly"]), entry("demo|help", []), entry("demo|del", ["write"], 2, 2, 1)]
    rows = learned.rows([container, entry("demo.all", ["readonly"]), entry("demo.known", ["readonly"])], {"DEMO.KNOWN"})
    assert {name: row.route for name, row in rows.items()} == {
        "DEMO": Route.REFUSED,
        "DEMO|LIST": Route.REFUSED,
        "DEMO|HELP": Route.ANY,
        "DEMO|DEL": Route.KEYED,
        "DEMO.ALL": Route.REFUSED,
        "DEMO.KNOWN": Route.ANY,
    }
    assert rows["DEMO"].container
    assert commands.refusal(rows["DEMO|LIST"]).startswith("ERR DEMO LIST is refused by Slotferry: it names no key")


@pytest.mark.parametrize(
    ("rule", "line", "found"),
    [
        ("spec:index:1:range:0:1:0", "x a b", "a"),
        ("spec:index:1:range:1:1:0", "x a b", "a b"),
        ("spec:index:1:range:-1:2:0", "x a 1 b 2", "a b"),
        ("spec:index:2:range:-2:1:0", "x o a b last", "a b"),
        ("spec:index:1:range:-1:1:2", "x a b c d", "a b"),
        ("spec:index:1:keynum:0:1:1", "x 2 a b c", "a b"),
        ("spec:index:1:keynum:0:1:2", "x 2 a 1 b 2", "a b"),
        ("spec:index:1:keynum:0:1:1", "x 0 a", ""),
        ("spec:index:1:range:0:1:0+spec:index:2:range:-1:1:0", "x a", "a"),
        ("spec:index:1:range:0:1:0+spec:keyword:STORE:2:range:0:1:0", "x a", "a"),
        ("spec:index:1:range:0:1:0+spec:keyword:STORE:2:range:0:1:0", "x a store b", "a b"),
        ("spec:index:1:range:0:1:0+spec:keyword:STORE:2:range:0:1:0", "x a store b STORE c", "a b c"),
        ("spec:keyword:STREAMS:1:range:-1:1:2", "x streams a streams 0 0", "a streams"),
        ("spec:keyword:KEYS:-2:range:-1:1:0", "x keys a keys b", "b"),
        ("spec:keyword:KEYS:-2:range:-1:1:0", "x a b c d", ""),
    ],
)
def test_key_specifications(rule: str, line: str, found: str) -> None:
    argv = line.encode().split()
    assert [argv[position] for position in keys.positions(rule, argv)] == found.encode().split()


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("spec:index:1:range:1:1:0", "x a"),
        ("spec:index:1:keynum:0:1:1", "x 2 a"),
        ("spec:index:1:keynum:0:1:1", "x -1 a"),
        ("spec:index:1:keynum:0:1:1", "x one a"),
        ("spec:index:1:keynum:0:1:2", "x 2 a 1"),
        ("spec:index:1:keynum:0:1:1", "x 99999999999999999999 a"),
        ("asked", "x a"),
    ],
)
def test_arguments_that_do_not_hold_together(rule: str, line: str) -> None:
    with pytest.raises(commands.KeysError, match=r"^ERR "):
        keys.positions(rule, line.encode().split())


def test_specifications_that_are_none() -> None:
    for rule in ("spec:index:1", "spec:nowhere:1:range:0:1:0", "spec:index:1:list:0:1:0", "spec:keyword:1:range:0:1:0"):
        with pytest.raises(ValueError, match=r"specification|rule"):
            keys.positions(rule, [b"x", b"a"])
