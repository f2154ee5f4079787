"""The slot functions against other implementations of the same hashes and rules."""

import binascii
import hashlib
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import functions

NAMES = st.sampled_from(functions.names())
NUMBERS_OF_SLOTS = st.integers(0, 14).map(lambda power: 2**power)
KEYS = st.one_of(
    st.binary(max_size=300),
    # Mostly braces, so that tags of all kinds come up.
    st.lists(st.sampled_from([b"{", b"}", b"a", b"key", b"\0", b"\xff"]), max_size=12).map(b"".join),
)

CRC32C_MINIMUM = b"user:abfg6gou"
"""A key whose CRC-32C is 0x80000000, which is -2^31 as a signed number."""
MD5_MINIMUM = b"key:7788993782"
"""A key whose MD5 begins with 00 00 00 80: -2^31 as a signed little-endian number."""


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


CHECKSUMS: dict[str, Callable[[bytes], int]] = {
    "crc32": zlib.crc32,
    "crc16": lambda data: binascii.crc_hqx(data, 0),
    "crc32c": crc32c,
    "md5": lambda data: int.from_bytes(hashlib.md5(data).digest()[:4], "little"),
}


def tag(function: str, key: bytes) -> bytes:
    """The rule for hash tags in Python's own words."""
    opened = key.find(b"{")
    closed = key.find(b"}", opened + 1)
    if opened < 0 or closed < 0:
        return key
    found = key[opened + 1 : closed]
    return key if function == "crc16" and not found else found


def java_abs(value: int) -> int:
    """Math.abs(int): -2^31 stays what it is."""
    return value if value == -(2**31) else abs(value)


def java_slot(function: str, unsigned: int, number_of_slots: int) -> int:
    """What SOFARegistry computes from the unsigned 32 bits of a hash."""
    value = java_abs(unsigned - 2**32 if unsigned >= 2**31 else unsigned)
    if function == "crc32c":
        return value & (number_of_slots - 1)
    # Java's remainder takes the sign of the dividend.
    return value % number_of_slots if value >= 0 else -(-value % number_of_slots)


def expected_slot(function: str, key: bytes, number_of_slots: int) -> int:
    checksum = CHECKSUMS[function](tag(function, key))
    if function in ("crc32c", "md5"):
        return java_slot(function, checksum, number_of_slots)
    return checksum % number_of_slots


@pytest.mark.parametrize("function", functions.names())
def test_checksums_of_every_length(function: str) -> None:
    for length in [*range(140), 1000, 4099]:
        data = bytes((7 * i + length) & 0xFF for i in range(length))
        assert functions.checksum(function, data) == CHECKSUMS[function](data), length


def test_checksums_that_are_known() -> None:
    digits = b"123456789"
    assert functions.checksum("crc32", digits) == 0xCBF43926
    assert functions.checksum("crc16", digits) == 0x31C3
    assert functions.checksum("crc32c", digits) == 0xE3069283
    assert functions.checksum("crc32c", bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert functions.checksum("crc32c", b"\xff" * 32) == 0x62A8AB43
    assert functions.checksum("md5", b"") == int.from_bytes(bytes.fromhex("d41d8cd9"), "little")


@given(NAMES, KEYS)
def test_hash_tag(function: str, key: bytes) -> None:
    assert functions.hash_tag(function, key) == tag(function, key)


@pytest.mark.parametrize(
    ("key", "codis", "cluster"),
    [
        (b"plain", b"plain", b"plain"),
        (b"{user1000}.following", b"user1000", b"user1000"),
        (b"foo{}{bar}", b"", b"foo{}{bar}"),
        (b"foo{{bar}}zap", b"{bar", b"{bar"),
        (b"foo{bar}{zap}", b"bar", b"bar"),
        (b"a}b{c}d", b"c", b"c"),
        (b"a{b", b"a{b", b"a{b"),
        (b"}a{", b"}a{", b"}a{"),
        (b"{}", b"", b"{}"),
        (b"", b"", b""),
    ],
)
def test_hash_tag_by_rule(key: bytes, codis: bytes, cluster: bytes) -> None:
    assert functions.hash_tag("crc16", key) == cluster
    for function in ("crc32", "crc32c", "md5"):
        assert functions.hash_tag(function, key) == codis


@given(NAMES, KEYS, NUMBERS_OF_SLOTS)
def test_slot(function: str, key: bytes, number_of_slots: int) -> None:
    assert functions.slot(function, key, number_of_slots) == expected_slot(function, key, number_of_slots)


def test_slots_of_redis_cluster() -> None:
    # What CLUSTER KEYSLOT of a real server says.
    assert functions.slot("crc16", b"foo", 16384) == 12182
    assert functions.slot("crc16", b"{user1000}.followers", 16384) == 3443
    assert functions.slot("crc16", b"foo{}{bar}", 16384) == 8363


@given(st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([2**31 - 1, 2**31, 2**31 + 1])), NUMBERS_OF_SLOTS)
def test_fold_as_java(unsigned: int, number_of_slots: int) -> None:
    folded = functions.fold(unsigned, number_of_slots)
    assert 0 <= folded < number_of_slots
    assert folded == java_slot("crc32c", unsigned, number_of_slots)
    assert folded == java_slot("md5", unsigned, number_of_slots)


@pytest.mark.parametrize("number_of_slots", [2**power for power in range(15)])
def test_fold_of_the_number_without_absolute_value(number_of_slots: int) -> None:
    assert functions.fold(2**31, number_of_slots) == 0


@pytest.mark.parametrize(("function", "key"), [("crc32c", CRC32C_MINIMUM), ("md5", MD5_MINIMUM)])
def test_keys_whose_hash_has_no_absolute_value(function: str, key: bytes) -> None:
    assert CHECKSUMS[function](key) == 2**31
    assert functions.checksum(function, key) == 2**31
    for number_of_slots in (1, 1024, 16384):
        assert functions.slot(function, key, number_of_slots) == 0
        assert functions.slot(function, b"x{%b}y" % key, number_of_slots) == 0


def test_absolute_value_before_mask() -> None:
    # -1 becomes slot 1, where masking the bits as they are would give the last slot.
    assert functions.fold(0xFFFFFFFF, 1024) == 1


def test_unknown_function() -> None:
    calls: list[Callable[[], object]] = [
        lambda: functions.slot("sha1", b"", 1024),
        lambda: functions.hash_tag("sha1", b""),
        lambda: functions.checksum("sha1", b""),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"'sha1'; there are crc32, crc16, crc32c, md5"):
            call()


@pytest.mark.parametrize("number_of_slots", [-1, 0, 3, 1000, 16385, 32768, 2**40])
def test_number_of_slots_that_is_not_allowed(number_of_slots: int) -> None:
    with pytest.raises(ValueError, match="power of two up to 16384"):
        functions.slot("crc32", b"key", number_of_slots)
    with pytest.raises(ValueError, match="power of two up to 16384"):
        functions.fold(1, number_of_slots)
