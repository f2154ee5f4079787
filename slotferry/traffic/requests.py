"""Requests that know their right replies.

A read knows the versions that its key may have: from the one acknowledged when the read was sent, to the one sent when
its reply came. A write knows its exact reply. Each request checks its reply once. If an error comes instead of a reply,
the session counts it and calls the request's :meth:`failed`.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from slotferry.traffic.content import Argument, ReadCall, Text, WriteCall, name_of
from slotferry.traffic.keys import Keys

_SHOWN = 160


class Difference(Exception):
    """A reply is not the last written value."""

    def __init__(self, key: bytes, command: bytes, expected: Any, reply: Any) -> None:
        """``expected`` is one right reply; long ones are cut in the text."""
        super().__init__(
            f"{command.decode()} {key.decode()}: expected {_short(expected)}, the reply was {_short(reply)}"
        )
        self.key = key


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _tidied(tidy: Callable[[Any], Any] | None, reply: Any) -> Any:
    """A reply to compare. One of another command's form stays as it is, and so differs."""
    try:
        return reply if tidy is None else tidy(reply)
    except (TypeError, ValueError):
        return reply


class Request(Protocol):
    """One command in flight."""

    @property
    def arguments(self) -> Sequence[Argument]:
        """The command's name and its arguments."""

    def check(self, reply: Any) -> None:
        """Look at the reply. Raises :class:`Difference`."""

    def failed(self) -> None:
        """There was an error, or no reply."""


class Write:
    """A write of one key."""

    __slots__ = ("_keys", "_reply", "_tidy", "arguments", "done", "index", "version")

    def __init__(self, keys: Keys, index: int) -> None:
        """The key has to be at rest."""
        self._keys = keys
        self.index = index
        self.version = keys.begin_write(index)
        self.done = False
        call: WriteCall = keys.kind_of(index).write(index, self.version)
        self.arguments, self._reply, self._tidy = call

    def check(self, reply: Any) -> None:
        self._keys.end_write(self.index)
        self.done = True
        if _tidied(self._tidy, reply) != self._reply:
            raise Difference(name_of(self.index), bytes(self.arguments[0]), self._reply, reply)

    def failed(self) -> None:
        self._keys.doubt(self.index, monotonic())


class Read:
    """A read of one key that may run beside a write of it."""

    __slots__ = ("_call", "_keys", "_lowest", "arguments", "index")

    def __init__(self, keys: Keys, index: int, call: ReadCall) -> None:
        self._keys = keys
        self._call = call
        self.index = index
        self.arguments = call.arguments
        self._lowest = keys.window(index)[0]

    def _match(self, reply: Any, lowest: int) -> int:
        """The version that the reply shows. Raises :class:`Difference`."""
        _, expected_of, tidy = self._call
        found = _tidied(tidy, reply)
        highest = self._keys.window(self.index)[1]
        for version in range(lowest, highest + 1):
            if expected_of(version) == found:
                return version
        raise Difference(name_of(self.index), bytes(self.arguments[0]), expected_of(highest), reply)

    def check(self, reply: Any) -> None:
        self._match(reply, self._lowest)

    def failed(self) -> None:
        """A read changes nothing."""


class ReadOwnWrite(Read):
    """A read that follows a write in the same pipeline, and so has to see it."""

    __slots__ = ("_write",)

    def __init__(self, keys: Keys, write: Write, call: ReadCall) -> None:
        super().__init__(keys, write.index, call)
        self._write = write

    def check(self, reply: Any) -> None:
        self._match(reply, self._write.version if self._write.done else self._lowest)


class Resolve(Read):
    """A read that ends the doubt about a key."""

    __slots__ = ()

    def check(self, reply: Any) -> None:
        try:
            version = self._match(reply, self._lowest)
        except Difference:
            self._keys.resolve(self.index, self._keys.window(self.index)[1])
            raise
        self._keys.resolve(self.index, version)

    def failed(self) -> None:
        self._keys.doubt(self.index, monotonic())


class ReadMany:
    """MGET of strings, which the proxy splits over slots."""

    def __init__(self, keys: Keys, indices: Sequence[int]) -> None:
        self._reads = [Read(keys, index, keys.kind_of(index).whole(index)) for index in indices]
        self.arguments: tuple[Argument, ...] = (b"MGET", *map(name_of, indices))

    def check(self, reply: Any) -> None:
        if not isinstance(reply, list) or len(reply) != len(self._reads):
            names = [read.arguments[1] for read in self._reads]
            raise Difference(bytes(names[0]), b"MGET", f"{len(names)} values of {names}", reply)
        for read, part in zip(self._reads, reply, strict=True):
            read.check(part)

    def failed(self) -> None:
        """A read changes nothing."""


class WriteMany:
    """MSET, or DEL of several keys: one write of each key."""

    def __init__(self, keys: Keys, command: bytes, indices: Sequence[int]) -> None:
        """The keys have to be different, at rest, and due for this kind of write."""
        self._keys = keys
        self._indices = indices
        arguments: list[Argument] = [command]
        for index in indices:
            kind = keys.kind_of(index)
            version = keys.begin_write(index)
            arguments.append(name_of(index))
            if command == b"MSET" and isinstance(kind, Text):
                arguments.append(kind.value(index, version) or b"")
        self._reply: Any = b"OK" if command == b"MSET" else len(indices)
        self.arguments = tuple(arguments)

    def check(self, reply: Any) -> None:
        for index in self._indices:
            self._keys.end_write(index)
        if reply != self._reply:
            raise Difference(name_of(self._indices[0]), bytes(self.arguments[0]), self._reply, reply)

    def failed(self) -> None:
        for index in self._indices:
            self._keys.doubt(index, monotonic())


class CountMany:
    """EXISTS of several keys: the number of present keys; keys being written may count or not."""

    def __init__(self, keys: Keys, indices: Sequence[int]) -> None:
        self._keys = keys
        self._indices = indices
        self._lowest = [keys.window(index)[0] for index in indices]
        self.arguments: tuple[Argument, ...] = (b"EXISTS", *map(name_of, indices))

    def check(self, reply: Any) -> None:
        least = most = 0
        for index, lowest in zip(self._indices, self._lowest, strict=True):
            present = self._keys.kind_of(index).present
            states = {present(version) for version in range(lowest, self._keys.window(index)[1] + 1)}
            least += False not in states
            most += True in states
        if not isinstance(reply, int) or not least <= reply <= most:
            raise Difference(name_of(self._indices[0]), b"EXISTS", f"{least} to {most}", reply)

    def failed(self) -> None:
        """A read changes nothing."""
