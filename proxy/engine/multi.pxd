"""The transactions of simple commands, between MULTI and EXEC."""

from proxy.engine.backend cimport Backend
from proxy.engine.records cimport multi_t
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t

cdef bint begin_multi(Session session) except -1
cdef verdict within_multi(
    Session session,
    const command_t* row,
    const argument_t* arguments,
    int count,
    const char* data,
    size_t size,
) except VERDICT_FAILED
cdef bint has_room_for(Backend backend, size_t size) noexcept
cdef size_t append_transaction(Backend backend, const char* requests, size_t size) noexcept
cdef void end_multi(Session session) noexcept
cdef void free_multi(multi_t* multi) noexcept
