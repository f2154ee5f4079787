"""Which commands a script calls, for users who may not run every script.

A script runs at the server with the rights of the proxy. So a user with limited rights may run it only if its text
shows that it touches no other keys than it is given, and which commands it calls
(:mod:`proxy.commands.scripting.luakeys`). The keys that it is given are looked at like those of other commands.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from proxy.commands.scripting.knownscripts import digest
from proxy.commands.scripting.luakeys import commands_called
from slots.commands import Code, Command

NO_SCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
NOT_SHOWN = (
    b"-NOPERM this user may only run scripts whose text shows which commands they call, and that these use no other "
    b"keys than those in KEYS\r\n"
)
MOST_ANSWERS = 10_000
"""The most scripts of which it is remembered what they call."""


class ScriptCalls:
    """One worker's knowledge of what scripts call.

    Args:
        body: gives the text of a script by its SHA1; None if the worker does not remember it.
    """

    def __init__(self, body: Callable[[bytes], bytes | None]) -> None:
        self._body = body
        self._answers: OrderedDict[bytes, frozenset[str] | None] = OrderedDict()

    def calls(self, command: Command, argv: Sequence[bytes]) -> frozenset[str] | bytes:
        """The commands that the script of a request calls, as the table names them; or the error."""
        if command.code is Code.TEXT:
            script: bytes | None = argv[1]
            name = digest(argv[1])
        else:
            name = argv[1].lower()
            script = self._body(name)
        if script is None:
            # A script that only the servers know cannot be looked at. The client then gives its text.
            return NO_SCRIPT
        if name not in self._answers:
            self._answers[name] = commands_called(script)
            if len(self._answers) > MOST_ANSWERS:
                # bounded
                self._answers.popitem(last=False)
        found = self._answers[name]
        return NOT_SHOWN if found is None else found
