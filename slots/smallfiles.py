"""Reads a small file that an operator has written, such as settings or a token.

**bounded**: only a regular file is read, so that nobody waits for the writer of a pipe, and only
:data:`MOST_BYTES` of it.
"""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 1024 * 1024
"""The largest file that is read."""


def read_small(path: Path) -> bytes:
    """What is in a file. Raises :class:`OSError`, whose ``strerror`` says why it cannot be read."""
    # A pipe is opened without waiting for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES} bytes")
    return content
