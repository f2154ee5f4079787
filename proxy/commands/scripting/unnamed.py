"""Requests that may touch keys that they do not name: SORT by patterns, scripts, functions.

At rest they are served like any other, by the server that owns the slot. While the slot moves, **absent-first**
requires each key that a command touches at the target to be absent from the source, and only named keys are looked for.
So such a request waits until the slot has moved, as one for a locked slot does (:mod:`proxy.worker.holding`). If that
takes too long, it is answered with TRYAGAIN, and nothing is run. A script whose text shows that it only touches the
keys it is given (:mod:`proxy.commands.scripting.luakeys`) always runs. A script without keys needs the same proof while
any slot moves, for it is not known which keys it may touch.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from proxy.commands.scripting.luakeys import keeps_to_keys
from proxy.engine.backend import command
from proxy.engine.outcomes import Unit, clear, settled
from proxy.engine.router import MIGRATING, Router

SORT_REFUSED = (
    b"-TRYAGAIN the patterns of SORT name keys that cannot be looked for while their slot moves to another server; "
    b"nothing was run\r\n"
)
SCRIPT_REFUSED = (
    b"-TRYAGAIN the script may touch other keys than it is given, or another database, which cannot be looked for "
    b"while their slot moves to another server; nothing was run\r\n"
)
FUNCTION_REFUSED = (
    b"-TRYAGAIN a function may touch other keys than it is given, which cannot be looked for while their slot moves to "
    b"another server; nothing was run\r\n"
)
WAITED_FOR = frozenset((SORT_REFUSED, SCRIPT_REFUSED, FUNCTION_REFUSED))
"""Refusals that end when the slot has moved."""
MOST_ANSWERS = 10_000
"""The most scripts whose proof is remembered."""


class KeepingToKeys:
    """One worker's proofs about the texts of scripts."""

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, bool] = OrderedDict()

    def refusal(self, name: bytes, script: bytes) -> bytes | None:
        """Why a script cannot be run while its slot moves; None if it can. ``name`` is its SHA1."""
        answer = self._answers.get(name)
        if answer is None:
            answer = self._answers[name] = keeps_to_keys(script)
            if len(self._answers) > MOST_ANSWERS:
                # bounded
                self._answers.popitem(last=False)
        return None if answer else SCRIPT_REFUSED


def moves(router: Router, database: int, keys: Sequence[bytes]) -> bool:
    """Whether the slot of ``keys`` moves; without keys, whether any slot does. Keys of several slots are refused
    elsewhere."""
    if not keys:
        return router.mover.migrating
    slots = {router.slot_of_key(database, key) for key in keys}
    return len(slots) == 1 and router.route(slots.pop())[0] == MIGRATING


async def run(argv: list[bytes], keys: Sequence[bytes], refused: Callable[[], bytes | None]) -> Unit:
    """Send a request unchanged, once nothing refuses it."""
    while True:
        await settled(refused)
        slot, address = await clear(keys)
        # absent-first: it may have begun to move again while the keys were waited for.
        if refused() is None:
            return Unit(slot, address, command(tuple(argv)))
