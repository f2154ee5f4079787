"""A connection to a Redis server, up to the end of its greeting: resolving, connecting, TLS, the greeting.

The greeting is HELLO or AUTH, CLIENT SETNAME, SELECT, MULTI and EXEC, a look for the fence, and a question for the
server's run id. The name goes first and the look for the fence after it (:mod:`slots.connections`). So if a process
fences this proxy off, it either ends the connection by its name, or the connection sees the fence (**one-owner**). A
restarted server may have forgotten a fence. So the absence of a fence is believed only for a process that the proxy knew
before any fence (**final-fence**; :mod:`proxy.servers.knownservers`). A connection to another process waits, greeted,
until that is known.
"""

import errno as errors
import ipaddress
import os
import socket
import ssl

from libc.stdint cimport uint32_t

from proxy.engine.poller cimport READABLE, WRITABLE
from proxy.engine.requests cimport Loop
from proxy.engine.stream cimport transmit

from slots import connections


cpdef bytes command(tuple arguments):
    """A request in RESP: ``arguments`` are bytes, str or int."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if isinstance(argument, int):
            argument = b"%d" % argument
        elif isinstance(argument, str):
            argument = argument.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


cdef class ServerConnection:
    """The connection under a :class:`proxy.engine.backend.Backend`.

    Args:
        loop: the worker's loop.
        address: ``host:port`` of the server.
        database: index of the database it works in.
        protocol: 2 or 3.
        options: a :class:`proxy.servers.backends.BackendOptions`.
    """

    def __cinit__(self, Loop loop, *rest):
        self.loop = loop
        self.fd = -1

    def __init__(self, Loop loop, address, int database, int protocol, options):
        host, _, port = address.rpartition(":")
        self.address = address
        self.host = (host.strip("[]"), int(port))
        self.database = database
        self.protocol = protocol
        self.options = options
        self.allowance = options.allowances.of(address)

    cdef object became_ready(self):
        """Called when the greeting is over: the server knows the connection's name, and has not fenced the proxy
        off."""
        raise TypeError("a connection that nobody uses")

    def _lose(self, reason, closing=False, own=None):
        """End the connection, which cannot be used, or no longer."""
        raise TypeError("a connection that nobody uses")

    def end_if_over(self):
        """End the connection if its server may not be used any more."""

    def end_if_not(self, process):
        """End the connection if it is in use and leads to another process than this one."""

    # -- connecting ----------------------------------------------------------------------------------------

    cdef object connect(self):
        self.connects += 1
        self.loop.opened += 1
        self.opened = self.loop.opened
        self.name = self.options.new_name()
        self.used = False
        self.connect_deadline = self.loop.now + self.options.connect_seconds
        self.state = BACKEND_CONNECTING
        host, port = self.host
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            # It is a host name. To look it up may take long, and the event loop must not wait for it.
            self.resolving = self.loop.event_loop.create_task(self._resolve(host, port))
            return
        self.candidates = [(family, (host, port))]
        self._open()

    async def _resolve(self, host, port):
        task = self.resolving
        try:
            found = await self.loop.event_loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            if self.state == BACKEND_CONNECTING and self.resolving is task:
                self.candidates = [(family, address) for family, _, _, _, address in found]
                self._open()
        except OSError as error:
            if self.state == BACKEND_CONNECTING and self.resolving is task:
                self._lose(f"cannot be connected to: {error}")

    def _open(self):
        """Connect to the next address. A name may have several, and nobody may listen at some: localhost is ::1,
        too."""
        family, address = self.candidates.pop(0)
        try:
            self._open_one(family, address)
        except OSError:
            if not self.candidates:
                raise
            self.drop_socket()
            self._open()

    def _open_one(self, family, address):
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            # This way even a wait without a limit notices within a minute that the server has vanished.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        self.fd = self.sock.fileno()
        code = self.sock.connect_ex(address)
        if code not in (0, errors.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self.watch.fd = self.fd
        self.loop.connected.add(self)
        self.loop.poller.want(&self.watch, WRITABLE)

    cdef object connected(self):
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code and self.candidates:
            self.drop_socket()
            try:
                self._open()
            except OSError as error:
                self._lose(f"cannot be connected to: {error}")
            return
        if code:
            self._lose(f"cannot be connected to: {os.strerror(code)}")
            return
        if self.options.tls is not None:
            self.shake_hands()
            return
        self.loop.poller.want(&self.watch, READABLE)
        self.greet()

    cdef object shake_hands(self):
        """Begin or continue the TLS handshake; ``connect_deadline`` bounds it."""
        try:
            if self.tls is None:
                self.sock = self.tls = self.options.tls.wrap_socket(
                    self.sock, do_handshake_on_connect=False, server_hostname=self.host[0]
                )
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.loop.poller.want(&self.watch, READABLE)
            return
        except ssl.SSLWantWriteError:
            self.loop.poller.want(&self.watch, WRITABLE)
            return
        except (OSError, ValueError) as error:
            self._lose(f"cannot be connected to with TLS: {error}")
            return
        self.loop.poller.want(&self.watch, READABLE)
        self.greet()

    cdef object greet(self):
        """Send the greeting. The name goes first and the look for the fence after it (see slots.connections)."""
        cdef bytes payload
        password = self.options.password
        user = self.options.user
        commands = []
        self.greeting_checks = []
        if self.protocol == 3:
            commands.append(("HELLO", "3", "AUTH", user or "default", password) if password else ("HELLO", "3"))
            self.greeting_checks.append("HELLO 3")
        elif password:
            commands.append(("AUTH", user, password) if user else ("AUTH", password))
            self.greeting_checks.append("AUTH")
        commands.append(("CLIENT", "SETNAME", self.name))
        self.greeting_checks.append("CLIENT SETNAME")
        # This looks in database 0, which a new connection has.
        commands.append(("HEXISTS", connections.FENCED, self.options.instance))
        self.greeting_checks.append("mark")
        if self.database:
            commands.append(("SELECT", self.database))
            self.greeting_checks.append(f"SELECT {self.database}")
        # Without MULTI, what stands between it and EXEC would run by itself.
        commands.extend([("MULTI",), ("EXEC",)])
        self.greeting_checks.extend(["MULTI", "EXEC"])
        commands.append(("ACL", "GETUSER", connections.fence_user(self.options.instance)))
        self.greeting_checks.append("fence")
        commands.append(("INFO", "server"))
        self.greeting_checks.append("INFO")
        self.greetings_left = len(commands)
        payload = b"".join([command(arguments) for arguments in commands])
        self.state = BACKEND_GREETING
        if transmit(self.fd, self.tls, <const char*> payload, len(payload)) != len(payload):
            # A new connection's socket buffer takes these few bytes, unless it is already broken.
            self._lose("closed the connection while it was introduced")

    cdef object greeting_reply(self, bytes reply):
        """Check one reply of the greeting; give None, or why the connection cannot be used."""
        if not self.greetings_left:
            return "sent a reply that nothing asked for"
        asked = self.greeting_checks[len(self.greeting_checks) - self.greetings_left]
        self.greetings_left -= 1
        if asked == "fence":
            if reply.startswith(b"-NOPERM"):
                # one-owner: the connection could not see a fence.
                return "does not let this proxy's user look for its fence; allow it +acl|getuser"
            # A server without ACL cannot hold a fence.
            if not reply.startswith((b"$-1", b"*-1", b"_", b"-")):
                self.options.on_fenced(self.address)
                return "has fenced this proxy off; it needs a new identity from topom"
        elif asked == "mark":
            if reply.startswith(b":1"):
                self.options.on_fenced(self.address)
                return "has fenced this proxy off; it needs a new identity from topom"
            if reply.startswith(b"-NOPERM"):
                # one-owner: the connection could not see a fence.
                return "does not let this proxy's user look for its fence; allow it +hexists and ~__slotferry:*"
            if reply.startswith(b"-WRONGTYPE"):
                # It is no mark of ours: somebody overwrote the marks. The user below shows a fence all the same, and
                # the group's clients should not suffer.
                self.options.marks_overwritten(self.address)
            elif reply.startswith(b"-"):
                # A server that is loading its data does not know yet.
                return f"cannot say whether this proxy is fenced off: {reply[1:].decode(errors='replace').strip()}"
        elif asked == "INFO" and not reply.startswith(b"-"):
            self.process = connections.run_id_in(reply)
            if not self.process and not self.options.known_servers.knows(self.address, self.process):
                return "does not say its run_id in INFO, without which a restart of it could not be told"
        elif reply.startswith(b"-"):
            # A server that does not know HELLO or AUTH repeats what it was sent: the password, too.
            said = reply[1:].partition(b", with args beginning with")[0]
            return f"refuses {asked}: {said.decode(errors='replace').strip()}"
        if not self.greetings_left:
            # final-fence: a process that may have forgotten a mark is no reason to use the server.
            if self.options.known_servers.knows(self.address, self.process):
                self.introduced()
            else:
                self.options.on_unknown(self.address, self.process)
        return None

    cdef object introduced(self):
        if not self.loop.is_process(self.address, self.process, self.opened):
            self._lose("is another process by now; nothing was run at the one before")
        elif self.fd >= 0:
            self.state = BACKEND_READY
            self.became_ready()

    def processes_known(self):
        """More processes of servers are known: go on if the connection waited for that."""
        if self.state == BACKEND_GREETING and not self.greetings_left:
            if self.options.known_servers.knows(self.address, self.process):
                self.introduced()

    cdef object drop_socket(self):
        if self.fd >= 0:
            self.loop.poller.forget(&self.watch)
            self.loop.connected.discard(self)
            self.fd = -1
        if self.sock is not None:
            self.sock.close()
            self.sock = self.tls = None
