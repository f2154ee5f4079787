"""What a source says of being followed; whatever it says, nothing raises but a lost connection."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.checks import look
from migrator.errors import ServerUnavailable
from migrator.followable import Followable, disk_of, may
from slots.access import ServerAccess
from tests.unit.migrator.conftest import Answer, ScriptedServer

StartScripted = Callable[[Answer], Awaitable[ScriptedServer]]
ACCESS = ServerAccess()
DOCUMENTED = "+@all -@admin -@dangerous +acl|getuser +client +config|get +psync +replconf"


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ("+@all", True),
        ("allcommands", True),
        ("nocommands", False),
        ("", False),
        (DOCUMENTED, True),
        ("+@all -@dangerous", False),
        ("+@all -@admin", False),
        ("-@all +psync", True),
        ("+@all -psync", False),
        ("+@all -psync|x -@string", True),
        ("-@all +@slow", True),
        ("+ - @ ~*", False),
    ],
)
def test_the_last_rule_about_a_command_counts(rules: str, allowed: bool) -> None:
    assert may(rules, "psync") is allowed


def packed(reply: object) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case Exception():
            return b"-%s\r\n" % str(reply).encode()
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(reply), reply)
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(map(packed, reply))
    raise AssertionError(reply)


def server(acl: dict[bytes, object], config: object = None) -> Answer:
    """``acl`` has the replies by subcommand; what it lacks is refused."""

    def answer(command: list[bytes]) -> bytes:
        match command:
            case [b"ACL", b"DRYRUN", _, name, *_]:
                return packed(acl.get(b"DRYRUN " + name, Exception("NOPERM no")))
            case [b"ACL", name, *_]:
                return packed(acl.get(name, Exception("NOPERM no")))
            case [b"CONFIG", *_]:
                return packed(Exception("NOPERM no") if config is None else config)
            case [b"INFO", *_]:
                return packed(b"redis_version:7.0.0\r\nrun_id:a\r\nrole:master\r\ntotal_system_memory:x\r\n")
            case [b"MODULE", *_]:
                return b"*0\r\n"
        return b"+OK\r\n"

    return answer


USER = {b"WHOAMI": b"me"}
DRY = {**USER, b"DRYRUN PSYNC": b"OK", b"DRYRUN REPLCONF": b"OK"}


@pytest.mark.parametrize(
    ("acl", "config", "found"),
    [
        ({}, None, (None, None)),
        ({**USER, b"GETUSER": [b"flags", [b"on"], b"commands", b"+@all"]}, None, (True, None)),
        ({**USER, b"GETUSER": [b"commands", b"+@all -psync"]}, None, (False, None)),
        ({**USER, b"GETUSER": [b"commands", b"+@all -replconf", b"selectors", []]}, None, (False, None)),
        ({**USER, b"GETUSER": [b"commands", b"-@all", b"selectors", [[b"commands", b"+@all"]]]}, None, (None, None)),
        (DRY, None, (True, None)),
        ({**DRY, b"DRYRUN PSYNC": b"User me has no permissions to run the 'psync' command"}, None, (False, None)),
        ({**DRY, b"GETUSER": [b"commands", b"-@all"]}, None, (False, None)),
        ({**USER, b"GETUSER": b"odd", b"DRYRUN PSYNC": [b"odd"]}, b"odd", (None, None)),
        ({b"WHOAMI": [b"odd"]}, [b"odd"], (None, None)),
        ({}, [b"repl-diskless-sync", b"yes", b"repl-diskless-sync-delay", b"5"], (None, 5.0, False)),
        ({}, [b"repl-diskless-sync", b"no", b"repl-diskless-sync-delay", b"5"], (None, 0.0, True)),
        ({}, [b"repl-diskless-sync", b"yes", b"repl-diskless-sync-delay", b"odd"], (None, None, False)),
        ({}, [b"repl-diskless-sync-delay", b"99999"], (None, 86_400.0)),
        ({}, [b"repl-diskless-sync-delay", b"9" * 4000], (None, None)),
        ({}, [b"repl-diskless-sync-delay", b"-1", None, None], (None, None)),
    ],
)
async def test_what_a_source_says(
    scripted: StartScripted, acl: dict[bytes, object], config: object, found: tuple[Any, ...]
) -> None:
    source = await scripted(server(acl, config))
    facts, followable = await look(source.address, access=ACCESS, instance="0" * 32)
    permitted, delay, *on_disk = found
    assert followable == Followable(permitted, delay, on_disk=on_disk[0] if on_disk else None)
    assert (facts.machine_bytes, facts.all_keys) == (None, 0), "an odd figure is not known"
    assert not {command[0] for command in source.commands} & {b"PSYNC", b"EVAL", b"SET", b"RESTORE"}


async def test_a_source_that_goes_away_is_said_to_be_unavailable(scripted: StartScripted) -> None:
    source = await scripted(lambda command: None if command[0] == b"ACL" else server({})(command))
    with pytest.raises(ServerUnavailable):
        await look(source.address, access=ACCESS, instance="0" * 32)


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (disk_of(tmp_path / "data" / "spool") or 0) > 0

    def broken(path: Path) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr("os.statvfs", broken)
    assert disk_of(tmp_path) is None
