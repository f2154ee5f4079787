"""Measures one value of an RDB file, of the types that Redis up to 8.6 and Valkey up to 9.1 write.

Nothing is kept: elements are read one by one. If a whole collection is stored as one string (a listpack, ziplist or
intset), its length and its first bytes are enough, for these have the number of its elements. The rest of the string is
skipped, and a compressed one is only decompressed for those first bytes.

The type codes and their contents are those of ``rdb.h`` and ``rdb.c`` of Redis and Valkey. Code 22 is a hash with
deadlines: in a file of Valkey that of Valkey, in a file of Redis that of a release candidate of Redis 7.4.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from rdb.input cimport COMPRESSED, INTEGER, PLAIN, Input, Stored
from rdb.layout cimport (
    QUICKLIST as QUICKLIST_STRUCT, REDIS_6, REDIS_7_2, ROBJ, STREAM_NODE, VALKEY_8_1,
    Layout, allocated, hash_entry, key_with_object, sds_allocated, set_entries, skiplist_node, string_value, table,
)
from rdb.lzf cimport lzf_decompress
from rdb.numbers cimport little
from rdb.radix cimport ID, Radix, radix_add, radix_begin, radix_bytes

from rdb.errors import UnsupportedRdb

TYPES = ("string", "list", "set", "zset", "hash", "stream")
ENCODINGS = (
    "raw", "int", "embstr", "quicklist", "listpack", "ziplist", "intset", "hashtable", "skiplist", "stream",
    "listpackex",
)

cdef str MODULE_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

cdef enum:
    # Bytes that are read of a collection stored as one string.
    HEAD = 16
    # So many compressed bytes always give them: each instruction has at most 33 bytes and gives at least 1.
    COMPRESSED_HEAD = 64
    # So many bytes in memory cost as much as an element.
    WORK_BYTES = 128
    # Bytes of the smallest element in a listpack.
    LEAST_ELEMENT = 2
    # The value in a listpack or ziplist with more elements than two bytes can count.
    UNCOUNTED = 65535


cdef int head(Input source, Stored* stored, uint8_t* first) except -1:
    """Reads a string and keeps its first bytes, as many as :data:`HEAD`; missing ones are zeros."""
    cdef size_t some
    cdef int64_t written
    cdef const uint8_t* p
    cdef int i
    source.string(stored)
    for i in range(HEAD):
        first[i] = 0
    if stored.kind == INTEGER:
        raise source.corrupt("a collection is stored as a number")
    if stored.kind == PLAIN:
        some = HEAD if stored.stored > HEAD else stored.stored
        p = source.take(some)
        for i in range(<int>some):
            first[i] = p[i]
    else:
        some = COMPRESSED_HEAD if stored.stored > COMPRESSED_HEAD else stored.stored
        p = source.take(some)
        written = lzf_decompress(p, some, first, HEAD)
        if written < 0 or <uint64_t>written < (HEAD if stored.length > HEAD else stored.length):
            raise source.corrupt("a compressed collection cannot be decompressed")
    source.skip(stored.stored - some)
    return 0


cdef int packed(Input source, int encoding, uint64_t* length, int64_t* elements) except -1:
    """Skips a listpack, ziplist or intset; gives its length in bytes and its elements, -1 if it does not tell."""
    cdef Stored stored
    cdef uint8_t[HEAD] first
    cdef uint64_t said
    cdef uint64_t width
    head(source, &stored, first)
    length[0] = stored.length
    if encoding == INTSET:
        width = little(first, 4)
        said = little(first + 4, 4)
        if stored.length < 8 or width not in (2, 4, 8) or said * width + 8 != stored.length:
            raise source.corrupt(f"an intset of {stored.length} bytes says it has {said} elements of {width} bytes")
        elements[0] = said
        return 0
    if stored.length < (7 if encoding == LISTPACK else 11) or little(first, 4) != stored.length:
        raise source.corrupt(f"a packed collection of {stored.length} bytes says it has {little(first, 4)}")
    said = little(first + (4 if encoding == LISTPACK else 8), 2)
    elements[0] = -1 if said == UNCOUNTED else <int64_t>said
    return 0


cdef int one_packed(
    Input source, const Layout* layout, int encoding, int64_t parts, Measured* found
) except -1:
    """A whole collection in one string, with ``parts`` entries for each element."""
    cdef uint64_t length
    packed(source, encoding, &length, &found.elements)
    if found.elements > 0:
        if found.elements % parts:
            raise source.corrupt(f"{found.elements} entries are no multiple of {parts}")
        found.elements //= parts
    found.encoding = encoding
    if layout.generation == REDIS_6:
        # Version 6.2 does not ask the allocator, but the collection.
        found.memory += length
    else:
        found.memory += allocated(layout, length)
    return 0


cdef bint canonical(const uint8_t* p, uint64_t length) noexcept nogil:
    """Whether it is a 64-bit number in the form in which the server writes it."""
    cdef uint64_t value = 0
    cdef uint64_t most = 0x7FFFFFFFFFFFFFFF
    cdef uint64_t i = 0
    if length == 1 and p[0] == c"0":
        return True
    if length > 1 and p[0] == c"-":
        most += 1
        i = 1
    if length == i or length - i > 19 or p[i] == c"0":
        return False
    while i < length:
        if p[i] < c"0" or p[i] > c"9":
            return False
        value = value * 10 + (p[i] - c"0")
        i += 1
    return value <= most


cdef int read_string(Input source, const Layout* layout, uint64_t key, bint expires, Measured* found) except -1:
    cdef Stored stored
    cdef bint embedded
    source.string(&stored)
    found.elements = stored.length
    if stored.kind == INTEGER or stored.kind == PLAIN and stored.length <= 20 and canonical(
        source.take(stored.length), stored.length
    ):
        found.encoding = INT
        found.memory = key_with_object(layout, key, expires)
        return 0
    if stored.kind == COMPRESSED or stored.length > 20:
        source.skip(stored.stored)
    found.memory = string_value(layout, key, stored.length, expires, &embedded)
    found.encoding = EMBSTR if embedded else RAW
    return 0


cdef int read_list(Input source, const Layout* layout, int code, Measured* found) except -1:
    cdef uint64_t nodes, i, length, container
    cdef uint64_t node = 32 if layout.generation == REDIS_6 else 40
    cdef uint64_t bytes = 0
    cdef int64_t elements
    found.encoding = QUICKLIST
    found.elements = 0
    found.memory += QUICKLIST_STRUCT
    if code == 10:
        nodes = 1
    else:
        source.count(&nodes)
    for i in range(nodes):
        if code == 1:
            source.skip_string(&length)
            # A type of Redis before 3.2. It is loaded into nodes of 8 KiB, where an element has about two bytes more.
            found.elements += 1
            bytes += length + 2
            if bytes > 8192 or i + 1 == nodes:
                found.memory += node + allocated(layout, bytes + 7)
                bytes = 0
            continue
        container = 2
        if code == 18:
            source.count(&container)
        if container == 1:
            source.skip_string(&length)
            elements = 1
        elif container == 2:
            packed(source, LISTPACK if code == 18 else ZIPLIST, &length, &elements)
        else:
            raise source.corrupt(f"there is no container {container} of a list")
        if code == 18 and container == 2 and nodes == 1 and layout.generation >= REDIS_7_2:
            found.encoding = LISTPACK
            found.memory += allocated(layout, length) - QUICKLIST_STRUCT
        else:
            found.memory += node + (length if layout.generation == REDIS_6 else allocated(layout, length))
        found.elements = -1 if elements < 0 or found.elements < 0 else found.elements + elements
    return 0


cdef int read_set(Input source, const Layout* layout, Measured* found) except -1:
    cdef uint64_t members, i, length
    source.count(&members)
    for i in range(members):
        source.skip_string(&length)
        found.memory += sds_allocated(layout, length)
    found.encoding = HASHTABLE
    found.elements = members
    found.memory += table(layout, members) + set_entries(layout, members)
    return 0


cdef int read_zset(Input source, const Layout* layout, int code, Measured* found) except -1:
    cdef uint64_t members, i, length
    cdef double nodes = 0
    cdef int score
    source.count(&members)
    for i in range(members):
        source.skip_string(&length)
        nodes += skiplist_node(layout, length)
        if code == 5:
            source.skip(8)
        else:
            # A score in decimal; 253 to 255 mean not a number and the infinities.
            score = source.byte()
            if score < 253:
                source.skip(score)
    found.encoding = SKIPLIST
    found.elements = members
    # The zset, the skiplist, and its head, which has all 32 levels.
    found.memory += 16 + 32 + table(layout, members) + <uint64_t>nodes
    if layout.generation >= VALKEY_8_1:
        found.memory += allocated(layout, 8 + 16 * 31)
    else:
        found.memory += 24 * members + allocated(layout, 24 + 16 * 32)
    return 0


cdef int read_hash(Input source, const Layout* layout, int code, bint valkey, Measured* found) except -1:
    cdef uint64_t fields, i, field, value, deadline
    cdef bint expires = False
    cdef bint any_expires = False
    cdef const uint8_t* p
    if code == 24:
        # The earliest of the fields' deadlines.
        source.skip(8)
    source.count(&fields)
    for i in range(fields):
        if code in (22, 24) and not valkey:
            source.count(&deadline)
            expires = deadline != 0
        source.skip_string(&field)
        source.skip_string(&value)
        if code == 22 and valkey:
            p = source.take(8)
            # A negative value means none.
            expires = p[7] < 128
        any_expires |= expires
        found.memory += hash_entry(layout, field, value, expires)
    found.encoding = HASHTABLE
    found.elements = fields
    found.memory += table(layout, fields) + (40 if any_expires and not valkey else 0)
    return 0


cdef int read_zipmap(Input source, const Layout* layout, Measured* found) except -1:
    cdef Stored stored
    cdef uint8_t[HEAD] first
    head(source, &stored, first)
    found.encoding = ZIPLIST if layout.generation == REDIS_6 else LISTPACK
    # 254 and 255 announce values that do not fit into one byte.
    found.elements = first[0] if first[0] < 254 else -1
    found.memory += allocated(layout, stored.length)
    return 0


cdef int read_pending(
    Input source, const Layout* layout, bint delivered, uint64_t* memory, uint64_t* entries
) except -1:
    """A list of pending entries: in a group with delivery times, in a consumer only the IDs."""
    cdef Radix tree
    cdef uint64_t i, times
    radix_begin(&tree)
    source.count(entries)
    for i in range(entries[0]):
        radix_add(layout, &tree, source.take(ID))
        if delivered:
            source.skip(8)
            source.count(&times)
    memory[0] += radix_bytes(layout, &tree)
    return 0


cdef int read_group(Input source, const Layout* layout, int code, Measured* found) except -1:
    cdef uint64_t value, i, consumers, pending
    cdef uint64_t times = 2 if code >= 21 else 1
    cdef uint64_t numbers = 3 if code >= 19 else 2
    source.skip_string(&value)
    for i in range(numbers):
        source.count(&value)
    found.memory += 32 if layout.generation == REDIS_6 else 40
    read_pending(source, layout, True, &found.memory, &pending)
    found.memory += 24 * pending
    source.count(&consumers)
    for i in range(consumers):
        source.skip_string(&value)
        found.memory += (24 if layout.generation < REDIS_7_2 else 32) + value
        source.skip(8 * times)
        read_pending(source, layout, False, &found.memory, &pending)
    if code >= 27:
        # Entries that were given back.
        source.count(&value)
        for i in range(value):
            source.skip(ID)
    return 0


cdef int read_stream(Input source, const Layout* layout, int code, Measured* found) except -1:
    cdef Radix tree
    cdef Stored stored
    cdef uint64_t nodes, i, j, value, length, entries
    cdef int64_t unused
    cdef uint64_t numbers = 8 if code >= 19 else 3
    radix_begin(&tree)
    source.count(&nodes)
    for i in range(nodes):
        source.string(&stored)
        if stored.kind != PLAIN or stored.length != ID:
            raise source.corrupt("a part of a stream has no ID of 16 bytes")
        radix_add(layout, &tree, source.take(ID))
        packed(source, LISTPACK, &length, &unused)
        # The last part has room for more entries.
        found.memory += allocated(layout, STREAM_NODE if i + 1 == nodes and length < STREAM_NODE else length)
    found.memory += radix_bytes(layout, &tree) + (40 if layout.generation == REDIS_6 else 80)
    found.encoding = STREAM_ENCODING
    source.count(&entries)
    found.elements = entries
    # IDs of the last entry, and of the first and the last deleted, and how many there ever were.
    for i in range(numbers - 1):
        source.count(&value)
    source.count(&nodes)
    for i in range(nodes):
        read_group(source, layout, code, found)
    if code >= 26:
        # Producers whose entries are taken once: how long and how many of them are remembered, each with its own IDs.
        source.count(&value)
        source.count(&value)
        source.count(&nodes)
        for i in range(nodes):
            source.skip_string(&value)
            source.count(&entries)
            for j in range(entries):
                source.skip_string(&length)
                source.count(&value)
                source.count(&value)
                found.memory += allocated(layout, length + 24)
        source.count(&value)
        source.count(&value)
    return 0


cdef int skip_module_value(Input source) except -1:
    """Skips a module's value: parts that each begin with their kind, and an end."""
    cdef uint64_t part, value
    while True:
        source.count(&part)
        if part == 0:
            return 0
        if part in (1, 2):
            source.count(&value)
        elif part == 3:
            source.skip(4)
        elif part == 4:
            source.skip(8)
        elif part == 5:
            source.skip_string(&value)
        else:
            raise source.corrupt(f"a module's value has no parts {part}")


