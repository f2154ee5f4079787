"""libFuzzer's own loop around :func:`tests.fuzz.targets.check`: it keeps the inputs that reach new code."""

import sys
import traceback

from libc.stdint cimport uint8_t
from libc.stdlib cimport abort, malloc

from tests.fuzz.targets import check

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*user)(const uint8_t *data, size_t size));
    """
    int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*user)(const uint8_t* data, size_t size) noexcept)


cdef int run_one(const uint8_t* data, size_t size) noexcept:
    if size == 0:
        return 0
    try:
        check(<const uint8_t[:size]> data)
    except BaseException:
        # It writes the input to a file and ends the process.
        traceback.print_exc()
        sys.stderr.flush()
        abort()
    return 0


def run(list arguments):
    """Runs libFuzzer with these arguments; it ends the process."""
    cdef int count = len(arguments) + 1
    cdef list kept = [b"fuzz", *(argument.encode() for argument in arguments)]
    cdef char** argv = <char**> malloc((count + 1) * sizeof(char*))
    cdef int index
    for index in range(count):
        argv[index] = kept[index]
    argv[count] = NULL
    status = LLVMFuzzerRunDriver(&count, &argv, run_one)
    return status
