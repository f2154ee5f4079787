"""How busy things are: of each row of a table, how many requests, errors, bytes and microseconds a second there
are.

What is counted goes into the counts of a *period*. :meth:`Rates.decay` ends the period: a rate is the mean over all
periods, of which a later one weighs more, by :data:`HALF_LIFE_SECONDS`. A row that begins late has its own mean, so it
does not begin as if it had been idle before. :meth:`Rates.turn` ends a *minute*, whose counts stay until the next one
ends.

All is in C arrays, 200 bytes a row.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport exp2, isfinite
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from slots.slotload cimport row_t

from slots.messages.load import ROW_BYTES

HALF_LIFE_SECONDS = 30.0
"""After which what was counted weighs half as much."""

cdef enum:
    COLUMNS = 6

cdef double HALF_LIFE = HALF_LIFE_SECONDS

cdef struct rates_t:
    double period[COLUMNS]
    double mean[COLUMNS]
    double minute[COLUMNS]
    double last[COLUMNS]
    double weight  # of all periods of the row, at most 1


cdef tuple six(double* values, double divisor):
    return (
        values[0] / divisor,
        values[1] / divisor,
        values[2] / divisor,
        values[3] / divisor,
        values[4] / divisor,
        values[5] / divisor,
    )


cdef class Rates:
    """Rows from 0, each with requests, errors, bytes of requests, bytes of replies, microseconds, and the number of
    requests that these are of.

    Args:
        rows: how many.
    """

    cdef rates_t* _rows
    cdef Py_ssize_t _number

    def __cinit__(self, Py_ssize_t rows):
        if rows < 1:
            raise ValueError(f"rates have at least one row, not {rows}")
        self._rows = <rates_t*> PyMem_Calloc(<size_t> rows, sizeof(rates_t))
        if self._rows == NULL:
            raise MemoryError
        self._number = rows

    def __dealloc__(self):
        PyMem_Free(self._rows)

    def __len__(self):
        return self._number

    def grow(self, Py_ssize_t rows) -> None:
        """Have so many rows, if that is more; those that come have nothing."""
        cdef rates_t* larger
        if rows <= self._number:
            return
        larger = <rates_t*> PyMem_Calloc(<size_t> rows, sizeof(rates_t))
        if larger == NULL:
            raise MemoryError
        memcpy(larger, self._rows, <size_t> self._number * sizeof(rates_t))
        PyMem_Free(self._rows)
        self._rows = larger
        self._number = rows

    def clear(self, Py_ssize_t row) -> None:
        """Let a row begin anew. Raises IndexError."""
        memset(self.at(row), 0, sizeof(rates_t))

    def add(
        self,
        Py_ssize_t row,
        double requests,
        double errors,
        double bytes_in,
        double bytes_out,
        double microseconds=0.0,
        double timed=0.0,
    ) -> None:
        """Add to the counts of this period. Raises IndexError."""
        cdef double[COLUMNS] values = [requests, errors, bytes_in, bytes_out, microseconds, timed]
        cdef double* period = self.at(row).period
        cdef int column
        for column in range(COLUMNS):
            period[column] += values[column]

    def add_told(self, bytes told not None, double most, double most_bytes, double share=1.0) -> None:
        """Add what a message tells of slots (:data:`slots.messages.load.SlotRows`); the slot is the row.

        Args:
            told: whole rows of :data:`~slots.messages.load.ROW_BYTES` each.
            most: requests, and errors, that all slots together may have.
            most_bytes: of requests, and of replies, that all slots together may have.
            share: how much of each count is added, from 0 to 1.

        Raises:
            ValueError: the length is not that of whole rows, or a slot is none of the product's. Nothing was added.
            OverflowError: they have more. Nothing was added.
        """
        cdef Py_ssize_t number = len(told) // <Py_ssize_t> sizeof(row_t)
        cdef Py_ssize_t index
        cdef const char* data = told
        cdef row_t row
        cdef double requests = 0, errors = 0, bytes_in = 0, bytes_out = 0
        cdef double* period
        if len(told) % <Py_ssize_t> sizeof(row_t):
            raise ValueError(f"{len(told)} bytes of counts by slot are not a whole number of rows of {ROW_BYTES} bytes")
        for index in range(number):
            memcpy(&row, data + index * <Py_ssize_t> sizeof(row_t), sizeof(row_t))
            if row.slot >= self._number:
                raise ValueError(f"counts are of slot {row.slot}; there are {self._number} slots")
            requests += row.requests
            errors += row.errors
            bytes_in += <double> row.bytes_in
            bytes_out += <double> row.bytes_out
        if requests > most or errors > most or bytes_in > most_bytes or bytes_out > most_bytes:
            raise OverflowError("slots have more than they can have had")
        for index in range(number):
            memcpy(&row, data + index * <Py_ssize_t> sizeof(row_t), sizeof(row_t))
            period = self._rows[row.slot].period
            period[0] += row.requests * share
            period[1] += row.errors * share
            period[2] += <double> row.bytes_in * share
            period[3] += <double> row.bytes_out * share

    def add_period_to(self, Rates sums not None, const int32_t[::1] rows) -> None:
        """Add this period's counts of each row to a row of ``sums``.

        Args:
            rows: for each row here, the one there; -1 for none.

        Raises:
            IndexError: ``rows`` is too short, or names a row that ``sums`` does not have.
        """
        cdef Py_ssize_t index
        cdef int column
        cdef int32_t to
        if rows.shape[0] < self._number:
            raise IndexError(f"{rows.shape[0]} rows are named; there are {self._number}")
        for index in range(self._number):
            to = rows[index]
            if to >= sums._number:
                raise IndexError(f"there is no row {to}")
            if to >= 0:
                for column in range(COLUMNS):
                    sums._rows[to].period[column] += self._rows[index].period[column]

    def decay(self, double seconds) -> None:
        """End the period, which lasted so long, and begin another. Raises ValueError for no time."""
        cdef double kept
        cdef Py_ssize_t index
        cdef int column
        cdef rates_t* row
        if not (seconds > 0 and isfinite(seconds)):
            raise ValueError(f"a period does not last {seconds} seconds")
        kept = exp2(-seconds / HALF_LIFE)
        for index in range(self._number):
            row = &self._rows[index]
            row.weight = row.weight * kept + (1 - kept)
            for column in range(COLUMNS):
                row.mean[column] = row.mean[column] * kept + (1 - kept) * row.period[column] / seconds
                row.minute[column] += row.period[column]
                row.period[column] = 0

    def turn(self) -> None:
        """End the minute, and begin another."""
        cdef Py_ssize_t index
        cdef rates_t* row
        for index in range(self._number):
            row = &self._rows[index]
            memcpy(row.last, row.minute, sizeof(row.last))
            memset(row.minute, 0, sizeof(row.minute))

    def rates(self, Py_ssize_t row) -> tuple[float, float, float, float, float, float]:
        """Of one row, a second. Raises IndexError."""
        cdef rates_t* found = self.at(row)
        return six(found.mean, found.weight if found.weight > 0 else 1.0)

    def minute(self, Py_ssize_t row) -> tuple[float, float, float, float, float, float]:
        """The counts of one row in the minute that ended last. Raises IndexError."""
        return six(self.at(row).last, 1.0)

    cdef rates_t* at(self, Py_ssize_t row) except NULL:
        if not 0 <= row < self._number:
            raise IndexError(f"there is no row {row}; there are {self._number}")
        return &self._rows[row]
