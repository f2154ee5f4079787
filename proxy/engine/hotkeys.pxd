"""Which keys a worker is asked for most, by a sample of its requests."""

from libc.stdint cimport int16_t, int32_t, uint32_t, uint64_t

from proxy.engine.records cimport KEPT_OF_KEY

cdef enum:
    # Keys that are followed at once.
    FOLLOWED = 256
    CHAINS = 512
    NOBODY = -1

ctypedef struct followed_t:
    uint64_t hash
    uint64_t length
    # By how much its weight may be too high.
    double excess
    int32_t database
    uint32_t slot
    # The next key of its chain.
    int16_t following
    char key[KEPT_OF_KEY]

# Weights are in the heap itself: a key that becomes heavier is compared with many others.
ctypedef struct weighed_t:
    # Requests by the sample, counted less the longer ago.
    double weight
    int16_t number

# The hash of a key of a database. Nobody outside the process can choose keys with the same one.
cdef uint64_t hash_of_name(int database, const char* key, size_t length) noexcept nogil


cdef class HotKeys:
    """The sketch of one worker."""

    cdef:
        followed_t keys[FOLLOWED]
        # Numbers of keys whose hash has the same end.
        int16_t chains[CHAINS]
        # All keys, as a heap with the lightest at the top; and the place there of each.
        weighed_t heap[FOLLOWED]
        int16_t places[FOLLOWED]
        int known
        # Requests until the next one of the sample; how many that are on average; and all of them since tell.
        uint32_t gap
        readonly uint32_t mean_gap
        double requests
        # The longest mean gap of late, counted less the longer ago, as the weights are.
        double coarsest
        uint64_t random
        # Seconds that the weights are of, counted as the weights are.
        double seconds

    cdef inline void note(self, int database, uint32_t slot, const char* key, size_t length) noexcept:
        """A key was asked for."""
        self.gap -= 1
        if self.gap == 0:
            self.sample(database, slot, key, length)

    cdef void sample(self, int database, uint32_t slot, const char* key, size_t length) noexcept
    cdef int find(self, int database, uint64_t hash, const char* key, size_t length) noexcept
    cdef void sink(self, int place) noexcept
    cdef void rise(self, int place) noexcept
    cdef void put(self, int place, weighed_t weighed) noexcept
    cdef void unchain(self, int number) noexcept
