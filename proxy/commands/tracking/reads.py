"""What a request reads that plain Python decides on, for a session that tracks.

As in Redis these are the keys of commands that only read. A script or a function counts for all keys that it names,
because the proxy does not see which of them it reads.
"""

from collections.abc import Sequence

from proxy.engine.tracking import Tracker
from slots import commands
from slots.commands import Code, Command, KeysError

RUNS = frozenset({Code.TEXT, Code.DIGEST, Code.FUNCTION})
"""Commands with a script or a function that reads."""


def note(tracker: Tracker, command: Command, argv: Sequence[bytes], is_queued: bool) -> None:
    """The request at the front is about to be carried out, or to be queued for EXEC."""
    match command.name:
        case "MULTI":
            tracker.open()
        case "EXEC":
            tracker.run()
        case "DISCARD":
            tracker.discard()
        case _:
            keys = _read_by(command, argv)
            if keys and is_queued:
                tracker.queue(keys)
            elif keys:
                tracker.read(keys)


def note_keys(tracker: Tracker, command: Command, keys: list[bytes]) -> None:
    """The request at the front, which was noted without keys because only a server could tell them, has these."""
    if _reads(command):
        tracker.read(keys)


def _reads(command: Command) -> bool:
    return "readonly" in command.flags or command.code in RUNS


def _read_by(command: Command, argv: Sequence[bytes]) -> list[bytes]:
    if not _reads(command):
        return []
    try:
        return commands.keys_of(command, argv)
    except KeysError:
        # It will be refused, or a server will be asked for its keys.
        return []
