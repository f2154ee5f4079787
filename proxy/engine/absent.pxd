"""Keys known to be absent from the source of their slot's migration."""

from proxy.engine.tags cimport Tags


cdef class AbsentKeys(Tags):
    """A bounded memory of (migration, database, key) triples."""
