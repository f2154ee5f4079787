"""ioredis: an application in JavaScript, ``tests/clients/ioredis.mjs``."""

from typing import Any

import pytest

from tests.integration.clients.javascript import run_application


@pytest.fixture(scope="module")
def seen(address: tuple[str, int]) -> dict[str, Any]:
    """What the application saw."""
    return run_application("ioredis.mjs", address)


@pytest.mark.long
def test_every_type(seen: dict[str, Any], at_rest: bool) -> None:
    assert 990 < seen["types"].pop("ttl") <= 1000
    assert seen["types"] == {
        "set": "OK",
        "get": "välue",
        "missing": None,
        "binary": [0, 13, 10, 255],
        "hset": 2,
        "hgetall": {"a": "1", "b": "2"},
        "hincrby": 42,
        "rpush": 3,
        "lrange": ["x", "y", "z"],
        "sadd": 2,
        "smembers": ["m", "n"],
        "zadd": 2,
        "zrange": ["one", "1", "two", "2.5"],
        "xadd": "1-1",
        "xrange": [["1-1", ["field", "value"]]],
        "script": ["prefixed:string", "argument"],
    }
    assert seen["scanned"] == 1000 if at_rest else seen["scanned"] > 0
    assert seen["large"] is True


def test_several_keys_are_split_over_slots(seen: dict[str, Any]) -> None:
    assert seen["split"] == {
        "mset": "OK",
        "mget": [*(str(number) for number in range(300)), None],
        "exists": 300,
        "del": 50,
        "unlink": 250,
    }


def test_pipelines(seen: dict[str, Any]) -> None:
    assert seen["pipelined"] == {
        "inOrder": True,
        "wrongType": "WRONGTYPE Operation against a key holding the wrong kind of value",
        "last": [None, ["2", "3"]],
    }
    assert seen["autoPipelined"] is True


def test_databases(seen: dict[str, Any]) -> None:
    assert seen["databases"] == ["database 3", "database 1", "database 2", "database 3"]


def test_errors_say_what_it_is_and_the_connection_goes_on(seen: dict[str, Any]) -> None:
    errors = seen["errors"]
    assert errors["wrongType"].startswith("WRONGTYPE ")
    assert errors["arity"] == "ERR wrong number of arguments for 'get' command"
    assert errors["crossSlot"].startswith("CROSSSLOT ")
    assert errors["unknown"].startswith("ERR unknown command 'NOSUCH'")
    assert errors["exec"] == "ERR EXEC without MULTI"
    assert errors["database"] == "ERR DB index is out of range"
    assert errors["after"] == "PONG"


def test_many_connections(seen: dict[str, Any]) -> None:
    assert seen["many"] == {"sum": "1000", "listed": 20}


def test_transactions(seen: dict[str, Any]) -> None:
    assert seen["transactions"] == {
        "pipelined": [[None, "OK"], [None, 2], [None, "2"]],
        "stepwise": ["OK", "QUEUED", "QUEUED", [[None, 3], [None, "3"]]],
        "discarded": ["OK", "3"],
        "aborted": None,
        "crossSlot": "EXECABORT Transaction discarded because of previous errors.",
        "after": "3",
    }


def test_commands_made_of_scripts(seen: dict[str, Any]) -> None:
    assert seen["scripts"] == {"defined": [["one", "x"], ["two", "y"]], "pipelined": [[None, ["three", "z"]]] * 20}


def test_subscriptions(seen: dict[str, Any]) -> None:
    assert seen["subscriptions"] == {
        "counts": [2, 3],
        "messages": [["news", "0"], ["news", "1"], ["weather", "2"]],
        "patterns": [["n*", "news", "0"], ["n*", "news", "1"]],
    }


def test_every_key(seen: dict[str, Any]) -> None:
    assert seen["everyKey"] == {"scanned": 2000, "keys": 200, "size": True, "typed": ["every:list"]}


def test_waiting(seen: dict[str, Any]) -> None:
    assert seen["waited"] == {
        "none": None,
        "popped": ["{wait}2", "pushed"],
        "least": ["wait:zset", "member", "1"],
        "read": [["wait:stream", [["1-1", ["field", "value"]]]]],
    }
