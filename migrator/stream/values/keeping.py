"""Elements that can be read once, kept in a file so that they can be read again.

**bounded**: up to :data:`MOST_IN_MEMORY` they stay in memory. The file has a limit, no name, and only this process can
read it. It leaves as much of its disk to others as a spool does (:mod:`migrator.stream.space`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Self

from migrator.errors import CannotBeCut
from migrator.stream.freeing import free, prepare
from migrator.stream.space import LOOK_BYTES, disk_full, require_on_disk
from rdb.elements import Element

MOST_IN_MEMORY = 1 << 20
"""Bytes."""


class Kept:
    """The elements of one value. Calling it gives them from the first one on, as often as wanted.

    Use it in a ``with`` block, which ends with the file.

    Args:
        elements: are read to their end at once.
        folder: where the file is.
        most_bytes: of the file, which has somewhat more than the value.

    Raises:
        CannotBeCut: the file gets too large.
        SpoolFull: its disk does.
        OSError: the file cannot be written.
    """

    def __init__(self, elements: Iterator[Element], folder: Path, most_bytes: int) -> None:
        prepare()
        self._file: IO[bytes] = SpooledTemporaryFile(MOST_IN_MEMORY, dir=str(folder))  # noqa: SIM115  # closed by __exit__
        self._number = 0
        looked = 0
        try:
            for element in elements:
                pickle.dump(element, self._file, pickle.HIGHEST_PROTOCOL)
                self._number += 1
                if (size := self._file.tell()) > most_bytes:
                    raise CannotBeCut(
                        f"a value takes more than {most_bytes} bytes on disk", "move its slot in another way"
                    )
                if size > looked + LOOK_BYTES:
                    looked = size
                    require_on_disk(folder, 0)
            self._file.flush()
        except BaseException as error:
            with suppress(OSError):  # it writes what it still has
                self._file.close()
            if isinstance(error, OSError) and (full := disk_full(folder, error)) is not None:
                raise full from error
            raise

    def __call__(self) -> Iterator[Element]:
        """All elements. Those of a call before cannot be read on."""
        self._file.seek(0)
        for _ in range(self._number):
            yield pickle.load(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        free(self._file.close)
