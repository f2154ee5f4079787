"""Counts the nodes of a radix tree (rax) from its keys, which come in order and have 16 bytes each: IDs of a stream.

A tree has a node for every place where keys differ, one for every run of bytes between such places, and one for every
end of a key. The nodes of a key are known once the next key is known. So the memory is **bounded** by the 16 places of
one key.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from rdb.layout cimport Layout, VALKEY_8_1, allocated

cdef enum:
    ID = 16

cdef struct Radix:
    uint64_t keys
    uint64_t nodes
    # Allocated bytes of all nodes.
    uint64_t room
    int open
    # For each place on the way to the last key where keys differ: how many bytes come before it, and how many branches
    # it has.
    int[17] depths
    uint64_t[17] children
    uint8_t[16] last


cdef inline void radix_begin(Radix* tree) noexcept nogil:
    tree.keys = tree.nodes = tree.room = 0
    tree.open = 0


cdef inline void add_node(const Layout* layout, Radix* tree, uint64_t bytes, uint64_t pointers) noexcept nogil:
    """A node with so many bytes of keys and pointers. Its head has four bytes, and the part behind the bytes is
    aligned."""
    tree.nodes += 1
    tree.room += allocated(layout, (4 + bytes + 7) // 8 * 8 + 8 * pointers)


cdef inline void add_run(const Layout* layout, Radix* tree, int length) noexcept nogil:
    if length > 0:
        add_node(layout, tree, length, 1)


cdef inline void add_end(const Layout* layout, Radix* tree, int parent) noexcept nogil:
    add_run(layout, tree, ID - parent - 1)
    add_node(layout, tree, 0, 1)


cdef inline void radix_add(const Layout* layout, Radix* tree, const uint8_t* key) noexcept nogil:
    cdef int shared = 0
    cdef int depth
    tree.keys += 1
    if tree.keys > 1:
        # A tree has no equal keys. Equal keys of a damaged file count as nearly equal.
        while shared < ID - 1 and key[shared] == tree.last[shared]:
            shared += 1
        depth = tree.depths[tree.open - 1] if tree.open else -1
        add_end(layout, tree, depth if depth > shared else shared)
        while tree.open and tree.depths[tree.open - 1] > shared:
            tree.open -= 1
            add_node(layout, tree, tree.children[tree.open], tree.children[tree.open])
            depth = tree.depths[tree.open - 1] if tree.open else -1
            add_run(layout, tree, tree.depths[tree.open] - (depth if depth > shared else shared) - 1)
        if tree.open and tree.depths[tree.open - 1] == shared:
            # A byte has only so many values.
            if tree.children[tree.open - 1] < 256:
                tree.children[tree.open - 1] += 1
        else:
            tree.depths[tree.open] = shared
            tree.children[tree.open] = 2
            tree.open += 1
    memcpy(tree.last, key, ID)


cdef inline uint64_t radix_bytes(const Layout* layout, Radix* tree) noexcept nogil:
    """The size of the tree, without the values of its keys. No key can be added after this.

    Up to Valkey 8.0 the servers do not add up their nodes: they count each with its head and 30 pointers.
    """
    if tree.keys == 0:
        add_node(layout, tree, 0, 0)
    else:
        add_end(layout, tree, tree.depths[tree.open - 1] if tree.open else -1)
        while tree.open:
            tree.open -= 1
            add_node(layout, tree, tree.children[tree.open], tree.children[tree.open])
            add_run(layout, tree, tree.depths[tree.open] - (tree.depths[tree.open - 1] if tree.open else -1) - 1)
    if layout.generation >= VALKEY_8_1:
        return allocated(layout, 32) + tree.room
    return 16 * tree.keys + 244 * tree.nodes
