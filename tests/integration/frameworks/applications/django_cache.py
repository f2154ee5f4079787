"""Django's own RedisCache, and django-redis, with their default settings."""

from typing import Any

from django.conf import settings
from running import HOST, PORT, WHAT, tell

URL = f"redis://{HOST}:{PORT}"
settings.configure(
    CACHES={
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"{URL}/1"},
        "other": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{URL}/2"},
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="of a test",
)

import django  # noqa: E402

django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import caches  # noqa: E402

ROUNDS = 12


def of_both(cache: Any, name: str) -> dict[str, object]:
    """What both caches can do."""
    many = {f"{name}:{number}": {"number": number} for number in range(50)}
    seen: dict[str, object] = {
        "set_many": cache.set_many(many, timeout=100),
        "get_many": cache.get_many(many) == many,
        "missing": cache.get_many([*many, f"{name}:none"]) == many,
        "add": [cache.add(f"{name}:added", 1), cache.add(f"{name}:added", 2)],
        "incr": [cache.incr(f"{name}:added"), cache.incr(f"{name}:added", 40)],
        "touch": [cache.touch(f"{name}:1", 500), cache.touch(f"{name}:none", 500)],
        "version": [
            cache.set(f"{name}:v", "two", version=2),
            cache.get(f"{name}:v"),
            cache.get(f"{name}:v", version=2),
        ],
        "get_or_set": cache.get_or_set(f"{name}:made", lambda: "made"),
        "forever": [cache.set_many({f"{name}:a": 1, f"{name}:b": 2}, timeout=None), cache.get(f"{name}:b")],
        "delete": [cache.delete(f"{name}:1"), cache.delete(f"{name}:1")],
    }
    cache.delete_many([f"{name}:{number}" for number in range(25)])
    seen["deleted"] = len(cache.get_many(many))
    return seen


def work() -> dict[str, object]:
    """What an application does."""
    seen: dict[str, object] = {}
    for alias in ("default", "other"):
        rounds = [of_both(caches[alias], f"round-{number}") for number in range(ROUNDS)]
        assert all(found == rounds[0] for found in rounds), rounds
        seen[alias] = rounds[0]
    other = caches["other"]
    seen["ttl"] = 0 < other.ttl("round-0:30") <= 100
    seen["keys"] = len(other.keys("round-0:*"))
    # It counts what SCAN gives, which may give a key twice.
    seen["delete_pattern"] = other.delete_pattern("round-0:*", itersize=1000) >= 29
    seen["after"] = len(other.keys("round-0:*"))
    with other.lock("guarded", timeout=20):
        seen["locked"] = other.has_key("guarded") or other.client.get_client().exists("guarded")
    sessions = []
    for number in range(20):
        session = SessionStore()
        session["number"] = number
        session.save()
        sessions.append(session.session_key)
    seen["sessions"] = [SessionStore(key)["number"] for key in sessions]
    seen["clear"] = [bool(caches["default"].clear()), caches["default"].get("round-0:30")]
    return seen


tell(work() if WHAT == "work" else caches["default"].set_many({"a": 1, "b": 2}))
