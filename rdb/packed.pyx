"""Takes collections apart that are stored as one string: listpacks, ziplists, intsets and zipmaps.

:func:`next_item` gives item after item and reads no byte outside of the string; :class:`Packed` does so for Python,
numbers in decimal. **bounded**: beside the string, one item is held. The formats are those of ``listpack.c``,
``ziplist.c``, ``intset.c`` and ``zipmap.c`` of Redis and Valkey.
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


cdef str open_collection(Collection* opened, const uint8_t* start, uint64_t size, int form):
    opened.form = form
    opened.end = start + size
    opened.of_value = False
    if form == LISTPACK_FORM or form == ZIPLIST_FORM:
        opened.at = start + (LISTPACK_HEAD if form == LISTPACK_FORM else ZIPLIST_HEAD)
        if opened.at >= opened.end or little(start, 4) != size:
            return "its length is another one"
    elif form == INTSET_FORM:
        opened.at = start + INTSET_HEAD
        opened.width = <int>little(start, 4) if size >= INTSET_HEAD else 0
        if opened.width not in (2, 4, 8) or INTSET_HEAD + opened.width * little(start + 4, 4) != size:
            return "its length is another one"
    else:
        opened.at = start + ZIPMAP_HEAD
        if opened.at >= opened.end:
            return "it has no end"
    return None


cdef int next_item(Collection* opened, Item* item) noexcept nogil:
    item.data = NULL
    item.number = 0
    if opened.at == NULL:
        return ENDED
    if opened.form == INTSET_FORM:
        if opened.at == opened.end:
            return ENDED
        opened.at += opened.width
        item.number = signed_little(opened.at - opened.width, opened.width)
        return FOUND
    if opened.at[0] == END:
        if opened.at + 1 != opened.end or opened.of_value:
            opened.at = NULL
            return TOO_EARLY
        return ENDED
    if opened.form == LISTPACK_FORM:
        opened.at = listpack_item(opened.at, opened.end, item)
    elif opened.form == ZIPLIST_FORM:
        opened.at = ziplist_item(opened.at, opened.end, item)
    else:
        opened.at = zipmap_item(opened.at, opened.end, opened.of_value, item)
        opened.of_value = not opened.of_value
    if opened.at == NULL or opened.at >= opened.end:
        opened.at = NULL
        return ENDLESS
    return FOUND


cdef str fault_of(int outcome):
    return "it ends too early" if outcome == TOO_EARLY else "an item has no end"


cdef class Packed:
    """Iterates over the items of a collection. Of a zipmap, those are the names of fields and values in turn.

    Args:
        blob: the whole collection.
        form: its format.

    Raises:
        ValueError: at once or while it iterates, for bytes that no server writes; items before the fault are valid.
    """

    cdef bytes _blob
    cdef Collection _opened

    def __init__(self, bytes blob not None, int form) -> None:
        self._blob = blob
        fault = open_collection(&self._opened, blob, len(blob), form)
        if fault is not None:
            self._opened.at = NULL
            raise ValueError(fault)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Item item
        cdef int outcome = next_item(&self._opened, &item)
        if outcome == FOUND:
            return content(&item)
        if outcome == ENDED:
            raise StopIteration
        raise ValueError(fault_of(outcome))
