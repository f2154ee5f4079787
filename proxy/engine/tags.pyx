"""A bounded memory of byte strings, each under two numbers, that may forget and takes none for another.

A string is remembered as a 128-bit SipHash-2-4 (J.-P. Aumasson and D. J. Bernstein, 2012; the 128-bit output of its
reference implementation) under a secret of this process. A string is taken for another one only if it has the tag of
one of at most 2^24 remembered strings. For 10^12 lookups the chance is below 10^-19, and without the secret nobody can
cause it on purpose. The memory is a table of sets of eight tags. A full set forgets its tags in turn.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    WAYS = 8


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] += v[3]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


cdef inline void sip_word(uint64_t* v, uint64_t word) noexcept nogil:
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word


cdef tag_t siphash128(uint64_t low, uint64_t high, uint64_t prefix, const char* data, size_t size) noexcept nogil:
    """SipHash-2-4-128 of the eight bytes of ``prefix``, little-endian, followed by ``data``."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef size_t left = size
    cdef tag_t tag
    cdef int index
    v[0] = <uint64_t> 0x736f6d6570736575 ^ low
    v[1] = <uint64_t> 0x646f72616e646f6d ^ high ^ 0xee
    v[2] = <uint64_t> 0x6c7967656e657261 ^ low
    v[3] = <uint64_t> 0x7465646279746573 ^ high
    sip_word(v, prefix)
    while left >= 8:
        memcpy(&word, data, 8)
        sip_word(v, word)
        data += 8
        left -= 8
    word = (<uint64_t> (size + 8)) << 56
    for index in range(<int> left):
        word |= (<uint64_t> <uint8_t> data[index]) << (8 * index)
    sip_word(v, word)
    v[2] ^= 0xee
    for index in range(4):
        sip_round(v)
    tag.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for index in range(4):
        sip_round(v)
    tag.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return tag


cdef class Tags:
    """A bounded memory of (number, place, string) triples.

    Args:
        capacity: the most strings that are remembered, rounded up to a power of two; 16 bytes each.
    """

    def __cinit__(self, size_t capacity):
        self.sets = 1
        while self.sets * WAYS < capacity:
            self.sets *= 2
        self.mask = self.sets - 1
        self.capacity = self.sets * WAYS
        self.tags = <tag_t*> calloc(self.capacity, sizeof(tag_t))
        if self.tags == NULL:
            raise MemoryError
        secret = os.urandom(16)
        self.secret_low = int.from_bytes(secret[:8], "little")
        self.secret_high = int.from_bytes(secret[8:], "little")

    def __dealloc__(self):
        free(self.tags)

    cdef tag_t tag(self, uint32_t number, int place, const char* data, size_t size) noexcept:
        return siphash128(
            self.secret_low, self.secret_high, (<uint64_t> number << 32) | <uint32_t> place, data, size
        )

    cdef bint has(self, uint32_t number, int place, const char* data, size_t size) noexcept:
        cdef tag_t tag = self.tag(number, place, data, size)
        cdef tag_t* row = self.tags + (tag.low & self.mask) * WAYS
        cdef int way
        for way in range(WAYS):
            if row[way].low == tag.low and row[way].high == tag.high:
                return True
        return False

    cdef void add(self, uint32_t number, int place, const char* data, size_t size) noexcept:
        cdef tag_t tag = self.tag(number, place, data, size)
        cdef tag_t* row = self.tags + (tag.low & self.mask) * WAYS
        cdef int way
        for way in range(WAYS):
            if row[way].low == tag.low and row[way].high == tag.high:
                return
        for way in range(WAYS):
            if row[way].low == 0 and row[way].high == 0:
                row[way] = tag
                return
        self.turn += 1
        row[self.turn % WAYS] = tag


def siphash(bytes secret, bytes data):
    """SipHash-2-4-128 of ``data`` (at least eight bytes) under a 16-byte ``secret``; 16 bytes, for tests."""
    cdef tag_t tag = siphash128(
        int.from_bytes(secret[:8], "little"),
        int.from_bytes(secret[8:], "little"),
        int.from_bytes(data[:8], "little"),
        <const char*> data + 8,
        len(data) - 8,
    )
    return int(tag.low).to_bytes(8, "little") + int(tag.high).to_bytes(8, "little")
