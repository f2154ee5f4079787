"""node-redis: an application in JavaScript, ``tests/clients/node-redis.mjs``, by both protocols."""

from typing import Any

import pytest

from tests.integration.clients.javascript import run_application


@pytest.fixture(scope="module", params=["2", "3"], ids=["RESP2", "RESP3"])
def seen(request: pytest.FixtureRequest, address: tuple[str, int]) -> dict[str, Any]:
    """What the application saw."""
    return run_application("node-redis.mjs", address, request.param)


@pytest.mark.long
def test_every_type(seen: dict[str, Any]) -> None:
    assert seen["types"] == {
        "set": "OK",
        "get": "välue",
        "missing": None,
        "hSet": 2,
        "hGetAll": {"a": "1", "b": "2"},
        "rPush": 3,
        "lRange": ["x", "y", "z"],
        "sAdd": 2,
        "sMembers": ["m", "n"],
        "zAdd": 2,
        "zRange": [{"value": "one", "score": 1}, {"value": "two", "score": 2.5}],
        "xAdd": "1-1",
    }


def test_requests_that_are_sent_together(seen: dict[str, Any]) -> None:
    assert seen["pipelined"] == {"inOrder": True, "mGet": True, "del": 300}


def test_transactions(seen: dict[str, Any]) -> None:
    found = seen["transactions"]
    assert found.pop("crossSlot").startswith(("CROSSSLOT ", "EXECABORT "))
    assert found == {"executed": ["OK", 2, "2"], "pipelined": ["OK", "OK"], "watched": "WatchError", "after": "3"}


def test_scripts(seen: dict[str, Any]) -> None:
    assert seen["scripts"] == [["one", "x"], ["two", "y"]]


def test_subscriptions(seen: dict[str, Any]) -> None:
    assert seen["subscriptions"] == {
        "messages": [["news", "0"], ["news", "1"], ["weather", "2"]],
        "patterns": [["news", "0"], ["news", "1"]],
    }


def test_every_key(seen: dict[str, Any]) -> None:
    assert seen["everyKey"] == {"scanned": 2000, "keys": 200, "size": True}


def test_waiting(seen: dict[str, Any]) -> None:
    assert seen["waited"] == {"none": None, "popped": "pushed", "least": "member"}


def test_errors(seen: dict[str, Any]) -> None:
    errors = seen["errors"]
    assert errors["wrongType"].startswith("WRONGTYPE ")
    assert errors["arity"] == "ERR wrong number of arguments for 'get' command"
    assert errors["unknown"].startswith("ERR unknown command 'NOSUCH'")
    assert errors["crossSlot"].startswith("CROSSSLOT ")
    assert errors["after"] == "PONG"
