"""What a worker remembers of scripts: bounded, and worth nothing once a connection is gone."""

import hashlib
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.backend import Backend
from proxy.scripts import LONGEST_BODY, Scripts


class Connection:
    """As much of a backend as is looked at."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = "1."
        self.is_ready = True


def connection(address: str = "a:1") -> Any:
    return cast(Backend, Connection(address))


def test_a_script_goes_by_its_sha1() -> None:
    scripts = Scripts(10, 1000)
    name = scripts.remember(b"return 1")
    assert name == hashlib.sha1(b"return 1").hexdigest().encode()
    assert scripts.body(name) == b"return 1"
    assert scripts.body(b"0" * 40) is None


def test_the_least_recently_used_goes_first() -> None:
    scripts = Scripts(3, 1000)
    names = [scripts.remember(body) for body in (b"1", b"2", b"3")]
    assert scripts.body(names[0]) == b"1"
    scripts.remember(b"4")
    assert [name in scripts for name in names] == [True, False, True]


def test_what_was_loaded_outlasts_what_was_run() -> None:
    scripts = Scripts(3, 1000)
    loaded = scripts.remember(b"loaded", loaded=True)
    names = [scripts.remember(b"run %d" % number) for number in range(10)]
    assert loaded in scripts
    assert [name in scripts for name in names] == [False] * 8 + [True] * 2
    # Run, then loaded: from then on it counts as loaded.
    scripts.remember(b"run 9", loaded=True)
    assert scripts.is_loaded(names[9])
    assert len(scripts) == 3


def test_bytes_are_bounded() -> None:
    scripts = Scripts(100, 100)
    first = scripts.remember(b"x" * 60)
    second = scripts.remember(b"y" * 60)
    assert (first in scripts, second in scripts) == (False, True)
    assert scripts.remember(b"z" * 101) not in scripts
    assert second in scripts
    assert Scripts(1, 2 * LONGEST_BODY).remember(b"z" * (LONGEST_BODY + 1)) not in scripts


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans())))
def test_never_over_the_limits(remembered: list[tuple[bytes, bool]]) -> None:
    scripts = Scripts(4, 64)
    for body, loaded in remembered:
        name = scripts.remember(body, loaded)
        assert scripts.body(name) == body
        assert scripts.is_loaded(name) or not loaded
        bodies = [scripts._loaded, scripts._seen]
        assert sum(map(len, bodies)) <= 4
        assert sum(len(body) for known in bodies for body in known.values()) == scripts._bytes <= 64


def test_what_a_server_has_counts_while_the_connection_stands() -> None:
    scripts = Scripts(10, 1000)
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
    scripts = Scripts(10, 1000)
    backend = connection()
    names = [scripts.remember(b"%d" % number) for number in range(5)]
    for name in names:
        scripts.note_at(name, backend)
    assert [scripts.to_check(2)[backend] for _ in range(3)] == [names[:2], names[2:4], [names[4], names[0]]]
    scripts.forget_server("a:1")
    assert scripts.to_check(2) == {}


def test_forgetting() -> None:
    scripts = Scripts(10, 1000)
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
