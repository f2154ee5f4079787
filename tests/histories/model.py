"""What each command does to one key when nothing happens at the same time, expiry included.

A partition's state is a value and an expiry for each of its keys. An expiry is a span of time: the server starts
a key's lifetime somewhere between the sending of the command and its reply, so the key may be gone from the
earliest moment on, and has to be gone after the latest and some slack. In between both are right, so a step has
several possible outcomes. A key that moves keeps its deadline, however long it is on its way.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product

from tests.histories.operations import Call, Operation, Reply

Value = None | bytes | tuple[bytes, ...] | frozenset[tuple[bytes, bytes]]
"""Nothing, a string, a list, or the fields of a hash with their values."""
Expiry = tuple[float, float] | None
"""The earliest and the latest moment of the end of a lifetime, in seconds of the run."""
State = tuple[tuple[Value, Expiry], ...]
"""Value and expiry of each key of a partition."""

EARLY_SECONDS = 0.05
"""How much too early a key may seem to expire: servers look at their clock once a turn."""
KEEP = -1
"""The lifetime if a command does not change a key's expiry; 0 removes the expiry, a higher number is milliseconds."""
OK = b"OK"

Effect = tuple[Value, Reply, int]
"""The new value, the reply, and the lifetime: :data:`KEEP`, 0, or milliseconds."""


def _text(value: Value) -> bytes:
    assert value is None or isinstance(value, bytes), value
    return value or b""


def _list(value: Value) -> tuple[bytes, ...]:
    assert value is None or isinstance(value, tuple), value
    return value or ()


def _fields(value: Value) -> dict[bytes, bytes]:
    assert value is None or isinstance(value, frozenset), value
    return dict(value or ())


def _set(value: Value, arguments: Sequence[bytes]) -> Effect:
    return arguments[0], OK, int(arguments[2]) if len(arguments) > 1 else 0


def _setnx(value: Value, arguments: Sequence[bytes]) -> Effect:
    return (arguments[0], 1, 0) if value is None else (value, 0, KEEP)


def _get(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, value, KEEP


def _getdel(value: Value, arguments: Sequence[bytes]) -> Effect:
    return None, value, 0


def _append(value: Value, arguments: Sequence[bytes]) -> Effect:
    longer = _text(value) + arguments[0]
    return longer, len(longer), KEEP


def _incr(value: Value, arguments: Sequence[bytes]) -> Effect:
    more = int(_text(value) or 0) + 1
    return b"%d" % more, more, KEEP


def _delete(value: Value, arguments: Sequence[bytes]) -> Effect:
    return None, int(value is not None), 0


def _flush(value: Value, arguments: Sequence[bytes]) -> Effect:
    return None, OK, 0


def _exists(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, int(value is not None), KEEP


def _pexpire(value: Value, arguments: Sequence[bytes]) -> Effect:
    return (None, 0, KEEP) if value is None else (value, 1, int(arguments[0]))


def _persist(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, int(value is not None), 0


def _rpush(value: Value, arguments: Sequence[bytes]) -> Effect:
    longer = (*_list(value), *arguments)
    return longer, len(longer), KEEP


def _lpop(value: Value, arguments: Sequence[bytes]) -> Effect:
    elements = _list(value)
    return (elements[1:] or None, elements[0], KEEP) if elements else (None, None, KEEP)


def _llen(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, len(_list(value)), KEEP


def _lrange(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, list(_list(value)), KEEP


def _hincrby(value: Value, arguments: Sequence[bytes]) -> Effect:
    fields = _fields(value)
    more = int(fields.get(arguments[0], 0)) + int(arguments[1])
    fields[arguments[0]] = b"%d" % more
    return frozenset(fields.items()), more, KEEP


def _hget(value: Value, arguments: Sequence[bytes]) -> Effect:
    return value, _fields(value).get(arguments[0]), KEEP


COMMANDS: dict[str, Callable[[Value, Sequence[bytes]], Effect]] = {
    "SET": _set,
    "SETNX": _setnx,
    "GET": _get,
    "GETDEL": _getdel,
    "APPEND": _append,
    "INCR": _incr,
    "DEL": _delete,
    "FLUSHDB": _flush,
    "EXISTS": _exists,
    "PEXPIRE": _pexpire,
    "PERSIST": _persist,
    "RPUSH": _rpush,
    "LPOP": _lpop,
    "LLEN": _llen,
    "LRANGE": _lrange,
    "HINCRBY": _hincrby,
    "HGET": _hget,
}
"""What each command makes of a key's value. LRANGE is taken to be of all elements, and PERSIST to be of a key that
has a lifetime."""


def nothing(keys: int) -> State:
    """The state of so many keys that are not there."""
    return ((None, None),) * keys


class Model:
    """Steps of a partition's state.

    Args:
        late_seconds: for how long after its latest end a key may still be there.
    """

    def __init__(self, late_seconds: float) -> None:
        self._late = late_seconds

    def step(self, state: State, operation: Operation) -> list[State]:
        """The states that an operation may leave behind; none if it cannot have been answered so."""
        starts = self._expired(state, operation)
        found: list[State] = []
        for start in starts:
            after = self._run(start, operation)
            if after is not None and after not in found:
                found.append(after)
        return found

    def _expired(self, state: State, operation: Operation) -> list[State]:
        """What the state may be when the operation runs: keys whose time may be over are there, gone, or either."""
        touched = {call.key for call in operation.calls}
        choices: list[list[tuple[Value, Expiry]]] = []
        for index, (value, expiry) in enumerate(state):
            if expiry is None or index not in touched:
                choices.append([(value, expiry)])
                continue
            here: list[tuple[Value, Expiry]] = []
            if operation.invoked <= expiry[1] + self._late:
                here.append((value, expiry))
            if operation.answered >= expiry[0] - EARLY_SECONDS:
                here.append((None, None))
            choices.append(here)
        return [*product(*choices)]

    def _run(self, state: State, operation: Operation) -> State | None:
        entries = list(state)
        replies = operation.replies
        for number, call in enumerate(operation.calls):
            value, expiry = entries[call.key]
            value, reply, lifetime = COMMANDS[call.name](value, call.arguments)
            if call.name == "PERSIST" and expiry is None:
                reply = 0
            if replies is not None and reply != replies[number]:
                return None
            if value is None or lifetime == 0:
                expiry = None
            elif lifetime > 0:
                expiry = (operation.invoked + lifetime / 1000, operation.answered + lifetime / 1000)
            entries[call.key] = (value, expiry)
        return tuple(entries)


def show(state: State) -> str:
    """A state for a human."""
    parts = []
    for index, (value, expiry) in enumerate(state):
        until = ""
        if expiry is not None:
            latest = f"{expiry[1]:.3f}" if expiry[1] < math.inf else "..."
            until = f" until {expiry[0]:.3f} - {latest}"
        parts.append(f"#{index} = {sorted(value) if isinstance(value, frozenset) else value!r}{until}")
    return ", ".join(parts)


def call(name: str, *arguments: str | bytes | int, key: int = 0) -> Call:
    """A call; its arguments have the form that is convenient to write."""
    return Call(name, key, tuple(it if isinstance(it, bytes) else str(it).encode() for it in arguments))
