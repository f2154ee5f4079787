"""Slotferry's own Lua scripts, which run at Redis servers: the files of ``slots/lua``, each under its name.

One file is one script. The comment at its head says what it is given and gives, and why it has to be one step. The rule
by which scripts share what they need: a line ``-- use: name, NAME`` is replaced by what it names, once a script.

- A name in lower case is a file of ``slots/lua/shared``. It may use others itself.
- A name in upper case is a constant. It becomes a local variable of that name.

Lines that are comments are not sent. The scripts run at every server that is supported, also those without Redis
functions (docs/old-servers.md).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slots.reserved import ASIDE, CLAIM_FIELD, FLUSH_FIELD, HIDDEN, IN_PIECES, PIECE, POSITION, RESERVED, WANTED

NOT_PERMITTED = "NOTPERMITTED"
"""The prefix of a script's refusal when the permit does not hold."""
CLAIMED = "CLAIMED"
"""The prefix of a script's refusal when a key is on its way."""
COPIED = "COPIED"
"""The prefix of a script's refusal when the target has a copy of a key that is at the source."""
LENGTH_COMMANDS = {
    "string": "STRLEN",
    "list": "LLEN",
    "set": "SCARD",
    "zset": "ZCARD",
    "hash": "HLEN",
    "stream": "XLEN",
}
"""For each type of Redis's own, the command that counts a key's elements, or the bytes of a string."""

Constant = str | bytes | Sequence[str] | Mapping[str, str]

_CONSTANTS: dict[str, Constant] = {
    "ASIDE": ASIDE,
    "CLAIMED": CLAIMED,
    "CLAIM_FIELD": CLAIM_FIELD,
    "COPIED": COPIED,
    "FLUSH_FIELD": FLUSH_FIELD,
    "HIDDEN": HIDDEN,
    "IN_PIECES": IN_PIECES,
    "LENGTH_COMMANDS": LENGTH_COMMANDS,
    "PIECE": PIECE,
    "POSITION": POSITION,
    "RESERVED": RESERVED,
    "NOT_PERMITTED": NOT_PERMITTED,
    "WANTED": WANTED,
}
FOLDER = Path(__file__).parent / "lua"
SHARED = FOLDER / "shared"
_USE = re.compile(r"-- use: (.+)")


class Script:
    """A script, with the digest by which EVALSHA names it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode()).hexdigest()


def load(name: str, **constants: Constant) -> Script:
    """The script of the file ``name``; ``constants`` are those that only it uses, and its caller."""
    return Script("".join(f"{line}\n" for line in _lines(FOLDER / f"{name}.lua", _CONSTANTS | constants, set())))


def _lines(file: Path, constants: Mapping[str, Constant], used: set[str]) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if use := _USE.fullmatch(line):
            for name in use[1].split(", "):
                if name in used:
                    continue
                used.add(name)
                if name.isupper():
                    yield f"local {name} = {_in_lua(constants[name])}"
                else:
                    yield from _lines(SHARED / f"{name}.lua", constants, used)
        elif (code := line.strip()) and not code.startswith("--"):
            yield line


def _in_lua(constant: Constant) -> str:
    if isinstance(constant, str | bytes):
        some = constant.encode() if isinstance(constant, str) else constant
        return "'" + re.sub(rb"[^\w: ]", lambda odd: b"\\%03d" % odd[0][0], some).decode() + "'"
    if isinstance(constant, Mapping):
        return "{" + ", ".join(f"[{_in_lua(name)}] = {_in_lua(value)}" for name, value in constant.items()) + "}"
    return "{" + ", ".join(map(_in_lua, constant)) + "}"
