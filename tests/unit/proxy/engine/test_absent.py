"""The memory of keys seen absent: right about what it holds, bounded, kept apart by migration and database."""

from proxy.engine.absent import AbsentKeys
from proxy.engine.router import KNOWN_ABSENT


def test_what_was_remembered_is_known_and_nothing_else() -> None:
    keys = AbsentKeys(4096)
    for number in range(200):
        keys.remember(1, 0, b"key-%d" % number)
    assert all(keys.remembers(1, 0, b"key-%d" % number) for number in range(200))
    assert not any(keys.remembers(1, 0, b"other-%d" % number) for number in range(100_000))
    assert not any(keys.remembers(2, 0, b"key-%d" % number) for number in range(200))
    assert not any(keys.remembers(1, 1, b"key-%d" % number) for number in range(200))


def test_it_forgets_rather_than_grows() -> None:
    keys = AbsentKeys(1024)
    for number in range(100_000):
        keys.remember(7, 0, b"key-%d" % number)
    known = sum(keys.remembers(7, 0, b"key-%d" % number) for number in range(100_000))
    assert 512 <= known <= keys.capacity == 1024


def test_keys_of_every_length() -> None:
    keys = AbsentKeys(8192)
    for length in range(300):
        keys.remember(1, 0, b"x" * length)
    assert all(keys.remembers(1, 0, b"x" * length) for length in range(300))
    assert not keys.remembers(1, 0, b"x" * 300)


def test_a_worker_knows_hundreds_of_thousands_of_hot_keys() -> None:
    keys = AbsentKeys(KNOWN_ABSENT)
    assert keys.capacity == KNOWN_ABSENT
    for number in range(300_000):
        keys.remember(1, 0, b"key-%d" % number)
    known = sum(keys.remembers(1, 0, b"key-%d" % number) for number in range(300_000))
    assert known > 0.97 * 300_000
