"""Takes collections apart that are stored as one string: listpacks, ziplists, intsets and zipmaps.

Each function gives all items, numbers in decimal, or None for bytes that no server writes. It reads no byte outside of
the string. The formats are those of ``listpack.c``, ``ziplist.c``, ``intset.c`` and ``zipmap.c`` of Redis and Valkey.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from rdb.numbers cimport little, signed_little

cdef enum:
    LISTPACK_HEAD = 6
    ZIPLIST_HEAD = 10
    INTSET_HEAD = 8
    END = 255


# One item: a number, or the string at `data`.
cdef struct Item:
    const uint8_t* data
    uint64_t length
    int64_t number


cdef inline bytes content(const Item* item):
    return item.data[:item.length] if item.data != NULL else b"%d" % item.number


cdef inline bint set_string(Item* item, const uint8_t* data, uint64_t length, const uint8_t* end) noexcept nogil:
    """Whether the string ends before ``end``."""
    item.data = data
    item.length = length
    return data <= end and length <= <uint64_t>(end - data)


cdef const uint8_t* listpack_item(const uint8_t* p, const uint8_t* end, Item* item) noexcept nogil:
    """Reads the item at ``p``; gives where the next one begins, or NULL."""
    cdef const uint8_t* start = p
    cdef uint64_t size
    cdef int width
    item.data = NULL
    item.number = 0
    if p[0] < 0x80:
        item.number = p[0]
        size = 1
    elif p[0] < 0xC0:
        if not set_string(item, p + 1, p[0] & 63, end):
            return NULL
        size = 1 + item.length
    elif p[0] < 0xE0:
        if end - p < 2:
            return NULL
        # 13 bits.
        item.number = (p[0] & 31) << 8 | p[1]
        if item.number >= 4096:
            item.number -= 8192
        size = 2
    elif p[0] < 0xF0:
        if end - p < 2 or not set_string(item, p + 2, <uint64_t>(p[0] & 15) << 8 | p[1], end):
            return NULL
        size = 2 + item.length
    elif p[0] == 0xF0:
        if end - p < 5 or not set_string(item, p + 5, little(p + 1, 4), end):
            return NULL
        size = 5 + item.length
    elif p[0] <= 0xF4:
        # Of 2, 3, 4 and 8 bytes.
        width = p[0] - 0xEF if p[0] < 0xF4 else 8
        if end - p < 1 + width:
            return NULL
        item.number = signed_little(p + 1, width)
        size = 1 + width
    else:
        return NULL
    p = start + size
    # The size of the item stands behind it, seven bits a byte.
    size = 1 if size < 128 else 2 if size < 16384 else 3 if size < 2097152 else 4 if size < 268435456 else 5
    return p + size if <uint64_t>(end - p) >= size else NULL


cdef const uint8_t* ziplist_item(const uint8_t* p, const uint8_t* end, Item* item) noexcept nogil:
    """Reads the item at ``p``; gives where the next one begins, or NULL."""
    cdef int width
    cdef int code
    item.data = NULL
    item.number = 0
    # The length of the item before it.
    p += 5 if p[0] == 254 else 1
    if p >= end:
        return NULL
    code = p[0]
    if code < 0x40:
        return p + 1 + code if set_string(item, p + 1, code, end) else NULL
    if code < 0x80:
        if end - p < 2 or not set_string(item, p + 2, <uint64_t>(code & 63) << 8 | p[1], end):
            return NULL
        return p + 2 + item.length
    if code < 0xC0:
        if end - p < 5 or not set_string(
            item, p + 5, <uint64_t>p[1] << 24 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 8 | p[4], end
        ):
            return NULL
        return p + 5 + item.length
    if code >= 0xF1 and code <= 0xFD:
        item.number = (code & 15) - 1
        return p + 1
    if code == 0xFE:
        width = 1
    elif code == 0xC0:
        width = 2
    elif code == 0xF0:
        width = 3
    elif code == 0xD0:
        width = 4
    elif code == 0xE0:
        width = 8
    else:
        return NULL
    if end - p < 1 + width:
        return NULL
    item.number = signed_little(p + 1, width)
    return p + 1 + width


ctypedef const uint8_t* (*item_reader)(const uint8_t*, const uint8_t*, Item*) noexcept nogil


cdef list items(bytes blob, size_t head, item_reader next_item):
    """The items behind a head that begins with the length of all."""
    cdef const uint8_t* start = blob
    cdef const uint8_t* p = start + head
    cdef const uint8_t* end = start + len(blob)
    cdef Item item
    cdef list found = []
    if <size_t>len(blob) <= head or little(start, 4) != <uint64_t>len(blob):
        return None
    while p[0] != END:
        p = next_item(p, end, &item)
        if p == NULL or p >= end:
            return None
        found.append(content(&item))
    return found if p + 1 == end else None


cdef list listpack(bytes blob):
    """The items of a listpack."""
    return items(blob, LISTPACK_HEAD, listpack_item)


cdef list ziplist(bytes blob):
    """The items of a ziplist."""
    return items(blob, ZIPLIST_HEAD, ziplist_item)


cdef list intset(bytes blob):
    """The numbers of an intset."""
    cdef const uint8_t* p = blob
    cdef uint64_t width
    cdef uint64_t count
    cdef uint64_t index
    cdef list found = []
    if len(blob) < INTSET_HEAD:
        return None
    width = little(p, 4)
    count = little(p + 4, 4)
    if width not in (2, 4, 8) or INTSET_HEAD + width * count != <uint64_t>len(blob):
        return None
    for index in range(count):
        found.append(b"%d" % signed_little(p + INTSET_HEAD + width * index, <int>width))
    return found


cdef list zipmap(bytes blob):
    """The fields of a zipmap, each followed by its value."""
    cdef const uint8_t* start = blob
    cdef const uint8_t* p = start + 1
    cdef const uint8_t* end = start + len(blob)
    cdef uint64_t length
    cdef uint64_t unused
    cdef bint of_value = False
    cdef list found = []
    if len(blob) < 2:
        return None
    while p[0] != END:
        if p[0] < 254:
            length = p[0]
            p += 1
        else:
            if end - p < 5:
                return None
            length = little(p + 1, 4)
            p += 5
        unused = 0
        if of_value:
            if p >= end:
                return None
            # Bytes behind the value that are free.
            unused = p[0]
            p += 1
        if p >= end or length + unused >= <uint64_t>(end - p):
            return None
        found.append(p[:length])
        p += length + unused
        of_value = not of_value
    return found if p + 1 == end and not of_value else None


def take_apart(str form not None, bytes blob not None):
    """The items of a collection, for tests; ``form`` is the name of one of the functions here."""
    if form == "listpack":
        return listpack(blob)
    if form == "ziplist":
        return ziplist(blob)
    return intset(blob) if form == "intset" else zipmap(blob)
