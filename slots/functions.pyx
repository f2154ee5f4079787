"""Slot functions: which slot a key belongs to.

Every process of a product has to give every key the same slot, or **one-owner** means nothing. So there is one
implementation. The engine uses it through the ``.pxd``, and all Python code uses it, too.

======= ================================================= ==================================== ==================
name    hash                                              slot                                 hash tag
======= ================================================= ==================================== ==================
crc32   CRC-32 of zlib and Codis                          modulo                               as Codis
crc16   CRC-16/XMODEM of Redis Cluster                    modulo                               as Redis Cluster
crc32c  CRC-32C (Castagnoli) of SOFARegistry              signed, absolute value, masked       as Codis
md5     first four bytes of MD5, as SOFARegistry has it   little-endian, signed, absolute      as Codis
                                                          value, modulo
======= ================================================= ==================================== ==================

A key with a hash tag is hashed by the tag alone, so that keys which share a tag share a slot. The tag lies
between the first ``{`` and the first ``}`` after it. If there is nothing between them, Codis hashes the
empty string, and Redis Cluster the whole key.

The number of slots is a power of two, so the remainder of a division is a mask.

The four functions differ in nothing but these columns, and none keeps state: tables are made at import.
"""

from libc.math cimport fabs, floor, sin
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

cdef uint32_t MAXIMUM_SLOTS = 16384

# The polynomials of the reflected CRCs are written with their bits reversed.
cdef uint32_t CRC32_POLYNOMIAL = 0xEDB88320
cdef uint32_t CRC32C_POLYNOMIAL = 0x82F63B78
cdef uint32_t CRC16_POLYNOMIAL = 0x1021

# Row n holds the CRC of a byte followed by n zero bytes, so eight bytes are taken in one step
# (M. Kounavis, F. Berry: A Systematic Approach to Building High Performance, Software-based, CRC Generators).
cdef uint32_t[8][256] crc32_rows
cdef uint32_t[8][256] crc32c_rows
cdef uint16_t[8][256] crc16_rows

# RFC 1321: the constant and the rotation of each of the 64 steps.
cdef uint32_t[64] md5_constants
cdef uint8_t[16] md5_rotations


cdef void fill_reflected(uint32_t[8][256] rows, uint32_t polynomial) noexcept nogil:
    cdef uint32_t byte, crc
    cdef int i
    for byte in range(256):
        crc = byte
        for i in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
        rows[0][byte] = crc
    for i in range(1, 8):
        for byte in range(256):
            crc = rows[i - 1][byte]
            rows[i][byte] = (crc >> 8) ^ rows[0][crc & 0xFF]


cdef void fill_crc16() noexcept nogil:
    cdef uint32_t byte, crc
    cdef int i
    for byte in range(256):
        crc = byte << 8
        for i in range(8):
            crc = (crc << 1) ^ (CRC16_POLYNOMIAL if crc & 0x8000 else 0)
        crc16_rows[0][byte] = <uint16_t>crc
    for i in range(1, 8):
        for byte in range(256):
            crc = crc16_rows[i - 1][byte]
            crc16_rows[i][byte] = <uint16_t>((crc << 8) ^ crc16_rows[0][crc >> 8])


cdef void fill_md5() noexcept nogil:
    cdef int i
    for i in range(64):
        md5_constants[i] = <uint32_t><uint64_t>floor(4294967296.0 * fabs(sin(<double>(i + 1))))
    memcpy(md5_rotations, b"\x07\x0c\x11\x16\x05\x09\x0e\x14\x04\x0b\x10\x17\x06\x0a\x0f\x15", 16)


fill_reflected(crc32_rows, CRC32_POLYNOMIAL)
fill_reflected(crc32c_rows, CRC32C_POLYNOMIAL)
fill_crc16()
fill_md5()


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    """Four bytes, little-endian; compilers make one load of it where the machine is."""
    return <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint32_t reflected(uint32_t[8][256] rows, const uint8_t* p, size_t length) noexcept nogil:
    """A 32-bit CRC with reflected bits, initial value and final exclusive or of all ones."""
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint32_t high
    while length >= 8:
        crc ^= load32(p)
        high = load32(p + 4)
        crc = (
            rows[7][crc & 0xFF] ^ rows[6][(crc >> 8) & 0xFF] ^ rows[5][(crc >> 16) & 0xFF] ^ rows[4][crc >> 24]
            ^ rows[3][high & 0xFF] ^ rows[2][(high >> 8) & 0xFF] ^ rows[1][(high >> 16) & 0xFF] ^ rows[0][high >> 24]
        )
        p += 8
        length -= 8
    if length >= 4:
        crc ^= load32(p)
        crc = (
            rows[3][crc & 0xFF] ^ rows[2][(crc >> 8) & 0xFF] ^ rows[1][(crc >> 16) & 0xFF] ^ rows[0][crc >> 24]
        )
        p += 4
        length -= 4
    while length:
        crc = (crc >> 8) ^ rows[0][(crc ^ p[0]) & 0xFF]
        p += 1
        length -= 1
    return ~crc


