"""A client as its user: what that one may do, and what the proxy itself tells it."""

from libc.stdint cimport int16_t

from proxy.engine.backend cimport Backend
from proxy.engine.connection cimport ClientConnection
from proxy.engine.meter cimport Meter
from proxy.engine.prefix cimport Prefix
from proxy.engine.records cimport client_t
from proxy.engine.rights cimport CommandRights
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict


cdef class UserClient(ClientConnection):
    """One client, and its user."""

    cdef:
        # What its user may do is limited, by ``rights``.
        readonly bint limited
        readonly CommandRights rights
        # What stands before all keys of its user, who is limited then; None for nothing.
        readonly Prefix prefix
        # Its user may use some databases only.
        public bint in_some_databases
        # Its requests to a server that is slow are refused at once: those whose number has a byte that is not 0. The byte
        # of number 0 is also that of all numbers beyond the end.
        readonly bint sheddable
        bytes way_givers
        # Of its user, if that one may only ask for so much a second.
        Meter meter
        # It has had the login that passes the limits of its user.
        public bint had_login
        public int database
        # MUTED or MUTED_ONCE of proxy.engine.outcomes.
        public int muted
        # The request that is looked at: the number of its command in proxy.engine.statistics, and its size.
        int16_t last_number
        size_t front_size

    cdef bint gives_way_at(self, Backend backend) noexcept
    cdef inline client_t* asker(self) noexcept:
        """The client that gets the reply to a request. While replies are muted, the reply has a place and is dropped
        there."""
        self.client.muted = self.muted != 0
        return &self.client
    cdef void reply(self, const char* data, size_t size) noexcept
    cdef verdict refuse(self, const char* text) noexcept
    cdef verdict shed(self, Backend backend) noexcept
    cdef verdict refuse_or_reply(self, bytes reply) noexcept
