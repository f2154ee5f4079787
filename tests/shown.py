"""Makes what pages of the documents speak of, where that takes more than a line; ``tests/pages.py`` runs it.

Run as a program with one of these names, and what its function is given.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path

import redis

BIG_SLOTS = 171
DUMP = Path(__file__).parent / "integration" / "codis" / "config-dump.json"


def keys(url: str) -> None:
    """Reports, users, sessions, boards and carts at a proxy: by their memory in this order."""
    for database in (0, 3):
        with redis.Redis.from_url(url, db=database) as client:
            pipe = client.pipeline(transaction=False)
            for number in range(12):
                pipe.setrange(f"report:{number}", 2_500_000 - number * 100_000, "x")
            for number in range(10):
                pipe.hset(f"user:{number}", mapping={f"field:{field}": "x" * 40 for field in range(2500)})
                pipe.zadd(f"board:{number}", {f"player:{player}": player for player in range(700)})
                pipe.rpush(f"cart:{number}", *(f"article:{article}" for article in range(100)))
            for number in range(8000):
                pipe.set(f"session:{number}", "x" * 100, ex=3600)
            pipe.execute()


def sizes(topom: str, token: str, *proxies: str) -> None:
    """Tell topom sizes of its 1024 slots, of which the first are four times as big; keys go to a proxy."""
    for url in proxies:
        with redis.Redis.from_url(url) as client:
            client.mset({f"user:{number}": "x" * 40 for number in range(3000)})
    slots = [
        {"slot": slot, "bytes": 4_000_000 if slot < BIG_SLOTS else 1_000_000, "keys": 3000} for slot in range(1024)
    ]
    told = {"taken_at": time.time(), "seconds": 1, "complete": True, "slots": slots}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{topom}/api/v1/sizes", json.dumps(told).encode(), headers)).close()


def dump(file: str, *addresses: str) -> None:
    """The dump of a Codis whose first servers have these addresses."""
    dumped = json.loads(DUMP.read_text(encoding="utf-8"))
    for group, address in zip(dumped["group"], addresses, strict=False):
        group["servers"][0]["server"] = address
    Path(file).write_text(json.dumps(dumped), encoding="utf-8")


if __name__ == "__main__":
    {"keys": keys, "sizes": sizes, "dump": dump}[sys.argv[1]](*sys.argv[2:])
