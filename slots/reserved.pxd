"""Whether a key is Slotferry's own, for compiled modules."""

cdef extern from *:
    """
    #include <string.h>
    /* slots.reserved.RESERVED; most keys begin with another letter, and cost no more than that look. */
    static inline int slotferry_is_reserved(const char *key, size_t size) {
        return size >= 12 && key[0] == '_' && memcmp(key, "__slotferry:", 12) == 0;
    }
    """
    bint slotferry_is_reserved(const char* key, size_t size) noexcept nogil