cdef uint32_t crc32(const uint8_t* p, size_t length) noexcept nogil:
    return reflected(crc32_rows, p, length)


cdef uint32_t crc32c(const uint8_t* p, size_t length) noexcept nogil:
    return reflected(crc32c_rows, p, length)


cdef uint32_t crc16(const uint8_t* p, size_t length) noexcept nogil:
    """CRC-16/XMODEM: polynomial 0x1021, nothing reflected, initial value 0."""
    cdef uint32_t crc = 0
    while length >= 8:
        crc = (
            crc16_rows[7][(crc >> 8) ^ p[0]] ^ crc16_rows[6][(crc & 0xFF) ^ p[1]]
            ^ crc16_rows[5][p[2]] ^ crc16_rows[4][p[3]] ^ crc16_rows[3][p[4]]
            ^ crc16_rows[2][p[5]] ^ crc16_rows[1][p[6]] ^ crc16_rows[0][p[7]]
        )
        p += 8
        length -= 8
    while length:
        crc = ((crc << 8) & 0xFFFF) ^ crc16_rows[0][(crc >> 8) ^ p[0]]
        p += 1
        length -= 1
    return crc


cdef inline uint32_t rotated(uint32_t value, uint32_t bits) noexcept nogil:
    return (value << bits) | (value >> (32 - bits))


cdef void md5_block(uint32_t* state, const uint8_t* p) noexcept nogil:
    """Takes the 64 bytes at ``p`` into ``state`` (RFC 1321, 3.4)."""
    cdef uint32_t[16] words
    cdef uint32_t a = state[0], b = state[1], c = state[2], d = state[3]
    cdef uint32_t mixed, next_b
    cdef int i
    for i in range(16):
        words[i] = load32(p + 4 * i)
    for i in range(64):
        if i < 16:
            mixed = ((b & c) | (~b & d)) + words[i]
        elif i < 32:
            mixed = ((d & b) | (~d & c)) + words[(5 * i + 1) & 15]
        elif i < 48:
            mixed = (b ^ c ^ d) + words[(3 * i + 5) & 15]
        else:
            mixed = (c ^ (b | ~d)) + words[(7 * i) & 15]
        next_b = b + rotated(a + mixed + md5_constants[i], md5_rotations[(i >> 4) * 4 + (i & 3)])
        a = d
        d = c
        c = b
        b = next_b
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d


cdef uint32_t md5(const uint8_t* p, size_t length) noexcept nogil:
    """The first four bytes of the MD5 digest, little-endian: the first word of the state, as it is."""
    cdef uint32_t[4] state
    cdef uint8_t[128] tail
    cdef uint64_t bits = <uint64_t>length * 8
    cdef size_t size
    cdef int i
    state[0] = 0x67452301
    state[1] = 0xEFCDAB89
    state[2] = 0x98BADCFE
    state[3] = 0x10325476
    while length >= 64:
        md5_block(state, p)
        p += 64
        length -= 64
    size = 64 if length < 56 else 128
    memset(tail, 0, 128)
    memcpy(tail, p, length)
    tail[length] = 0x80
    for i in range(8):
        tail[size - 8 + i] = <uint8_t>(bits >> (8 * i))
    md5_block(state, tail)
    if size == 128:
        md5_block(state, tail + 64)
    return state[0]


cdef inline void narrow(const char** key, size_t* length, bint empty_counts) noexcept nogil:
    """Sets ``key`` and ``length`` to the key's hash tag, if the key has one."""
    cdef const char* opened = <const char*>memchr(key[0], c"{", length[0])
    cdef const char* closed
    if opened == NULL:
        return
    opened += 1
    closed = <const char*>memchr(opened, c"}", length[0] - (opened - key[0]))
    if closed == NULL or (closed == opened and not empty_counts):
        return
    key[0] = opened
    length[0] = closed - opened


