"""Which keys a worker is asked for most, by a sample of its requests.

A worker looks at 2,500 requests a second, whatever it serves, or at all of them if it has fewer: about 1.4 million
instructions, a thousandth of a core. How many requests it had between the last two calls of :meth:`HotKeys.tell` decides
the gap between two that it looks at. A burst makes the gap grow at once: once twice as many were looked at, the gap
doubles each time the requests do. Gaps differ by chance, so that they fall into step with no pipeline. A generator of
pseudo-random numbers gives a gap with a multiplication.

The sample feeds a *Space-Saving* sketch (A. Metwally, D. Agrawal, A. El Abbadi: Efficient Computation of Frequent and
Top-k Elements in Data Streams, 2005) of 256 keys. A key that is not followed takes the place of the lightest one, and
inherits its weight, which may then be too high by that much: its *excess*. So every key with more than 1/256 of the
sample is followed. Weights halve every 15 seconds: what is told is of late. A key that begins to take 5% of the
requests has 1% of all weight after 5 seconds.

A key is followed with its database, its length, a hash of all its bytes, and its first 128 bytes. Of a request that
may go to several servers, each key counts; of any other, and within MULTI, its first key. Requests that plain Python
sends without the engine's routing are left out.
"""

import hashlib
import math
import os

from libc.stdint cimport int16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from proxy.engine.records cimport KEPT_OF_KEY

from slots.messages.load import KEY_BYTES

MOST_SAMPLES = 2500.0
"""A second, in the mean."""
FIRST_GAP = 16
"""Before the first call of tell: how many requests there will be is not known."""
cdef enum:
    # Looked at since the last call of tell, with the gap of that call; twice what it meant to look at.
    MOST_AT_ONCE = 5000
    # 160 million requests a second. It keeps the numbers within 32 bits.
    LONGEST_GAP = 65536

HALF_LIFE_SECONDS = 15.0
LEAST_SURE = 0.5
"""A key is only told if at least this share of its weight is its own for sure."""
LEAST_SAMPLES = 4.0
"""And if its own weight is that of so many requests of the sample: one or two come by chance."""
HASH_CHARACTERS = 16
"""Of a SHA-256 in hexadecimal, that stands in the place of a key."""

if KEPT_OF_KEY != KEY_BYTES:
    raise ImportError(f"of a key {KEPT_OF_KEY} bytes are kept, and KEY_BYTES of slots.messages.load says {KEY_BYTES}")


cdef inline uint64_t mixed(uint64_t hash, uint64_t word) noexcept nogil:
    # The odd constant is 2^64 by the golden ratio.
    hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15
    return hash ^ (hash >> 32)


cdef uint64_t hash_of(uint64_t seed, int database, const char* key, size_t length) noexcept nogil:
    cdef uint64_t hash = mixed(seed, (<uint64_t> length << 16) ^ <uint64_t> database)
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, key, 8)
        hash = mixed(hash, word)
        key += 8
        length -= 8
    word = 0
    memcpy(&word, key, length)
    return mixed(hash, word)


def hash_of_key(bytes key not None):
    """What is told in the place of a key, of which these are the first 128 bytes. It is the same everywhere."""
    return hashlib.sha256(key).hexdigest()[:HASH_CHARACTERS].encode()


cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")
"""So that nobody can choose keys with the same hash."""


cdef uint64_t hash_of_name(int database, const char* key, size_t length) noexcept nogil:
    return hash_of(SEED, database, key, length)


