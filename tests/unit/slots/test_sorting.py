"""The keys that SORT's patterns stand for are those that a server looks for."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from slots.sorting import key_of, keys_of, patterns, tag_is_fixed


@pytest.fixture(scope="module")
def server(redis_address: str) -> Iterator[Redis]:
    """A client of a real server, in a database that nobody else uses."""
    host, _, port = redis_address.rpartition(":")
    with Redis(host=host, port=int(port), db=13) as client:
        yield client


PARTS = st.text("ab*->{}", max_size=6).map(str.encode)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=PARTS, after=PARTS, element=PARTS)
def test_the_key_is_the_one_that_a_server_reads(server: Redis, before: bytes, after: bytes, element: bytes) -> None:
    pattern = before + b"*" + after
    key = key_of(pattern, element)
    server.flushdb()
    server.rpush("the list", element)
    # The first of several stands for the element.
    _, _, behind = pattern.partition(b"*")
    place = behind.find(b"->")
    field = behind[place + 2 :] if place >= 0 else b""
    if field:
        server.hset(key, field, "found")  # type: ignore[arg-type]
    else:
        server.set(key, "found")
    assert server.execute_command("SORT", "the list", "BY", "nosort", "GET", pattern) == [b"found"]


def test_patterns() -> None:
    argv = b"sort k BY a* limit by* 2 get # GET b*->c get c store get*"
    assert patterns(argv.split()) == [(b"BY", b"a*"), (b"GET", b"b*->c")]
    assert patterns(b"sort_ro k by nosort get # get x".split()) == []
    assert keys_of([(b"BY", b"a*"), (b"GET", b"b*->c")], [b"1", b"2"]) == {b"a1", b"a2", b"b1", b"b2"}


@pytest.mark.parametrize(
    ("pattern", "fixed"),
    [
        (b"{a}*", True),
        (b"x{a}y*z", True),
        (b"x}{a}*", True),
        (b"{a}*{b}", True),
        (b"{a{b}*", True),
        (b"*{a}", False),
        (b"{a*}", False),
        (b"{}*{a}", False),
        (b"{}{a}*", False),
        (b"{a*", False),
        (b"a}*", False),
        (b"*", False),
    ],
)
def test_a_tag_before_the_elements_place_is_that_of_all_keys(pattern: bytes, fixed: bool) -> None:
    assert tag_is_fixed(pattern) == fixed
