"""Code of clients at the servers: which scripts and libraries a request surely finds, so that it may be sent at once.

Plain Python (:mod:`proxy.commands.scripting.scripts`, :mod:`proxy.commands.scripting.functions`) loads code where it lacks, and notes here
what it has found to be there. What is not noted here is looked at by plain Python. So this memory may forget anything
at any time, and has to forget whatever may not hold any more: the scripts of a server that may have been restarted, and
the texts of scripts that the worker does not remember.

Things are forgotten together: a server's scripts are remembered under a number, and later ones under another number.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc

from proxy.engine.tags cimport Tags
from slots.requests.commandlookup cimport upper
from slots.requests.parsing cimport argument_t

MOST_SCRIPTS = 10_000
"""How many scripts a worker remembers: an application has some hundreds. What comes beyond has its arguments in it."""

cdef enum:
    # The place of texts, which are at no server.
    NOWHERE = -1


cdef class LoadedCode:
    """What is known of one worker's servers: :data:`MOST_SCRIPTS` scripts, at all servers together; 16 bytes each."""

    def __cinit__(self):
        self.tags = Tags(MOST_SCRIPTS)

    def __dealloc__(self):
        free(self.numbers)
        free(self.complete)

    cdef bint make_room(self, int32_t server) except False:
        cdef uint32_t* numbers
        cdef uint8_t* complete
        if server < self.servers:
            return True
        numbers = <uint32_t*> realloc(self.numbers, sizeof(uint32_t) * (server + 1))
        if numbers == NULL:
            raise MemoryError
        self.numbers = numbers
        complete = <uint8_t*> realloc(self.complete, server + 1)
        if complete == NULL:
            raise MemoryError
        self.complete = complete
        while self.servers <= server:
            self.newest += 1
            numbers[self.servers] = self.newest
            complete[self.servers] = 0
            self.servers += 1
        return True

    cdef bint has_script(self, int32_t server, const argument_t* digest) noexcept:
        """Whether a server has the script of this SHA1."""
        cdef char name[DIGEST_LENGTH]
        cdef int index
        if server >= self.servers or digest.size != DIGEST_LENGTH:
            return False
        for index in range(DIGEST_LENGTH):
            name[index] = upper(digest.data[index])
        return self.tags.has(self.numbers[server], server, name, DIGEST_LENGTH)

    cdef bint has_text(self, const argument_t* body) noexcept:
        """Whether the worker remembers this text of a script."""
        return self.tags.has(self.texts, NOWHERE, body.data, body.size)

    cdef bint has_libraries(self, int32_t server) noexcept:
        """Whether a server has every library."""
        return server < self.servers and self.complete[server]

    def note_script(self, int server, bytes digest):
        """A server has the script of this SHA1."""
        cdef bytes name = digest.upper()
        self.make_room(server)
        self.tags.add(self.numbers[server], server, name, len(name))

    def note_text(self, bytes body):
        """The worker remembers this text of a script."""
        self.tags.add(self.texts, NOWHERE, body, len(body))

    def note_libraries(self, int server):
        """A server has every library, as long as the connections to it last."""
        self.make_room(server)
        self.complete[server] = True

    def forget_scripts(self, int server):
        """A server may have lost its scripts."""
        if server < self.servers:
            self.newest += 1
            self.numbers[server] = self.newest

    def forget_server(self, int server):
        """A server may have lost scripts and libraries."""
        self.forget_scripts(server)
        if server < self.servers:
            self.complete[server] = False

    def forget_texts(self):
        """The worker may not remember some texts any more."""
        self.newest += 1
        self.texts = self.newest

    def forget_all_scripts(self):
        """Any server may have lost its scripts, and the worker some texts."""
        cdef int server
        for server in range(self.servers):
            self.forget_scripts(server)
        self.forget_texts()

    def forget_libraries(self):
        """Any server may lack a library."""
        cdef int server
        for server in range(self.servers):
            self.complete[server] = False


def knows(LoadedCode loaded, int server, bytes what=None):
    """What a request would be told of a script or, at server -1, a text; without one, of libraries. For tests."""
    cdef argument_t argument
    if what is None:
        return bool(loaded.has_libraries(server))
    argument.data = what
    argument.size = len(what)
    return bool(loaded.has_text(&argument) if server == NOWHERE else loaded.has_script(server, &argument))
