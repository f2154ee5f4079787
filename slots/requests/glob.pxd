"""Redis's patterns of names, without a Python object."""

cdef bint matches(const char* pattern, size_t pattern_size, const char* text, size_t size) noexcept nogil
