"""What the programs in Python share: the address they are given, their workers, waiting, and what they print."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

HOST, PORT, WHAT = (*sys.argv[1:], "127.0.0.1", "6379", "work")[:3]
SECONDS = 120.0


@contextmanager
def worker(*command: str) -> Iterator[None]:
    """A worker process of the framework, which runs while the block does. It has to end well."""
    environment = {**os.environ, "FRAMEWORK_ADDRESS": f"{HOST}:{PORT}"}
    process = subprocess.Popen([sys.executable, "-m", *command], env=environment, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def address() -> tuple[str, int]:
    """The address, in a program or in a worker that one has started."""
    host, _, port = os.environ.get("FRAMEWORK_ADDRESS", f"{HOST}:{PORT}").rpartition(":")
    return host, int(port)


def until(look: Callable[[], Any], what: str) -> Any:
    """Look again and again until there is something; give it."""
    limit = time.monotonic() + SECONDS
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > limit:
            raise AssertionError(f"gave up waiting for {what}")
        time.sleep(0.02)


def all_of(looks: Sequence[Callable[[], Any]]) -> bool:
    """Whether each of these says so."""
    return all(look() for look in looks)


def tell(seen: Any) -> None:
    """Print what was seen."""
    print(json.dumps(seen), flush=True)