cdef class HotKeys:
    """The sketch of one worker.

    Args:
        seed: where the pseudo-random numbers begin.
    """

    def __cinit__(self, seed=0):
        self.gap = self.mean_gap = FIRST_GAP
        self.coarsest = FIRST_GAP
        self.random = seed
        memset(self.chains, 0xFF, sizeof(self.chains))

    def __len__(self):
        return self.known

    def request(self, int database, int slot, bytes key not None):
        """A key was asked for."""
        self.note(database, slot, key, len(key))

    cdef void sample(self, int database, uint32_t slot, const char* key, size_t length) noexcept:
        """A request of the sample."""
        cdef uint64_t hash = hash_of(SEED, database, key, length)
        cdef int number = self.find(database, hash, key, length)
        cdef followed_t* followed
        cdef weighed_t* weighed
        # The requests that this one stands for.
        cdef uint32_t stands_for = self.mean_gap
        self.requests += stands_for
        if self.mean_gap < LONGEST_GAP and self.requests > <double> self.mean_gap * MOST_AT_ONCE:
            self.mean_gap *= 2
            self.coarsest = max(self.coarsest, <double> self.mean_gap)
        # D. Knuth's MMIX generator. The low bits have short periods.
        self.random = self.random * <uint64_t> 6364136223846793005 + <uint64_t> 1442695040888963407
        self.gap = 1 + <uint32_t> (((self.random >> 32) * (2 * self.mean_gap - 1)) >> 32)
        if number != NOBODY:
            self.heap[self.places[number]].weight += stands_for
            self.sink(self.places[number])
            return
        if self.known < FOLLOWED:
            number = self.known
            weighed = &self.heap[number]
            weighed.weight = 0
            weighed.number = self.places[number] = <int16_t> number
            self.known += 1
        else:
            weighed = &self.heap[0]
            number = weighed.number
            self.unchain(number)
        followed = &self.keys[number]
        followed.excess = weighed.weight
        weighed.weight += stands_for
        followed.hash = hash
        followed.length = length
        followed.database = database
        followed.slot = slot
        memcpy(followed.key, key, min(length, <size_t> KEPT_OF_KEY))
        followed.following = self.chains[hash & (CHAINS - 1)]
        self.chains[hash & (CHAINS - 1)] = <int16_t> number
        self.rise(self.places[number])
        self.sink(self.places[number])

    cdef int find(self, int database, uint64_t hash, const char* key, size_t length) noexcept:
        """The number of a key that is followed, or NOBODY."""
        cdef int number = self.chains[hash & (CHAINS - 1)]
        cdef followed_t* followed
        while number != NOBODY:
            followed = &self.keys[number]
            if (
                followed.hash == hash
                and followed.length == length
                and followed.database == database
                and memcmp(followed.key, key, min(length, <size_t> KEPT_OF_KEY)) == 0
            ):
                return number
            number = followed.following
        return NOBODY

    cdef void unchain(self, int number) noexcept:
        cdef int16_t* link = &self.chains[self.keys[number].hash & (CHAINS - 1)]
        while link[0] != number:
            link = &self.keys[link[0]].following
        link[0] = self.keys[number].following

    cdef void sink(self, int place) noexcept:
        """A key at a place of the heap has become heavier: put it below lighter ones."""
        cdef weighed_t sinking = self.heap[place]
        cdef int child
        while True:
            child = 2 * place + 1
            if child >= self.known:
                break
            if child + 1 < self.known:
                # Added, for which of the two is lighter no processor can guess.
                child += self.heap[child + 1].weight < self.heap[child].weight
            if self.heap[child].weight >= sinking.weight:
                break
            self.put(place, self.heap[child])
            place = child
        self.put(place, sinking)

    cdef void rise(self, int place) noexcept:
        """A key at the end of the heap is new: put it above heavier ones."""
        cdef weighed_t rising = self.heap[place]
        cdef int parent
        while place:
            parent = (place - 1) // 2
            if self.heap[parent].weight <= rising.weight:
                break
            self.put(place, self.heap[parent])
            place = parent
        self.put(place, rising)

    cdef void put(self, int place, weighed_t weighed) noexcept:
        self.heap[place] = weighed
        self.places[weighed.number] = <int16_t> place

    def hottest(self, double least):
        """The keys of up to 128 bytes that are asked for at least so often a second, as ``(database, key)``."""
        cdef int number
        cdef followed_t* followed
        if self.seconds <= 0:
            return []
        found = []
        for number in range(self.known):
            followed = &self.keys[number]
            own = self.heap[self.places[number]].weight - followed.excess
            if own >= least * self.seconds and own >= LEAST_SAMPLES * self.coarsest and followed.length <= KEPT_OF_KEY:
                found.append((followed.database, followed.key[:followed.length]))
        return found

    def tell(self, double seconds, int most, bint hashed):
        """The keys that are asked for most of late, the hottest first: ``(database, slot, key, length, requests a second,
        by how much that may be too high)``.

        Args:
            seconds: so much time has passed since the last call, or since the beginning.
            most: so many keys at most.
            hashed: whether the key's place is taken by a hash that tells nothing of it and is the same everywhere: the
                first 16 hexadecimal digits of its SHA-256. Of a key of more than 128 bytes, these alone are hashed.
                The length is then that of the hash.
        """
        cdef followed_t* followed
        cdef double weight
        cdef int number
        cdef double factor = math.pow(0.5, max(seconds, 0.0) / HALF_LIFE_SECONDS)
        found = []
        seconds = max(seconds, 1e-9)
        self.seconds += seconds
        for number in range(self.known):
            weight = self.heap[self.places[number]].weight
            own = weight - self.keys[number].excess
            if own < LEAST_SAMPLES * self.coarsest or own < LEAST_SURE * weight:
                continue
            found.append((own, number))
        found.sort(reverse=True)
        told = []
        for own, place in found[:max(most, 0)]:
            followed = &self.keys[<int> place]
            key = followed.key[:min(followed.length, <uint64_t> KEPT_OF_KEY)]
            told.append(
                (
                    followed.database,
                    followed.slot,
                    hash_of_key(key) if hashed else key,
                    HASH_CHARACTERS if hashed else followed.length,
                    self.heap[self.places[<int> place]].weight / self.seconds,
                    followed.excess / self.seconds,
                )
            )
        for number in range(self.known):
            self.heap[number].weight *= factor
            self.keys[number].excess *= factor
        self.seconds *= factor
        self.mean_gap = <uint32_t> min(max(math.ceil(self.requests / seconds / MOST_SAMPLES), 1), LONGEST_GAP)
        # The next one to look at is not further away than a gap may be from now on.
        self.gap = min(self.gap, 2 * self.mean_gap - 1)
        self.coarsest = max(self.coarsest * factor, <double> self.mean_gap)
        self.requests = 0
        return told
