"""Makes commands of a snapshot: those that write the keys of wanted slots at the targets of their copies.

A key that is not wanted costs no Python object and is not copied. Of a wanted one, RESTORE is written straight into the
open batch of its copy. There is no REPLACE in it: a target was swept, so a key that stands there shows that something
is wrong.

A copy never expires by itself, since the source decides when a key is gone. So a deadline that is near or past is
withheld: the key gets one that is far ahead, and the batch notes the true one. A hash whose fields have deadlines comes
as its elements, like a big value: RESTORE would set the deadlines of the fields with it.

Where targets do not read payloads of this format, a value is written as the command that makes it
(:mod:`migrator.stream.valuecommands`), with one more for its deadline. None of these fails if the key stands there. So
each batch begins with one UNLINK of all its keys, and whoever sends it looks at the reply: it tells how many were
there. If the reply is lost, no value has elements that others wrote all the same.

**bounded**: an open batch has at most ``most_bytes`` and one command more, beside the names of its keys; a command has a
key and a value of at most ``big_bytes``, or of a piece (:mod:`migrator.stream.values.cutting`). A larger value is not
held at all. A target does nothing else while it runs a batch, and a few bytes may
be megabytes there, or thousands of elements. So its *work* is bounded, too, in steps of about 0.2 microseconds: one for
each element and each 128 bytes in memory, and :data:`COMMAND_WORK` for the command; :data:`ELEMENT_WORK` for an element
that a command adds. An element that is added to a sorted set of up to :data:`PACKED` costs more the more there are: the
set is packed, and the server goes through it each time.
"""

from typing import NamedTuple

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from migrator.stream.openbatch cimport OpenBatch
from migrator.stream.output cimport AROUND, Output, put, put_number, put_string, put_text
from migrator.stream.valuecommands cimport ValueCommands, name_of
from rdb.elements cimport elements
from rdb.input cimport Input
from rdb.lastvalue cimport LastValue
from rdb.records cimport FOOT, Records
from rdb.values cimport HASH, MODULE, STREAM, STRING, ZSET, module_name, type_of
from slots.keyslots cimport KeySlots

from migrator.errors import CannotBeCut
from migrator.pieces.cutter import PIECE_BYTES, PIECE_ELEMENTS
from migrator.stream.values.atonce import require_type, small_stream
from rdb.errors import UnreadableRdb, UnsupportedRdb
from rdb.input import MOST_CONTIGUOUS
from rdb.records import NONE
from rdb.values import TYPES
from slots.keynames import readable
from slots.reserved import RESERVED

cdef bytes _RESERVED = RESERVED
cdef size_t _RESERVED_LENGTH = len(RESERVED)
cdef int64_t _NONE = NONE
cdef size_t _PIECE_BYTES = PIECE_BYTES

cdef enum:
    # Numbers of copies are below it; 0 stands for none.
    COPIES = 256
    # More than the bytes of a command beside its key and its value.
    BESIDE = 256
    # Of a command beside its value, and of an element that a command adds.
    COMMAND_WORK = 12
    ELEMENT_WORK = 5
    # Elements of a packed sorted set at most, and for how many of them one that is added is one more work.
    PACKED = 128
    PACKED_A_WORK = 4
    # Bytes of a command that are one work.
    WORK_BYTES = 128
    # The types of hashes whose fields have deadlines, from the first to the last.
    FIRST_EXPIRING = 22
    LAST_EXPIRING = 25


