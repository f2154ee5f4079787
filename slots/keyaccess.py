"""What a command does with the values of its keys, as Redis's ACL counts it: whether it reads them, writes them, or
neither.

The command table's column ``access`` says it for each key in the order of :func:`slots.commands.key_positions`,
separated by commas; the last entry holds for all further keys. An entry is ``r``, ``w``, ``rw`` or ``-``. ``-`` is a
command that looks only at whether a key is there, or at its form: a user needs some right to the key, and any will do.
Of SET and BITFIELD, the arguments decide.
"""

from collections.abc import Sequence

from slots.commands import Command

NEITHER, READS, WRITES = 0, 1, 2
_NEEDS = {"-": NEITHER, "r": READS, "w": WRITES, "rw": READS | WRITES}
_MOST = {"set": "rw", "bitfield": "rw"}
_ARGUMENTS = {b"GET": 2, b"OVERFLOW": 1}
"""The arguments of those operations of BITFIELD that change nothing."""


def needs(command: Command, argv: Sequence[bytes], count: int) -> list[int]:
    """What a request does with each of its ``count`` keys: READS, WRITES, both or NEITHER."""
    if command.access == "set":
        entries = ["rw" if any(word.upper() == b"GET" for word in argv[3:]) else "w"]
    elif command.access == "bitfield":
        entries = ["r" if _only_gets(argv) else "rw"]
    else:
        entries = command.access.split(",")
    return [_NEEDS[entries[min(index, len(entries) - 1)]] for index in range(count)]


def most(command: Command) -> int:
    """All that some request of a command does with some key."""
    found = NEITHER
    for entry in _MOST.get(command.access, command.access).split(","):
        found |= _NEEDS[entry]
    return found


def _only_gets(argv: Sequence[bytes]) -> bool:
    place = 2
    while place < len(argv):
        arguments = _ARGUMENTS.get(argv[place].upper())
        if arguments is None or place + arguments >= len(argv):
            return False
        place += 1 + arguments
    return True
