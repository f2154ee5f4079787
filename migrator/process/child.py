"""A migrator that topom starts itself, on its own machine: ``python -m migrator.process.child``.

topom writes the settings to its standard input, as one line of JSON: so secrets stand neither among the arguments nor
in the environment of the process. Settings that hold later come as further lines. topom holds that pipe open. Its end
says that topom has ended, in whatever way, and the migrator ends as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from functools import partial

from migrator.process.process import run
from migrator.process.settings import MigratorSettings
from slots.reloading import Reloading
from slots.settings import SettingsError

MOST_BYTES = 64 * 1024
"""Of the line."""


async def follow(reloading: Reloading[MigratorSettings]) -> None:
    """Use the settings that topom tells. Return once the pipe has ended."""
    reader = asyncio.StreamReader(MOST_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        with suppress(SettingsError):  # the log says why
            reloading.take(partial(_read, line))


def _read(line: bytes) -> MigratorSettings:
    try:
        return MigratorSettings.checked(json.loads(line))
    except ValueError as error:  # SettingsError is one, too
        raise SettingsError(f"topom's settings for its migrator cannot be used: {error}") from error


def main() -> int:
    """Run the child; gives its exit status."""
    with os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as pipe:
        line = pipe.readline(MOST_BYTES)
    try:
        settings = _read(line)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    return run(settings, follow)


if __name__ == "__main__":
    sys.exit(main())
