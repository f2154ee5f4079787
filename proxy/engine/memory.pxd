"""Memory that comes and goes with every batch: output buffers of clients, and replies that wait for their turn.

The system's allocator would take back and hand out the same pages over and over. What is kept here is bounded:
:data:`SPARES` buffers of at most :data:`SPARE_MOST` bytes, and :data:`BLOCKS` blocks of :data:`BLOCK_SIZE` bytes.
"""

from libc.stdlib cimport free, malloc

from proxy.engine.buffer cimport buffer_free, buffer_t

cdef enum:
    SPARES = 64
    SPARE_MOST = 65536
    BLOCK_SIZE = 256
    BLOCKS = 4096

ctypedef struct block_t:
    block_t* next

ctypedef struct memory_t:
    buffer_t spares[SPARES]
    int spare_count
    block_t* blocks
    int block_count


cdef inline void take_spare(memory_t* memory, buffer_t* buffer) noexcept nogil:
    """Give a buffer that has no memory a spare's, if there is one."""
    if memory.spare_count:
        memory.spare_count -= 1
        buffer[0] = memory.spares[memory.spare_count]


cdef inline void give_spare(memory_t* memory, buffer_t* buffer) noexcept nogil:
    """Take an empty buffer's memory back; it has none afterwards."""
    if buffer.data != NULL and buffer.size <= SPARE_MOST and memory.spare_count < SPARES:
        memory.spares[memory.spare_count] = buffer[0]
        memory.spares[memory.spare_count].start = memory.spares[memory.spare_count].end = 0
        memory.spare_count += 1
        buffer.data = NULL
        buffer.start = buffer.end = buffer.size = 0
    else:
        buffer_free(buffer)


cdef inline char* new_block(memory_t* memory, size_t size) noexcept nogil:
    """Memory for ``size`` bytes; NULL when there is none."""
    cdef block_t* block = memory.blocks
    if size > BLOCK_SIZE:
        return <char*> malloc(size)
    if block == NULL:
        return <char*> malloc(BLOCK_SIZE)
    memory.blocks = block.next
    memory.block_count -= 1
    return <char*> block


cdef inline void free_block(memory_t* memory, char* data, size_t size) noexcept nogil:
    """Give back what :func:`new_block` gave for ``size`` bytes."""
    if data == NULL:
        return
    if size > BLOCK_SIZE or memory.block_count >= BLOCKS:
        free(data)
        return
    (<block_t*> data).next = memory.blocks
    memory.blocks = <block_t*> data
    memory.block_count += 1
