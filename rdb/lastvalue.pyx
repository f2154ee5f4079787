"""The value of a file's last key, if it was not read together with the key: somebody takes it apart, or it is passed
over before the next key is looked for."""

from rdb.elements cimport elements
from rdb.records cimport Records


cdef class LastValue:
    """Set ``unread`` after a key whose value is still to be read; call :meth:`pass_over` before the next key."""

    def __init__(self, Records records not None) -> None:
        self._records = records

    cdef int pass_over(self) except -1:
        """Read the value to its end, as far as nobody has read it."""
        if self.unread:
            self.unread = False
            self._records.skip()
        elif self._elements is not None:
            # Somebody may have read some of them.
            for _ in self._elements:
                pass
            if self._elements is not None:
                raise self._records.input.corrupt("the value that ends here was not read to its end")
        return 0

    cdef object elements(self):
        """Iterates over the value's elements: those of :mod:`rdb.elements`. It can be done once, before the next key is
        looked for.

        Raises:
            ValueError: the value has been read, or its elements are being read already.
            UnsupportedRdb: the value is a module's.
            RdbError: while it iterates.
        """
        if not self.unread:
            raise ValueError("the value of this key has been read")
        self._elements = self._to_the_end(elements(self._records.input, self._records.code, self._records.valkey))
        self.unread = False
        # What cannot be closed is read on when the next key is asked for.
        return iter(self._elements.__next__, None)

    def _to_the_end(self, found):
        yield from found
        self._elements = None
