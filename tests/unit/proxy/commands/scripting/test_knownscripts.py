"""The memory of scripts is bounded, and loaded scripts are remembered longer than scripts that were merely run."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.commands.scripting import knownscripts
from proxy.commands.scripting.knownscripts import LOADED, LONGEST_BODY, RUN, KnownScripts


@contextmanager
def limited(most: int, most_bytes: int) -> Iterator[None]:
    """Within a block, so many scripts and so many bytes of them are remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knownscripts, "MOST_SCRIPTS", most)
        patch.setattr(knownscripts, "MOST_BYTES", most_bytes)
        yield


def test_a_script_goes_by_its_sha1() -> None:
    scripts = KnownScripts()
    name = scripts.remember(b"return 1")
    assert name == hashlib.sha1(b"return 1").hexdigest().encode()
    assert scripts.body(name) == b"return 1"
    assert scripts.body(b"0" * 40) is None


def test_the_least_recently_used_goes_first() -> None:
    with limited(3, 1000):
        scripts = KnownScripts()
        names = [scripts.remember(body) for body in (b"1", b"2", b"3")]
        assert scripts.body(names[0]) == b"1"
        scripts.remember(b"4")
        assert [name in scripts for name in names] == [True, False, True]


def test_what_was_loaded_outlasts_what_was_run() -> None:
    with limited(3, 1000):
        scripts = KnownScripts()
        loaded = scripts.remember(b"loaded", loaded=True)
        names = [scripts.remember(b"run %d" % number) for number in range(10)]
        assert loaded in scripts
        assert [name in scripts for name in names] == [False] * 8 + [True] * 2
        # Run, then loaded: from then on it counts as loaded.
        scripts.remember(b"run 9", loaded=True)
        assert scripts.is_loaded(names[9])
        assert len(scripts) == 3


def test_bytes_are_bounded() -> None:
    with limited(100, 100):
        scripts = KnownScripts()
        first = scripts.remember(b"x" * 60)
        second = scripts.remember(b"y" * 60)
        assert (first in scripts, second in scripts) == (False, True)
        assert scripts.remember(b"z" * 101) not in scripts
        assert second in scripts
    with limited(1, 2 * LONGEST_BODY):
        assert KnownScripts().remember(b"z" * (LONGEST_BODY + 1)) not in scripts


@pytest.mark.parametrize("kinds", [(False, True), (True, False), (True, True), (False, False)])
def test_the_newest_stays(kinds: tuple[bool, bool]) -> None:
    with limited(3, 64):
        scripts = KnownScripts()
        scripts.remember(b"x" * 30, kinds[0])
        assert scripts.remember(b"y" * 40, kinds[1]) in scripts
        assert len(scripts) == 1


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans())))
def test_never_over_the_limits(remembered: list[tuple[bytes, bool]]) -> None:
    with limited(4, 64):
        scripts = KnownScripts()
        for body, loaded in remembered:
            name = scripts.remember(body, loaded)
            assert scripts.body(name) == body
            assert scripts.is_loaded(name) or not loaded
            bodies = [scripts._loaded, scripts._seen]
            assert sum(map(len, bodies)) <= 4
            assert sum(len(body) for known in bodies for body in known.values()) == scripts._bytes <= 64


def test_levels() -> None:
    with limited(2, 1000):
        scripts = KnownScripts()
        empty, second = scripts.remember(b""), scripts.remember(b"2", loaded=True)
        assert [scripts.level(name) for name in (empty, second, b"0" * 40)] == [RUN, LOADED, 0]
        assert scripts.loaded() == [second]
        scripts.forget()
        assert len(scripts) == 0
