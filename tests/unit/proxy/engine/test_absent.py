"""The memory of keys seen absent: right about what it holds, bounded, kept apart by migration and database."""

from proxy.engine.absent import AbsentKeys, siphash


def test_siphash_128_is_the_reference_implementation_s() -> None:
    # Vectors of SipHash's reference implementation: key 00 01 .. 0f, message 00 01 .. of so many bytes.
    vectors = {
        8: "3b62a9ba6258f5610f83e264f31497b4",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
        63: "5150d1772f50834a503e069a973fbd7c",
    }
    for length, expected in vectors.items():
        assert siphash(bytes(range(16)), bytes(range(length))).hex() == expected


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
