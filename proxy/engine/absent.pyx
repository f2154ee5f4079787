"""Keys known to be absent from the source of their slot's migration (**absent-first**, **one-way**).

Nothing creates a key of a migrating slot on the source. So a key once seen absent stays absent until the slot's
migration is over. The number of the migration is remembered with the key, so that knowledge of one migration never
counts in another. A forgotten key is looked for at the source once more, and nothing else: where hot keys are many more
than :data:`proxy.engine.router.KNOWN_ABSENT`, most of their commands wait for the source.

The memory is all zeros at first. The system gives a page of it only once a key is remembered there.
"""

from libc.stdint cimport uint32_t

from proxy.engine.tags cimport Tags


cdef class AbsentKeys(Tags):
    """A bounded memory of (migration, database, key) triples."""

    def remember(self, uint32_t migration, int database, bytes key):
        """Note that ``key`` was seen absent from the source of ``migration``."""
        self.add(migration, database, key, len(key))

    def remembers(self, uint32_t migration, int database, bytes key):
        """Whether ``key`` is remembered as absent from the source of ``migration``. A key may be forgotten."""
        return self.has(migration, database, key, len(key))