cdef str module_name(uint64_t number):
    """The name of a module's type, by its number: nine letters of six bits each, and ten bits of a version."""
    cdef int i
    return "".join([MODULE_LETTERS[(number >> (10 + 6 * (8 - i))) & 63] for i in range(9)])


cdef int type_of(int code, bint valkey) noexcept:
    if code == 0:
        return STRING
    if code in (1, 10, 14, 18):
        return LIST
    if code in (2, 11, 20):
        return SET
    if code in (3, 5, 12, 17):
        return ZSET
    if code in (15, 19, 21, 26, 27):
        return STREAM
    if code in (4, 9, 13, 16, 22) or code in (23, 24, 25) and not valkey:
        return HASH
    return MODULE if code == 7 else UNKNOWN


cdef uint64_t work_of(const Measured* found) noexcept:
    # The bytes are those in memory, so a compressed value counts as what comes out of it.
    cdef uint64_t work = found.memory // WORK_BYTES
    if found.type == STRING or found.type == MODULE:
        return work
    if found.elements < 0:
        # Only a packed collection does not tell. A server may make a table of it, with an entry for each element.
        return work + found.memory // LEAST_ELEMENT
    return work + <uint64_t>found.elements


cdef int measure(
    Input source, const Layout* layout, int code, bint valkey, uint64_t key, bint expires, Measured* found
) except -1:
    cdef uint64_t start
    found.type = type_of(code, valkey)
    if found.type == UNKNOWN:
        raise UnsupportedRdb(
            source.name, source.offset(), f"values of type {code} are not known here; what follows cannot be read"
        )
    if found.type == STRING:
        return read_string(source, layout, key, expires, found)
    found.memory = key_with_object(layout, key, expires)
    if found.type == LIST:
        return read_list(source, layout, code, found)
    if found.type == SET:
        if code == 2:
            return read_set(source, layout, found)
        return one_packed(source, layout, INTSET if code == 11 else LISTPACK, 1, found)
    if found.type == ZSET:
        if code <= 5:
            return read_zset(source, layout, code, found)
        return one_packed(source, layout, ZIPLIST if code == 12 else LISTPACK, 2, found)
    if found.type == STREAM:
        return read_stream(source, layout, code, found)
    if found.type == MODULE:
        found.encoding = RAW
        found.elements = -1
        start = source.offset()
        source.count(&found.module)
        skip_module_value(source)
        # Only the module knows the size of its value in memory.
        found.memory += source.offset() - start
        return 0
    if code in (4, 22, 24):
        return read_hash(source, layout, code, valkey, found)
    if code == 9:
        return read_zipmap(source, layout, found)
    if code in (13, 16):
        return one_packed(source, layout, ZIPLIST if code == 13 else LISTPACK, 2, found)
    if code == 25:
        source.skip(8)
    # Each field has its deadline beside it, and the hash has a struct for all of them.
    one_packed(source, layout, LISTPACK, 3, found)
    found.encoding = LISTPACKEX
    found.memory += 40
    return 0