class BigKey(NamedTuple):
    """A key whose value does not go in one command: it is too large or too much work, or a hash whose fields have
    deadlines.

    Attributes:
        copy: the number of its copy.
        database: its number.
        name: its bytes.
        type: of its value, as TYPE tells it; of a module's value the name of the module's type.
        deadline_ms: when it expires, in milliseconds since 1970; None if it does not.
        idle_seconds: for how long it was not used; None if the server does not tell.
        frequency: how often it was used, as OBJECT FREQ tells it; None likewise.
        fields_expire: whether it is a hash whose fields have deadlines, be it large or not. Where the target has none,
            it is one whose fields may have some.
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
        words: those of targets that do not read payloads of this format; None if they do.

    Attributes:
        most_keys, most_work: as given. They may be changed between two items, and are at least 1.
        withheld_until_ms: deadlines up to here are withheld. It may be changed between two items, and counts for the
            keys that are read from then on: an open batch keeps the deadlines that it has.
        noted_until_ms: deadlines up to here are noted. It may be changed likewise.
        keys_read: the number of keys so far, wanted or not.

    Raises:
        CannotBeCut: while it iterates; no commands can make a value, or not at its target.
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
    # The open batch of each copy that has keys.
    cdef list _open
    # Writes values as commands; None where they go as payloads.
    cdef ValueCommands _commands
    cdef object _words
    cdef bint _fields_expire
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
        words: object = None,
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
        self._most_room = self._most_bytes + max(self._big_bytes, _PIECE_BYTES) + 2 * BESIDE
        self._open = [None] * COPIES
        self._ready = []
        self._words = words
        self._fields_expire = words is None or words.abilities.field_deadlines
        if words is not None:
            self._commands = ValueCommands(self._records.input, words.target, PIECE_ELEMENTS, PIECE_BYTES)
        self._view = memoryview(wanted)
        self._wanted = <const uint8_t*>PyByteArray_AS_STRING(wanted)

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
                if records.metadata:
                    raise UnsupportedRdb(
                        records.input.name, records.start,
                        f"key '{readable(records.key[:records.key_length])}' of database {records.database} has data of "
                        "modules beside its value, which RESTORE does not take",
                    )
                if self._open[copy] is None:
                    looks = self._commands is not None
                    self._open[copy] = OpenBatch(copy, looks, self._most_bytes, self._most_room)
                if self._commands is None:
                    self.take(copy)
                else:
                    self.take_as_commands(copy)
            else:
                records.skip()
        return 0

    cdef int take(self, int copy) except -1:
        """Add the key that was found to the open batch of its copy, with its payload."""
        cdef Records records = self._records
        cdef OpenBatch batch = <OpenBatch>self._open[copy]
        cdef Output* out = &batch.out
        cdef size_t before = out.size
        cdef size_t length = records.key_length
        cdef size_t at, size
        cdef uint64_t work
        cdef bint expires = records.deadline != _NONE
        cdef bint of_use = records.idle >= 0 or records.frequency >= 0
        cdef bint fields_expire = self.fields_expire()
        cdef const uint8_t* content
        batch.room(length + BESIDE)
        put(out, b"*", 4 + expires + 2 * of_use)
        put_text(out, b"$7\r\nRESTORE\r\n", 13)
        put(out, b"$", length)
        at = out.size
        put_text(out, <const char*>records.key, length)
        put_text(out, b"\r\n", 2)
        put_number(out, self.deadline() if expires else 0)
        # The name is not valid any more once the value is read.
        content = NULL
        if not fields_expire:
            content = records.value(self._big_bytes, self._big_work, &size, &work)
        if content == NULL:
            self.big_key(copy, out.data[at:at + length], before, 0, fields_expire)
            return 0
        batch.room(size + BESIDE)
        put(out, b"$", 1 + size + FOOT)
        out.data[out.size] = <uint8_t>records.code
        memcpy(out.data + out.size + 1, content, size)
        records.seal(out.data + out.size, 1 + size)
        out.size += 1 + size + FOOT
        put_text(out, b"\r\n", 2)
        if expires:
            put_text(out, b"$6\r\nABSTTL\r\n", 12)
        # Of both, RESTORE takes one.
        if records.idle >= 0:
            put_text(out, b"$8\r\nIDLETIME\r\n", 14)
            put_number(out, records.idle)
        elif of_use:
            put_text(out, b"$4\r\nFREQ\r\n", 10)
            put_number(out, records.frequency)
        work += COMMAND_WORK
        if not batch.has_room(work, self.most_work):
            at -= before
            self.close(copy, before, 0)
        batch.add(1, work)
        if self.has_to_be_named():
            self.note(batch, out.data[at:at + length])
        if batch.is_full(self.most_keys):
            self.close(copy, out.size, 0)
        return 0

    cdef int take_as_commands(self, int copy) except -1:
        """Add the key that was found to the open batch of its copy, with commands that make its value."""
        cdef Records records = self._records
        cdef OpenBatch batch = <OpenBatch>self._open[copy]
        cdef Output* out = &batch.out
        cdef size_t before = out.size
        cdef size_t names_before = batch.names.size
        cdef int type = type_of(records.code, records.valkey)
        cdef bint fields_expire = self.fields_expire()
        cdef const uint8_t* key
        cdef size_t length
        cdef uint64_t commands = 0
        cdef uint64_t added = 0
        cdef uint64_t work, packed
        if type == MODULE:
            name = records.key[:records.key_length]
            require_type(module_name(records.module()), records.database, name, self._words.target)
        # The name is not valid any more once the value is read.
        batch.room_for_name(records.key_length + AROUND)
        put_string(&batch.names, records.key, records.key_length)
        key = batch.names.data + names_before
        length = batch.names.size - names_before
        if not fields_expire:
            commands = self.write_value(batch, type, key, length, &added)
        if not commands:
            self.big_key(copy, name_of(key, length), before, names_before, fields_expire)
            return 0
        if records.deadline != _NONE:
            commands += 1
            batch.room(length + BESIDE)
            put_text(out, b"*3\r\n$9\r\nPEXPIREAT\r\n", 19)
            put_text(out, <const char*>key, length)
            put_number(out, self.deadline())
        work = COMMAND_WORK * commands + ELEMENT_WORK * added + (out.size - before) // WORK_BYTES
        if type == ZSET:
            packed = min(added, <uint64_t>PACKED)
            work += packed * packed // PACKED_A_WORK
        name = name_of(key, length) if self.has_to_be_named() else None
        if not batch.has_room(work, self.most_work):
            self.close(copy, before, names_before)
        batch.add(commands, work)
        if name is not None:
            self.note(batch, name)
        if batch.is_full(self.most_keys):
            self.close(copy, out.size, batch.names.size)
        return 0

    cdef uint64_t write_value(
        self, OpenBatch batch, int type, const uint8_t* key, size_t length, uint64_t* added
    ) except? 0:
        """Write commands that make the value of the key that was found, if that is one piece. Gives how many there are,
        and how many elements they add; none if the value is larger, and still to be read."""
        cdef Records records = self._records
        cdef ValueCommands commands = self._commands
        cdef size_t before = batch.out.size
        cdef size_t size
        cdef uint64_t behind, number
        if not records.fits(self._big_bytes, self._big_work, &size):
            return 0
        behind = records.input.offset() + size
        if type == STREAM:
            number = self.write_stream(batch, name_of(key, length), added)
        elif type == STRING:
            number = commands.write_string(&batch.out, key, length)
            added[0] = 1
        else:
            commands.begin(records.code, records.valkey)
            number = commands.write(&batch.out, key, length) and not commands.left_over()
            added[0] = commands.elements
        if not number:
            batch.out.size = before
            records.input.go_back()
            return 0
        records.input.let_go()
        if records.input.offset() != behind:
            raise records.input.corrupt("a value ends elsewhere than its parts say")
        return number

    cdef uint64_t write_stream(self, OpenBatch batch, bytes name, uint64_t* added) except? 0:
        """The same of a stream. These are rare, and much has to be known of them, so it is done in Python."""
        cdef Records records = self._records
        cdef bytes packed
        held = list(elements(records.input, records.code, records.valkey))
        piece = small_stream(held, name, self._words.abilities)
        if piece is None:
            return 0
        packed = b"".join(piece.commands)
        batch.room(len(packed))
        put_text(&batch.out, packed, len(packed))
        added[0] = piece.elements
        return len(piece.commands)

    cdef bint fields_expire(self) noexcept:
        """Whether the value of the key that was found is a hash whose fields may have deadlines, which the target has,
        too."""
        cdef int code = self._records.code
        # Valkey may use the same numbers for what is not known here.
        return (
            self._fields_expire
            and FIRST_EXPIRING <= code <= LAST_EXPIRING
            and type_of(code, self._records.valkey) == HASH
        )

    cdef bint is_withheld(self) noexcept:
        """Whether the deadline of the key that was found, which has one, is withheld."""
        return self._records.deadline <= self.withheld_until_ms or self._records.deadline <= 0

    cdef int64_t deadline(self) noexcept:
        """The one that the key that was found gets, which has one."""
        return self._placeholder_ms if self.is_withheld() else self._records.deadline

    cdef bint has_to_be_named(self) noexcept:
        """Whether the deadline of the key that was found is withheld or noted."""
        cdef int64_t deadline = self._records.deadline
        return deadline != _NONE and (self.is_withheld() or deadline <= self.noted_until_ms)

    cdef int note(self, OpenBatch batch, bytes name) except -1:
        if self.is_withheld():
            return batch.withhold(name)
        return batch.note(self._records.deadline, name)

    cdef int big_key(self, int copy, bytes name, size_t before, size_t names_before, bint fields_expire) except -1:
        """The key that was found has a value that is still to be read; ``before`` is where its command begins, and
        ``names_before`` its name."""
        cdef Records records = self._records
        cdef OpenBatch batch = <OpenBatch>self._open[copy]
        cdef int type = type_of(records.code, records.valkey)
        batch.out.size = before
        batch.names.size = names_before
        self.close(copy, before, names_before)
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
            if self._open[copy] is not None:
                self.close(copy, (<OpenBatch>self._open[copy]).out.size, (<OpenBatch>self._open[copy]).names.size)
        return 0

    cdef int close(self, int copy, size_t size, size_t names) except -1:
        """Make the first ``size`` bytes of a copy's open batch ready, and so many bytes of names: see
        :meth:`OpenBatch.close`."""
        batch = (<OpenBatch>self._open[copy]).close(self._database, size, names)
        if batch is not None:
            self._ready.append(batch)
        return 0
