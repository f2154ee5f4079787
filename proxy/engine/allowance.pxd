"""The time until which a server may be used."""

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_BOOTTIME
    #define slotferry_allowance_clock CLOCK_BOOTTIME
    #else
    #define slotferry_allowance_clock CLOCK_MONOTONIC
    #endif
    static inline double slotferry_clock(void) {
        struct timespec now;
        clock_gettime(slotferry_allowance_clock, &now);
        return now.tv_sec + now.tv_nsec * 1e-9;
    }
    """
    double slotferry_clock() noexcept nogil

cdef extern from "<math.h>":
    double INFINITY


cdef class Allowance:
    """The time until which a server may be used, shared by all connections to the server."""

    cdef public double until


cdef inline bint is_over(Allowance allowance) noexcept:
    """Whether the server may not be used now. The clock is read only where there is a limit."""
    return allowance.until != INFINITY and slotferry_clock() >= allowance.until