cdef inline uint32_t folded(uint32_t hash, uint32_t number_of_slots) noexcept nogil:
    """The absolute value of ``hash`` as a signed number, modulo the number of slots; see :func:`fold`."""
    # Negated as two's complement, without a sign: -2^31 gives 2^31 and does not overflow.
    if hash > <uint32_t>0x7FFFFFFF:
        hash = <uint32_t>(~hash) + <uint32_t>1
    return hash & (number_of_slots - 1)


cdef uint32_t slot_crc32(const char* key, size_t length, uint32_t number_of_slots) noexcept nogil:
    narrow(&key, &length, True)
    return crc32(<const uint8_t*>key, length) & (number_of_slots - 1)


cdef uint32_t slot_crc16(const char* key, size_t length, uint32_t number_of_slots) noexcept nogil:
    narrow(&key, &length, False)
    return crc16(<const uint8_t*>key, length) & (number_of_slots - 1)


cdef uint32_t slot_crc32c(const char* key, size_t length, uint32_t number_of_slots) noexcept nogil:
    narrow(&key, &length, True)
    return folded(crc32c(<const uint8_t*>key, length), number_of_slots)


cdef uint32_t slot_md5(const char* key, size_t length, uint32_t number_of_slots) noexcept nogil:
    narrow(&key, &length, True)
    return folded(md5(<const uint8_t*>key, length), number_of_slots)


cdef tuple NAMES = ("crc32", "crc16", "crc32c", "md5")


cdef object unknown(str name):
    return ValueError(f"there is no slot function named {name!r}; there are {', '.join(NAMES)}")


cdef slot_function find(str name) except NULL:
    if name == "crc32":
        return slot_crc32
    if name == "crc16":
        return slot_crc16
    if name == "crc32c":
        return slot_crc32c
    if name == "md5":
        return slot_md5
    raise unknown(name)


cdef uint32_t checked(number_of_slots) except 0:
    """``number_of_slots`` as C has it. Raises ValueError unless it is a power of two up to 16384."""
    if not 1 <= number_of_slots <= MAXIMUM_SLOTS or number_of_slots & (number_of_slots - 1):
        raise ValueError(f"the number of slots is {number_of_slots}; it has to be a power of two up to {MAXIMUM_SLOTS}")
    return number_of_slots


def names() -> tuple[str, ...]:
    """Names of the slot functions, the default first."""
    return NAMES


def slot(str function not None, bytes key not None, number_of_slots: int) -> int:
    """The slot of one key.

    Raises:
        ValueError: for an unknown function, or a number of slots that is not a power of two up to 16384.
    """
    return find(function)(key, len(key), checked(number_of_slots))


def hash_tag(str function not None, bytes key not None) -> bytes:
    """The bytes of ``key`` that are hashed: its hash tag, or all of it. Raises ValueError for an unknown function."""
    cdef const char* start = key
    cdef size_t length = len(key)
    find(function)
    narrow(&start, &length, function != "crc16")
    return start[:length]


def checksum(str function not None, bytes data not None) -> int:
    """The hash of ``data`` as it is, unsigned: no hash tag, nothing folded. Raises ValueError for an unknown function."""
    cdef const uint8_t* p = data
    if function == "crc32":
        return crc32(p, len(data))
    if function == "crc16":
        return crc16(p, len(data))
    if function == "crc32c":
        return crc32c(p, len(data))
    if function == "md5":
        return md5(p, len(data))
    raise unknown(function)


def fold(hash: int, number_of_slots: int) -> int:
    """The slot that crc32c and md5 make of an unsigned 32-bit ``hash``: signed, absolute value, modulo.

    A signed 32-bit number has no absolute value of -2^31. Java's ``Math.abs(Integer.MIN_VALUE)``, which
    SOFARegistry uses, stays -2^31. Masked (crc32c), its low bits are zero: slot 0. Java's remainder (md5) takes
    the sign of the dividend and is 0 only because the number of slots is a power of two: for 1000 slots it
    would be -648. Here 2^31 is taken as the absolute value, which gives slot 0 too; so for every
    number of slots that is allowed, every hash has the slot SOFARegistry gives it.

    Raises:
        ValueError: when ``hash`` is not within 32 bits, or for the number of slots as :func:`slot` does.
    """
    if not 0 <= hash <= 0xFFFFFFFF:
        raise ValueError(f"{hash} is not an unsigned 32-bit number")
    return folded(hash, checked(number_of_slots))
