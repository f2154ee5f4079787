"""Which slot each key of a product has. Everybody who needs the slot of a key asks here: the engine, the migrator, the
checks of copies, and the sizing, by whose figures is planned.

A slot function does not look at the database. Everybody names it all the same, so that what a product says about a
database has one place.
"""

from libc.stdint cimport uint8_t

from slots.functions cimport checked, find


cdef class KeySlots:
    """Which slot each key of a product has.

    Args:
        function: name of the product's slot function, see :mod:`slots.functions`.
        number_of_slots: a power of two up to 16384.

    Raises:
        ValueError: for an unknown function, or another number of slots.
    """

    def __init__(self, str function not None, number_of_slots):
        self.hash_key = find(function)
        self.function = function
        self.number_of_slots = checked(number_of_slots)

    def __reduce__(self):
        return KeySlots, (self.function, self.number_of_slots)

    def slot_of(self, int database, bytes key not None) -> int:
        """The slot of one key."""
        return self.of(database, key, len(key))

    def slots_of(self, int database, list keys not None) -> list[int]:
        """The slots of many keys of one database, in their order."""
        cdef bytes key
        found = []
        for key in keys:
            found.append(self.of(database, key, len(key)))
        return found

    def select(self, int database, list keys not None, bytes wanted not None) -> list[bytes]:
        """The keys whose slot is marked in ``wanted``, in their order. ``wanted`` has one byte a slot, not zero for a
        wanted slot.

        Raises:
            ValueError: ``wanted`` has not as many bytes as there are slots.
        """
        cdef const uint8_t* marks = wanted
        cdef bytes key
        if len(wanted) != self.number_of_slots:
            raise ValueError(f"{len(wanted)} slots are marked as wanted or not; there are {self.number_of_slots}")
        found = []
        for key in keys:
            if marks[self.of(database, key, len(key))]:
                found.append(key)
        return found
