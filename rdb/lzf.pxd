"""LZF, the compression of strings in RDB files (M. Lehmann's LibLZF, which Redis uses).

A control byte below 32 begins a run of that many bytes plus one. Any other control byte begins a copy of bytes that are
already written. Its upper three bits are the length less two (7: the next byte is added). Its lower five bits and the
byte that follows are the distance less one.
"""

from libc.stdint cimport int64_t, uint8_t


cdef inline int64_t lzf_decompress(const uint8_t* source, size_t length, uint8_t* target, size_t room) noexcept nogil:
    """Decompresses until the source ends or ``room`` bytes are written. Gives their number, or -1 for bad data.

    If the source ends within an instruction, the bytes before it are given. So a prefix gives a prefix.
    """
    cdef size_t at = 0, written = 0, count, distance, i
    cdef uint8_t control
    while at < length and written < room:
        control = source[at]
        at += 1
        if control < 32:
            count = control + 1
            if count > length - at:
                count = length - at
            if count > room - written:
                count = room - written
            for i in range(count):
                target[written + i] = source[at + i]
            at += count
            written += count
            continue
        count = control >> 5
        if count == 7:
            if at >= length:
                break
            count += source[at]
            at += 1
        if at >= length:
            break
        distance = (<size_t>(control & 31) << 8 | source[at]) + 1
        at += 1
        count += 2
        if distance > written:
            return -1
        if count > room - written:
            count = room - written
        # Byte by byte, for the two may overlap, and then the copy repeats bytes that were just written.
        for i in range(count):
            target[written] = target[written - distance]
            written += 1
    return <int64_t>written
