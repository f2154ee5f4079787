"""A client as its user: what that one may do, and what the proxy itself tells it.

What limits a user is kept here. It is upheld where a request is looked at: the rights in :mod:`proxy.engine.dispatch`,
the prefix in :mod:`proxy.engine.prefixing`, the meter in :mod:`proxy.engine.metering`. A user with a prefix has rights
that are limited, too. They are checked on the real keys, so a key that was missed leads to an error.

A refusal by the proxy comes in its turn (**in-order**), counts for the user who asked, and shows no prefix.
"""

from libc.stdint cimport uint32_t
from libc.string cimport strlen

from proxy.engine.backend cimport Backend
from proxy.engine.connection cimport FOR_TURN, METERED, ClientConnection
from proxy.engine.meter cimport Meter
from proxy.engine.prefix cimport Prefix
from proxy.engine.rights cimport CommandRights
from proxy.engine.statistics cimport Statistics
from proxy.engine.verdicts cimport VERDICT_TAKEN, verdict

from proxy.engine.refusals import TOO_LARGE


cdef class UserClient(ClientConnection):
    """The client of a :class:`proxy.engine.session.Session`."""

    # -- what its user may do --------------------------------------------------------------------------------

    def belongs_to(self, str user):
        """From now on, its requests count for this user."""
        self.client.user = self.loop.statistics.user_number(user)

    def measure(self, Meter meter):
        """From now on, its requests take tokens of this meter; None for none."""
        if self.processing and meter is not self.meter and not self.reasons & FOR_TURN:
            # The time for what it has sent behind its login is that of the user who it is now.
            self.reasons |= FOR_TURN
            self.loop.event_loop.call_soon(self.resume_reading)
        self.meter = meter
        self.count_time(meter is not None)
        if meter is not None:
            self.before_next |= METERED
        else:
            self.before_next &= ~METERED

    def shed_these(self, bytes way_givers):
        """From now on, these requests give way: a byte for each number of a command (:mod:`proxy.engine.statistics`), the
        first one also for those beyond the end; none if it is empty."""
        self.way_givers = way_givers
        self.sheddable = len(way_givers) > 0

    def limit(self, CommandRights rights, Prefix prefix=None):
        """From now on, it may do only this, None for everything, and its keys have this prefix."""
        if prefix is not None and rights is None:
            raise ValueError("a user with a prefix may not do everything")
        self.rights = rights
        self.limited = rights is not None
        self.prefix = prefix
        self.client.hides = prefix is not None

    @property
    def hides(self):
        """What is taken off the names that its client sees; empty for nothing."""
        return self.prefix.text if self.prefix is not None else b""

    cdef bint gives_way_at(self, Backend backend) noexcept:
        """Whether the request at the front is refused because its server is slow. Asked of sheddable sessions only."""
        cdef const char* bytes_of_numbers = self.way_givers
        cdef bint listed = self.last_number < len(self.way_givers)
        return bytes_of_numbers[self.last_number if listed else 0] != 0 and backend.is_slow()

    # -- what the proxy tells it ------------------------------------------------------------------------------

    cdef void reply(self, const char* data, size_t size) noexcept:
        """A reply by the proxy itself, in its turn."""
        cdef Statistics statistics = self.loop.statistics
        cdef uint32_t ticks = self.loop.ticks - self.loop.since
        cdef size_t gets = 0 if self.muted else size
        statistics.observe(self.loop.command, self.client.user, ticks, gets, size > 0 and data[0] == c'-')
        if statistics.may_be_notable(self.loop.command, ticks, self.front_size, gets, data[0]):
            statistics.look_at(
                self.loop.command,
                self.client.user,
                ticks,
                NULL,
                self.front_size,
                data,
                gets,
                -1,
                self.client.sender.owner,
                None,
                self.database,
            )
        if not self.muted:
            self.loop.answer(&self.client, data, size)

    def answer(self, bytes data):
        """Give a reply, or another one to the same request, in its turn."""
        if not self.closed and not self.muted:
            self.loop.answer(&self.client, data, len(data))

    def push(self, bytes data):
        """Send something between two replies, as soon as possible."""
        if not self.closed:
            self.loop.push(&self.client, data, len(data))

    cdef verdict refuse(self, const char* text) noexcept:
        self.loop.errors += 1
        self.reply(text, strlen(text))
        return VERDICT_TAKEN

    cdef verdict shed(self, Backend backend) noexcept:
        """Refuse a request, because its server is slow."""
        self.loop.shed += 1
        return self.refuse_or_reply(backend.slow_reply)

    cdef verdict refuse_or_reply(self, bytes reply) noexcept:
        if self.prefix is not None:
            reply = self.prefix.hide(self.loop.command, reply)
        if reply[:1] == b"-":
            if reply.startswith(TOO_LARGE) and not self.muted:
                # bounded: the request has run, perhaps, so it gets no error. The client is one that is owed too much.
                self.client.broken = b"output limit"
                self.loop.list_client(&self.client.sender)
                return VERDICT_TAKEN
            self.loop.errors += 1
        self.reply(reply, len(reply))
        return VERDICT_TAKEN
