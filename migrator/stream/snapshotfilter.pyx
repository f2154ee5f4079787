"""Makes commands of a snapshot: those that write the keys of wanted slots at the targets of their copies.

A key that is not wanted costs no Python object and is not copied. Of a wanted one, RESTORE is written straight into the
open batch of its copy. There is no REPLACE in it: a target was swept, so a key that stands there shows that something
is wrong.

A copy never expires by itself, since the source decides when a key is gone. So a deadline that is near or past is
withheld: the key gets one that is far ahead, and the batch notes the true one. A hash whose fields have deadlines comes
as its elements, like a big value: RESTORE would set the deadlines of the fields with it. So does each value of a copy whose target does not read payloads
of this format (:mod:`migrator.stream.snapshotcommands`).

**bounded**: an open batch has at most ``most_bytes`` and one command more; a command has a key and a value of at most
``big_bytes``. A larger value is not held at all. A target does nothing else while it runs a batch, and a few bytes may
be megabytes there, or thousands of elements. So its *work* is bounded, too, in steps of about 0.2 microseconds: one for
each element and each 128 bytes in memory, and :data:`COMMAND_WORK` for the command.
"""

from typing import NamedTuple

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from rdb.input cimport Input
from rdb.lastvalue cimport LastValue
from rdb.numbers cimport decimal
from rdb.records cimport FOOT, Records
from rdb.values cimport MODULE, module_name, type_of
from slots.keyslots cimport KeySlots

from migrator.errors import CannotBeCut
from migrator.stream.batches import Batch
from rdb.errors import UnreadableRdb, UnsupportedRdb
from rdb.input import MOST_CONTIGUOUS
from rdb.records import NONE
from rdb.values import TYPES
from slots.keynames import readable
from slots.reserved import RESERVED

cdef bytes _RESERVED = RESERVED
cdef size_t _RESERVED_LENGTH = len(RESERVED)
cdef int64_t _NONE = NONE

cdef enum:
    # Numbers of copies are below it; 0 stands for none.
    COPIES = 256
    # More than the bytes of a command beside its key and its value.
    BESIDE = 256
    # Of a command beside its value.
    COMMAND_WORK = 12
    # The types of hashes whose fields have deadlines, from the first to the last.
    FIRST_EXPIRING = 22
    LAST_EXPIRING = 25


cdef struct OpenBatch:
    uint8_t* data
    size_t size
    size_t room
    size_t count
    uint64_t work


class BigKey(NamedTuple):
    """A key whose value does not go in one command: it is too large or too much work, or a hash whose fields have
    deadlines, or of a copy whose values all come as their elements.

    Attributes:
        copy: the number of its copy.
        database: its number.
        name: its bytes.
        type: of its value, as TYPE tells it; of a module's value the name of the module's type.
        deadline_ms: when it expires, in milliseconds since 1970; None if it does not.
        idle_seconds: for how long it was not used; None if the server does not tell.
        frequency: how often it was used, as OBJECT FREQ tells it; None likewise.
        fields_expire: whether it is a hash whose fields have deadlines, be it large or not.
    """

    copy: int
    database: int
    name: bytes
    type: str
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    fields_expire: bool


