"""A worker's knowledge of the servers' scripts is worth nothing once a connection is lost."""

from typing import Any, cast

import pytest

from proxy.commands.scripting import knownscripts
from proxy.commands.scripting.seenscripts import Scripts
from proxy.engine.backend import Backend
from proxy.engine.loaded import LoadedCode, knows


class Connection:
    """As much of a backend as is looked at."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = "1."
        self.is_ready = True


class Servers(dict[str, int]):
    """Numbers of servers, as the engine gives them."""

    def number(self, address: str) -> int:
        return self.setdefault(address, len(self))


def scripts_of(servers: Servers) -> Scripts:
    return Scripts(LoadedCode(), servers.number)


def connection(address: str = "a:1") -> Any:
    return cast(Backend, Connection(address))


def test_what_a_server_has_counts_while_the_connection_stands() -> None:
    scripts = scripts_of(Servers())
    name = scripts.remember(b"return 1")
    first = connection()
    scripts.note_at(name, first)
    assert scripts.is_at(name, "a:1")
    assert not scripts.is_at(name, "a:2")
    assert not scripts.is_at(b"0" * 40, "a:1")
    first.is_ready = False
    assert not scripts.is_at(name, "a:1")
    first.is_ready, first.name = True, "2."
    assert not scripts.is_at(name, "a:1")
    assert scripts.to_check(10) == {}
    scripts.note_at(name, first)
    assert scripts.is_at(name, "a:1")


def test_servers_are_checked_some_scripts_at_a_time() -> None:
    scripts = scripts_of(Servers())
    backend = connection()
    names = [scripts.remember(b"%d" % number) for number in range(5)]
    for name in names:
        scripts.note_at(name, backend)
    assert [scripts.to_check(2)[backend] for _ in range(3)] == [names[:2], names[2:4], [names[4], names[0]]]
    scripts.forget_server("a:1")
    assert scripts.to_check(2) == {}


def test_forgetting() -> None:
    scripts = scripts_of(Servers())
    name = scripts.remember(b"return 1", loaded=True)
    backends = [connection("a:1"), connection("a:2")]
    for backend in backends:
        scripts.note_at(name, backend)
    scripts.keep_servers(["a:2"])
    assert [scripts.is_at(name, backend.address) for backend in backends] == [False, True]
    before = scripts.flushes
    scripts.forget_servers()
    assert scripts.flushes > before
    assert not scripts.is_at(name, "a:2")
    assert scripts.loaded() == [name]
    scripts.forget()
    assert name not in scripts
    assert len(scripts) == 0


def test_the_engine_knows_what_a_server_surely_has() -> None:
    engine, servers = LoadedCode(), Servers()
    scripts = Scripts(engine, servers.number)
    name, backend = scripts.remember(b"return 1"), connection()
    scripts.note_at(name, backend)
    scripts.is_remembered(b"return 1")
    assert not knows(engine, 0, name), "not before a request has looked"
    assert scripts.is_at(name, "a:1")
    assert knows(engine, 0, name)
    assert knows(engine, -1, b"return 1")
    scripts.forget_server("a:1")
    assert not knows(engine, 0, name)
    # When: a script has to go. Then: its text is not known any more, and what servers have stays there.
    scripts.note_at(name, backend)
    assert scripts.is_at(name, "a:1")
    scripts.is_remembered(b"return 1")
    scripts.dropped()
    assert (knows(engine, 0, name), knows(engine, -1, b"return 1")) == (True, False)


@pytest.mark.parametrize("size", [10, 60])
def test_a_script_that_the_engine_sends_by_itself_counts_as_used(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the number of scripts or their bytes are what there is no room for."""
    monkeypatch.setattr(knownscripts, "MOST_SCRIPTS", 40)
    monkeypatch.setattr(knownscripts, "MOST_BYTES", 1000)
    engine, servers = LoadedCode(), Servers()
    scripts = Scripts(engine, servers.number)
    backend = connection()
    used, unused = scripts.remember(b"used"), scripts.remember(b"unused")
    for name in (used, unused):
        scripts.note_at(name, backend)
    for number in range(200):
        scripts.remember(b"%0*d" % (size, number))
        if not knows(engine, 0, used):
            # It comes here, as proxy.commands.scripting.scripts has it.
            assert scripts.body(used) is not None
            assert scripts.is_at(used, "a:1")
    assert used in scripts
    assert unused not in scripts
