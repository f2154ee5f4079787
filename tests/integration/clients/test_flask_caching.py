"""Flask-Caching over its RedisCache: a web application whose pages and functions are remembered at the proxy."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask_caching import Cache


@pytest.fixture
def made(address: tuple[str, int]) -> tuple[Flask, Cache]:
    """An application and its cache, which is empty."""
    application = Flask("shop")
    host, port = address
    settings: dict[str, Any] = {"CACHE_TYPE": "RedisCache", "CACHE_REDIS_HOST": host, "CACHE_REDIS_PORT": port}
    cache = Cache(application, config={**settings, "CACHE_REDIS_DB": 5, "CACHE_KEY_PREFIX": "shop:"})
    with application.app_context():
        cache.clear()
    return application, cache


def counting(function: Callable[..., Any]) -> tuple[list[Any], Callable[..., Any]]:
    """A function, and the arguments of its calls."""
    calls: list[Any] = []

    def called(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    return calls, called


def test_values(made: tuple[Flask, Cache]) -> None:
    application, cache = made
    with application.app_context():
        assert cache.get("missing") is None
        assert cache.set("value", {"nested": [1, 2, None]}, timeout=100)
        assert cache.get("value") == {"nested": [1, 2, None]}
        assert cache.has("value")
        assert not cache.add("value", "other")
        assert cache.add("added", "x")
        many = {f"many:{number}": number for number in range(100)}
        cache.set_many(many)
        assert cache.get_many(*many) == list(range(100))
        assert cache.get_dict(*many) == many
        cache.delete_many(*list(many)[:50])
        assert cache.get_many(*many) == [None] * 50 + list(range(50, 100))
        assert cache.delete("value")
        # Looks for all keys with the prefix.
        cache.clear()
        assert cache.get_many(*many, "added") == [None] * 101


def test_a_page(made: tuple[Flask, Cache]) -> None:
    application, cache = made
    calls, page = counting(lambda: "a page")
    application.add_url_rule("/", "page", cache.cached(timeout=100)(page))
    client = application.test_client()
    assert [client.get("/").text for _ in range(5)] == ["a page"] * 5
    assert len(calls) == 1
    cache.delete("view//")
    assert client.get("/").text == "a page"
    assert len(calls) == 2


def test_a_function(made: tuple[Flask, Cache]) -> None:
    application, cache = made
    calls: list[int] = []

    @cache.memoize(timeout=100)
    def square(number: int) -> int:
        calls.append(number)
        return number * number

    with application.app_context():
        for _ in range(3):
            assert [square(number) for number in range(30)] == [number * number for number in range(30)]
        assert calls == list(range(30))
        cache.delete_memoized(square, 7)
        assert square(7) == 49
        assert calls[30:] == [7]
        cache.delete_memoized(square)
        assert square(8) == 64
        assert calls[31:] == [8]
