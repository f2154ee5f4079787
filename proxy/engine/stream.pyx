"""Reads and writes a socket, plain or TLS, with the results of recv and send.

A plain socket costs one system call and nothing else. TLS uses Python's ssl module over the same non-blocking socket.
Its exceptions become the error numbers that a plain socket would give.
"""

import ssl

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc cimport errno

cdef extern from *:
    """
    #include <poll.h>
    #ifdef POLLRDHUP
    #define slotferry_end POLLRDHUP
    #else
    /* Systems without it say POLLHUP once the other side sends no more. */
    #define slotferry_end (POLLIN | POLLHUP)
    #endif
    static int slotferry_is_left(int fd) {
        struct pollfd one = {fd, slotferry_end, 0};
        return poll(&one, 1, 0) > 0 && one.revents & ~POLLIN;
    }
    """
    bint slotferry_is_left(int fd) nogil

cdef enum:
    # One TLS record. Bytes that are offered again after "want write" may not be fewer than before, and they never are.
    RECORD = 16384


cdef ssize_t receive_tls(object tls, char* data, size_t room) noexcept:
    """Read all that is there, up to ``room``: bytes left in the TLS layer would not make the socket readable again."""
    cdef size_t received = 0
    cdef ssize_t part
    try:
        while received < room:
            part = tls.recv_into(PyMemoryView_FromMemory(data + received, room - received, PyBUF_WRITE))
            if part == 0:
                break
            received += part
        else:
            return received
    except ssl.SSLWantReadError:
        if received == 0:
            errno.errno = errno.EAGAIN
            return -1
    except ssl.SSLWantWriteError:
        if received == 0:
            errno.errno = errno.EAGAIN
            return -1
    except Exception:
        if received == 0:
            errno.errno = errno.ECONNRESET
            return -1
    return received


cdef ssize_t transmit_tls(object tls, const char* data, size_t size) noexcept:
    cdef size_t sent = 0
    cdef size_t part
    try:
        while sent < size:
            part = min(size - sent, <size_t> RECORD)
            sent += tls.send(PyMemoryView_FromMemory(<char*> data + sent, part, PyBUF_READ))
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        if sent == 0:
            errno.errno = errno.EAGAIN
            return -1
    except Exception:
        if sent == 0:
            errno.errno = errno.ECONNRESET
            return -1
    return sent


cdef bint is_left(int fd) noexcept:
    """Whether the other side of a socket sends no more, or the connection is broken. Unread bytes do not matter."""
    return slotferry_is_left(fd)
