"""A migrator that topom starts itself, on its own machine: ``python -m migrator.process.child``.

topom writes the settings to its standard input, as one line of JSON: so secrets stand neither among the arguments nor
in the environment of the process. Then topom holds that pipe open. Its end says that topom has ended, in whatever way,
and the migrator ends as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from migrator.process.process import run
from migrator.process.settings import MigratorSettings
from slots.hangups import ignore_hangups
from slots.settings import SettingsError

MOST_BYTES = 64 * 1024
"""Of the line."""


async def orphaned() -> None:
    """Return once the pipe has ended."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while await reader.read(MOST_BYTES):
        pass


def main() -> int:
    """Run the child; gives its exit status."""
    ignore_hangups()
    with os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as pipe:
        line = pipe.readline(MOST_BYTES)
    try:
        settings = MigratorSettings.checked(json.loads(line))
    except (SettingsError, ValueError) as error:
        print(f"topom's settings for its migrator cannot be used: {error}", file=sys.stderr)
        return 1
    return run(settings, orphaned)


if __name__ == "__main__":
    sys.exit(main())
