"""Takes collections apart that are stored as one string: listpacks, ziplists, intsets and zipmaps.

:class:`Packed` gives item after item, numbers in decimal, and reads no byte outside of the string. **bounded**: beside
the string, one item is held. The formats are those of ``listpack.c``, ``ziplist.c``, ``intset.c`` and ``zipmap.c`` of
Redis and Valkey.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from rdb.numbers cimport little, signed_little

cdef enum:
    LISTPACK_HEAD = 6
    ZIPLIST_HEAD = 10
    INTSET_HEAD = 8
    ZIPMAP_HEAD = 1
    END = 255


FORMS = ("listpack", "ziplist", "intset", "zipmap")


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
    # Redis takes one byte more than it needs for a size of 14, 21 or 28 ones, and that one is zero.
    if p < end and p[0] == 0:
        size += 1
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


cdef const uint8_t* zipmap_item(const uint8_t* p, const uint8_t* end, bint of_value, Item* item) noexcept nogil:
    """Reads the name of a field or its value at ``p``; gives where the next one begins, or NULL."""
    cdef uint64_t length = p[0]
    cdef uint64_t unused = 0
    p += 1
    if length == 254:
        if end - p < 4:
            return NULL
        length = little(p, 4)
        p += 4
    if of_value:
        if p >= end:
            return NULL
        # Bytes behind the value that are free.
        unused = p[0]
        p += 1
    if not set_string(item, p, length, end) or unused > <uint64_t>(end - p) - length:
        return NULL
    return p + length + unused


cdef class Packed:
    """Iterates over the items of a collection. Of a zipmap, those are the names of fields and values in turn.

    Args:
        blob: the whole collection.
        form: its format.

    Raises:
        ValueError: at once or while it iterates, for bytes that no server writes; items before the fault are valid.
    """

    def __init__(self, bytes blob not None, int form) -> None:
        cdef const uint8_t* start = blob
        cdef uint64_t size = len(blob)
        self._blob = blob
        self._form = form
        self._end = start + size
        if form == LISTPACK_FORM or form == ZIPLIST_FORM:
            self._at = start + (LISTPACK_HEAD if form == LISTPACK_FORM else ZIPLIST_HEAD)
            if self._at >= self._end or little(start, 4) != size:
                raise ValueError("its length is another one")
        elif form == INTSET_FORM:
            self._at = start + INTSET_HEAD
            self._width = <int>little(start, 4) if size >= INTSET_HEAD else 0
            if self._width not in (2, 4, 8) or INTSET_HEAD + self._width * little(start + 4, 4) != size:
                raise ValueError("its length is another one")
        else:
            self._at = start + ZIPMAP_HEAD
            if self._at >= self._end:
                raise ValueError("it has no end")

    def __iter__(self):
        return self

    def __next__(self):
        cdef Item item
        item.number = 0
        if self._at == NULL:
            raise StopIteration
        if self._form == INTSET_FORM:
            if self._at == self._end:
                raise StopIteration
            self._at += self._width
            return b"%d" % signed_little(self._at - self._width, self._width)
        if self._at[0] == END:
            if self._at + 1 != self._end or self._of_value:
                self._at = NULL
                raise ValueError("it ends too early")
            raise StopIteration
        if self._form == LISTPACK_FORM:
            self._at = listpack_item(self._at, self._end, &item)
        elif self._form == ZIPLIST_FORM:
            self._at = ziplist_item(self._at, self._end, &item)
        else:
            self._at = zipmap_item(self._at, self._end, self._of_value, &item)
            self._of_value = not self._of_value
        if self._at == NULL or self._at >= self._end:
            self._at = NULL
            raise ValueError("an item has no end")
        return content(&item)
