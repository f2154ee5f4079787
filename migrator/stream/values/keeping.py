"""Elements that can be read once, kept in a file so that they can be read again.

**bounded**: up to :data:`MOST_IN_MEMORY` they stay in memory. The file has a limit, no name, and only this process can
read it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Self

from migrator.errors import CannotBeCut
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
        OSError: the file cannot be written.
    """

    def __init__(self, elements: Iterator[Element], folder: Path, most_bytes: int) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(MOST_IN_MEMORY, dir=str(folder))  # noqa: SIM115  # closed by __exit__
        self._number = 0
        try:
            for element in elements:
                pickle.dump(element, self._file, pickle.HIGHEST_PROTOCOL)
                self._number += 1
                if self._file.tell() > most_bytes:
                    raise CannotBeCut(
                        f"a value takes more than {most_bytes} bytes on disk", "move its slot in another way"
                    )
        except BaseException:
            self._file.close()
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
        self._file.close()
