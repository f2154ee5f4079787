"""What other compiled modules may use of :mod:`rdb.packed`."""

cdef list listpack(bytes blob)
cdef list ziplist(bytes blob)
cdef list intset(bytes blob)
cdef list zipmap(bytes blob)