cdef class SnapshotFilter:
    """Iterates over what a snapshot has for copies: :class:`Batch` and :class:`BigKey`, those of each copy in the
    snapshot's order. A batch has keys of one database.

    Args:
        file: has ``readinto``.
        name: of the snapshot, for errors.
        key_slots: which slot a key has.
        wanted: one byte a slot: 0, or the number of the copy to which its keys go. It is looked at when a key is read,
            and may be changed meanwhile, but not resized. An open batch keeps the keys that it has.
        most_bytes: of the commands in a batch, unless it has only one.
        most_keys: in a batch.
        big_bytes: of a value as the snapshot has it; a key with more is a :class:`BigKey`.
        most_work: of a batch, unless it has only one command.
        big_work: of a value; a key with more is a :class:`BigKey`.
        placeholder_ms: the deadline of keys whose own is withheld, in milliseconds since 1970.
        size: bytes of the snapshot; None if they are not known.
        apart: the numbers of copies whose keys all come as :class:`BigKey`, however small they are.

    Attributes:
        most_keys, most_work: as given. They may be changed between two items, and are at least 1.
        withheld_until_ms: deadlines up to here are withheld. It may be changed between two items, and counts for the
            keys that are read from then on: an open batch keeps the deadlines that it has.
        noted_until_ms: deadlines up to here are noted. It may be changed likewise.
        keys_read: the number of keys so far, wanted or not.

    Raises:
        ValueError: ``wanted`` has not one byte a slot, or a limit is out of its range.
        RdbError: while it iterates; what came before is valid as far as the file's checksum is right, which is known
            only at its end. After an error, each further call raises UnreadableRdb.
    """

    cdef Records _records
    cdef LastValue _value
    cdef KeySlots _key_slots
    cdef const uint8_t* _wanted
    # Keeps its memory where it is.
    cdef object _view
    cdef size_t _most_bytes
    cdef size_t _big_bytes
    cdef uint64_t _big_work
    # Bytes of an open batch's memory, but for very long names.
    cdef size_t _most_room
    cdef int64_t _placeholder_ms
    cdef int32_t _database
    cdef OpenBatch[COPIES] _open
    cdef bint[COPIES] _apart
    # Of the open batch of each copy.
    cdef list _deadlines
    cdef list _withheld
    # Items that are finished and still to be given.
    cdef list _ready
    cdef object _big
    cdef bint _failed
    cdef bint _ended
    cdef public size_t most_keys
    cdef public uint64_t most_work
    cdef public int64_t withheld_until_ms
    cdef public int64_t noted_until_ms
    cdef readonly uint64_t keys_read

    def __init__(
        self,
        file: object,
        str name not None,
        KeySlots key_slots not None,
        bytearray wanted not None,
        *,
        most_bytes: int,
        most_keys: int,
        big_bytes: int,
        most_work: int,
        big_work: int,
        placeholder_ms: int,
        size: object = None,
        apart: object = (),
    ) -> None:
        if len(wanted) != key_slots.number_of_slots:
            raise ValueError(f"{len(wanted)} slots are wanted or not; there are {key_slots.number_of_slots}")
        for what, number in (
            *(("most_bytes", most_bytes), ("most_keys", most_keys), ("big_bytes", big_bytes)),
            *(("most_work", most_work), ("big_work", big_work)),
        ):
            if not 1 <= number <= MOST_CONTIGUOUS:
                raise ValueError(f"{what} is {number}; it has to be between 1 and {MOST_CONTIGUOUS}")
        if not 1 <= placeholder_ms < 1 << 62:
            raise ValueError(f"there is no deadline {placeholder_ms}")
        self._records = Records(Input(file, name, size, True), True, 0)
        self._value = LastValue(self._records)
        self._key_slots = key_slots
        self._most_bytes = most_bytes
        self.most_keys = most_keys
        self._big_bytes = big_bytes
        self.most_work = most_work
        self._big_work = big_work
        self._placeholder_ms = placeholder_ms
        self._most_room = self._most_bytes + self._big_bytes + 2 * BESIDE
        self._deadlines = [[] for _ in range(COPIES)]
        self._withheld = [[] for _ in range(COPIES)]
        self._ready = []
        for copy in apart:
            if not 0 < copy < COPIES:
                raise ValueError(f"there is no copy {copy}")
            self._apart[copy] = True
        self._view = memoryview(wanted)
        self._wanted = <const uint8_t*>PyByteArray_AS_STRING(wanted)

    def __dealloc__(self) -> None:
        cdef int copy
        for copy in range(COPIES):
            free(self._open[copy].data)

    @property
    def version(self) -> int:
        """The version of the snapshot's format; 0 until an item was given. Valkey's numbers begin at 80."""
        return self._records.version

    @property
    def stream_database(self) -> int:
        """The database in which the stream goes on behind the snapshot, before its first SELECT. -1 if the snapshot
        does not tell it, and until an item was given."""
        return self._records.stream_database

    @property
    def bytes_read(self) -> int:
        """The number of bytes of the snapshot so far."""
        return self._records.input.offset()

    def __iter__(self):
        return self

    def __next__(self):
        if self._failed:
            raise UnreadableRdb(
                self._records.input.name, self._records.input.offset(), "a fault has ended the reading of it"
            )
        if not self._ready and not self._ended:
            # If it ends with an error, the next key is not found any more.
            self._failed = True
            self.go_on()
            self._failed = False
        if not self._ready:
            raise StopIteration
        return self._ready.pop(0)

    def elements(self):
        """Iterates over the elements of the last :class:`BigKey`: those of :mod:`rdb.elements`. It can be done once,
        before the next item is asked for; then what is left of them is passed over.

        Raises:
            ValueError: the last item is no big key, or its elements are being read already.
            CannotBeCut: the value is a module's. It is passed over when the next item is asked for.
            RdbError: while it iterates.
        """
        if self._ready:
            raise ValueError("the last item is no big key")
        if self._value.unread and type_of(self._records.code, self._records.valkey) == MODULE:
            raise CannotBeCut(
                f"key '{readable(self._big.name)}' of database {self._big.database} is of a module's type, "
                f"{self._big.type}, and has more than {self._big_bytes} bytes; it has to go whole"
            )
        return self._value.elements()

    cdef int go_on(self) except -1:
        """Read until there is something to give, or the end."""
        cdef Records records = self._records
        cdef int copy
        self._value.pass_over()
        while not self._ready:
            if not records.next():
                self._ended = True
                self.close_all()
                break
            self.keys_read += 1
            if records.database != self._database:
                self.close_all()
                self._database = records.database
            copy = 0
            if records.key_length < _RESERVED_LENGTH or memcmp(
                records.key, <const char*>_RESERVED, _RESERVED_LENGTH
            ):
                copy = self._wanted[self._key_slots.of(records.database, <const char*>records.key, records.key_length)]
            if copy:
                self.take(copy)
            else:
                records.skip()
        return 0

    cdef int take(self, int copy) except -1:
        """Add the key that was found to the open batch of its copy."""
        cdef Records records = self._records
        cdef OpenBatch* batch = &self._open[copy]
        cdef size_t before = batch.size
        cdef size_t length = records.key_length
        cdef size_t at, size
        cdef uint64_t work
        cdef int64_t deadline = records.deadline
        cdef bint expires = deadline != _NONE
        cdef bint noted = False
        cdef bint withheld = False
        cdef bint of_use = records.idle >= 0 or records.frequency >= 0
        cdef bint fields_expire = FIRST_EXPIRING <= records.code <= LAST_EXPIRING
        cdef const uint8_t* content
        if records.metadata:
            raise UnsupportedRdb(
                records.input.name, records.start,
                f"key '{readable(records.key[:length])}' of database {records.database} has data of modules beside its "
                "value, which RESTORE does not take",
            )
        if expires and (deadline <= self.withheld_until_ms or deadline <= 0):
            withheld = True
            deadline = self._placeholder_ms
        elif expires:
            noted = deadline <= self.noted_until_ms
        self.make_room(batch, length + BESIDE)
        put(batch, b"*", 4 + expires + 2 * of_use)
        put_text(batch, b"$7\r\nRESTORE\r\n", 13)
        put(batch, b"$", length)
        at = batch.size
        put_text(batch, <const char*>records.key, length)
        put_text(batch, b"\r\n", 2)
        put_number(batch, deadline if expires else 0)
        # The name is not valid any more once the value is read.
        content = NULL
        if not fields_expire and not self._apart[copy]:
            content = records.value(self._big_bytes, self._big_work, &size, &work)
        if content == NULL:
            self.big_key(copy, batch.data[at:at + length], before, fields_expire)
            return 0
        self.make_room(batch, size + BESIDE)
        put(batch, b"$", 1 + size + FOOT)
        batch.data[batch.size] = <uint8_t>records.code
        memcpy(batch.data + batch.size + 1, content, size)
        records.seal(batch.data + batch.size, 1 + size)
        batch.size += 1 + size + FOOT
        put_text(batch, b"\r\n", 2)
        if expires:
            put_text(batch, b"$6\r\nABSTTL\r\n", 12)
        # Of both, RESTORE takes one.
        if records.idle >= 0:
            put_text(batch, b"$8\r\nIDLETIME\r\n", 14)
            put_number(batch, records.idle)
        elif of_use:
            put_text(batch, b"$4\r\nFREQ\r\n", 10)
            put_number(batch, records.frequency)
        work += COMMAND_WORK
        if batch.count and (batch.size > self._most_bytes or batch.work + work > self.most_work):
            at -= before
            self.close(copy, before)
        batch.count += 1
        batch.work += work
        if withheld:
            (<list>self._withheld[copy]).append(batch.data[at:at + length])
        elif noted:
            (<list>self._deadlines[copy]).append((records.deadline, batch.data[at:at + length]))
        if batch.size >= self._most_bytes or batch.count >= self.most_keys:
            self.close(copy, batch.size)
        return 0

    cdef int big_key(self, int copy, bytes name, size_t before, bint fields_expire) except -1:
        """The key that was found has a value that is still to be read; ``before`` is where its command begins."""
        cdef Records records = self._records
        cdef int type = type_of(records.code, records.valkey)
        self._open[copy].size = before
        self.close(copy, before)
        self._value.unread = True
        self._big = BigKey(
            copy,
            records.database,
            name,
            module_name(records.module()) if type == MODULE else TYPES[type],
            None if records.deadline == _NONE else records.deadline,
            None if records.idle < 0 else records.idle,
            None if records.frequency < 0 else records.frequency,
            fields_expire,
        )
        self._ready.append(self._big)
        return 0

    cdef int close_all(self) except -1:
        cdef int copy
        for copy in range(COPIES):
            self.close(copy, self._open[copy].size)
        return 0

    cdef int close(self, int copy, size_t size) except -1:
        """Make the first ``size`` bytes of a copy's open batch, which are its counted commands, ready. The rest is the
        beginning of the next one."""
        cdef OpenBatch* batch = &self._open[copy]
        if not batch.count:
            return 0
        commands = PyBytes_FromStringAndSize(<char*>batch.data, size)
        self._ready.append(
            Batch(
                copy,
                self._database,
                commands,
                batch.count,
                batch.count,
                self._deadlines[copy],
                self._withheld[copy],
            )
        )
        self._deadlines[copy] = []
        self._withheld[copy] = []
        batch.size -= size
        batch.count = 0
        batch.work = 0
        if batch.size:
            memmove(batch.data, batch.data + size, batch.size)
        elif batch.room > self._most_room:
            # A very long name needed it.
            free(batch.data)
            batch.data = NULL
            batch.room = 0
        return 0

    cdef int make_room(self, OpenBatch* batch, size_t size) except -1:
        cdef size_t need = batch.size + size
        cdef size_t room = 2 * batch.room
        cdef uint8_t* larger
        if need > batch.room:
            if room > self._most_room:
                room = self._most_room
            if room < need:
                room = need
            larger = <uint8_t*>realloc(batch.data, room)
            if larger == NULL:
                raise MemoryError
            batch.data = larger
            batch.room = room
        return 0


# There has to be room.

cdef inline void put_text(OpenBatch* batch, const char* text, size_t length) noexcept nogil:
    memcpy(batch.data + batch.size, text, length)
    batch.size += length


cdef inline void put(OpenBatch* batch, const char* kind, int64_t number) noexcept nogil:
    """The head of an array or a string."""
    batch.data[batch.size] = <uint8_t>kind[0]
    batch.size += 1
    batch.size += decimal(batch.data + batch.size, number)
    put_text(batch, b"\r\n", 2)


cdef inline void put_number(OpenBatch* batch, int64_t number) noexcept nogil:
    """A string that is a number."""
    cdef uint8_t[20] digits
    cdef size_t length = decimal(digits, number)
    put(batch, b"$", length)
    put_text(batch, <const char*>digits, length)
    put_text(batch, b"\r\n", 2)
