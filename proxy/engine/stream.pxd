"""Reads and writes a socket, plain or TLS, with the results of recv and send."""

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)

cdef ssize_t receive_tls(object tls, char* data, size_t room) noexcept
cdef ssize_t transmit_tls(object tls, const char* data, size_t size) noexcept
cdef bint is_left(int fd) noexcept

# ``tls`` is the ssl.SSLSocket, or None for a plain socket.
cdef inline ssize_t receive(int fd, object tls, char* data, size_t room) noexcept:
    if tls is None:
        return recv(fd, data, room, 0)
    return receive_tls(tls, data, room)

cdef inline ssize_t transmit(int fd, object tls, const char* data, size_t size) noexcept:
    if tls is None:
        return send(fd, data, size, 0)
    return transmit_tls(tls, data, size)
