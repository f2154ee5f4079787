"""The command ``slotferry``, and the same as ``python -m slotferry``.

Ctrl-C ends it quietly from its first moment, also while its modules are read, which takes longer than a slip. SIGHUP
ends no process that serves, from the same moment on.
"""

import os
import signal
import sys
from types import FrameType

from slots.hangups import early_hangups

INTERRUPTED = 130
"""The status of a command that Ctrl-C ended."""


def main() -> None:
    """Entry point of the command."""
    # A shell has what it starts in the background ignore SIGINT; that stays.
    by_keyboard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if by_keyboard:
        # No exception: a module that is read may take any that it meets for its own.
        signal.signal(signal.SIGINT, _end)
    early_hangups.expect()
    from slotferry import main as command

    if by_keyboard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
