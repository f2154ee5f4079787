"""Keeps memory that every batch needs for a short time: clients' output buffers, and replies that wait for their turn.

The system's allocator would take back and hand out the same pages over and over. The kept memory is bounded:
:data:`SPARES` buffers of at most :data:`SPARE_MOST` bytes, :data:`SMALL_ROOMS` and :data:`LARGE_ROOMS` rooms for
replies.
"""

from libc.stdlib cimport free, malloc

from proxy.engine.buffer cimport buffer_free, buffer_t

cdef enum:
    SPARES = 64
    SPARE_MOST = 65536
    SMALL_ROOM = 256
    SMALL_ROOMS = 4096
    LARGE_ROOM = 4096
    LARGE_ROOMS = 512

# Several replies that came one after another, before their turn.
ctypedef struct kept_t:
    size_t room
    # The number of requests whose replies are in it.
    int users
    char data[1]

ctypedef struct memory_t:
    buffer_t spares[SPARES]
    int spare_count
    # Their addresses are in an array, not in a list through the rooms themselves: taking a room would have to wait
    # until it is read from memory.
    kept_t* small[SMALL_ROOMS]
    int small_count
    kept_t* large[LARGE_ROOMS]
    int large_count


cdef inline void take_spare(memory_t* memory, buffer_t* buffer) noexcept nogil:
    """Give a buffer without memory the memory of a spare one, if there is one."""
    if memory.spare_count:
        memory.spare_count -= 1
        buffer[0] = memory.spares[memory.spare_count]


cdef inline void give_spare(memory_t* memory, buffer_t* buffer) noexcept nogil:
    """Take an empty buffer's memory back; afterwards the buffer has none."""
    if buffer.data != NULL and buffer.size <= SPARE_MOST and memory.spare_count < SPARES:
        memory.spares[memory.spare_count] = buffer[0]
        memory.spares[memory.spare_count].start = memory.spares[memory.spare_count].end = 0
        memory.spare_count += 1
        buffer.data = NULL
        buffer.start = buffer.end = buffer.size = 0
    else:
        buffer_free(buffer)


cdef inline kept_t* new_kept(memory_t* memory, size_t size) noexcept nogil:
    """Room for ``size`` bytes of replies, without users; NULL when there is no memory."""
    cdef kept_t* kept
    cdef size_t room = size + sizeof(kept_t)
    if room <= SMALL_ROOM:
        if memory.small_count:
            memory.small_count -= 1
            kept = memory.small[memory.small_count]
            kept.users = 0
            return kept
        room = SMALL_ROOM
    elif room <= LARGE_ROOM:
        if memory.large_count:
            memory.large_count -= 1
            kept = memory.large[memory.large_count]
            kept.users = 0
            return kept
        room = LARGE_ROOM
    kept = <kept_t*> malloc(room)
    if kept != NULL:
        kept.room = room
        kept.users = 0
    return kept


cdef inline void leave_kept(memory_t* memory, kept_t* kept) noexcept nogil:
    """Remove one user; the last one gives the room back."""
    kept.users -= 1
    if kept.users > 0:
        return
    if kept.room == SMALL_ROOM and memory.small_count < SMALL_ROOMS:
        memory.small[memory.small_count] = kept
        memory.small_count += 1
    elif kept.room == LARGE_ROOM and memory.large_count < LARGE_ROOMS:
        memory.large[memory.large_count] = kept
        memory.large_count += 1
    else:
        free(kept)


cdef inline void free_memory(memory_t* memory) noexcept nogil:
    """Give all memory back to the system."""
    cdef int index
    for index in range(memory.spare_count):
        buffer_free(&memory.spares[index])
    for index in range(memory.small_count):
        free(memory.small[index])
    for index in range(memory.large_count):
        free(memory.large[index])
    memory.spare_count = memory.small_count = memory.large_count = 0
