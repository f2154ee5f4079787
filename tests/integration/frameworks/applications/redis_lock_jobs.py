"""python-redis-lock: threads that count under locks."""

import threading

import redis
import redis_lock
from running import HOST, PORT, WHAT, tell

THREADS, TIMES = 6, 12


def count(client: redis.StrictRedis, name: str) -> None:
    """Add to a number that two threads would spoil."""
    for _ in range(TIMES):
        with redis_lock.Lock(client, name, expire=30, auto_renewal=True):
            client.set(f"count-{name}", int(client.get(f"count-{name}") or 0) + 1)


def work() -> dict[str, object]:
    """What an application does."""
    client = redis.StrictRedis(HOST, int(PORT))
    names = ["first", "second", "third"]
    threads = [threading.Thread(target=count, args=(client, names[number % 3])) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lock = redis_lock.Lock(client, "fourth", expire=30)
    other = redis_lock.Lock(client, "fourth", expire=30)
    seen: dict[str, object] = {
        "counted": [int(client.get(f"count-{name}") or 0) for name in names],
        "acquired": [lock.acquire(), other.acquire(blocking=False), other.acquire(timeout=1)],
        "locked": lock.locked(),
    }
    lock.extend(60)
    lock.release()
    seen["after"] = [other.acquire(timeout=10), other.reset(), lock.acquire(blocking=False)]
    return seen


def probe() -> object:
    """The first step that needs rules."""
    with redis_lock.Lock(redis.StrictRedis(HOST, int(PORT)), "first", expire=30):
        return True


tell(work() if WHAT == "work" else probe())
