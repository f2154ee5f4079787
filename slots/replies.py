"""Checks the answers of servers where they come in: a reply has the form that its command allows, or it is a failure.

The process at an address may answer anything: it may be another program, another version, or a broken server, and a
reply may be cut. :class:`NotUnderstood` is one of :data:`slots.failures.FAILURES`. So code that copes with a server
that does not answer also copes with a server that answers nonsense.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import CommandStackT, Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse

from slots.failures import FAILURES
from slots.reserved import FOLLOWER

MOST_INFO_BYTES = 4 * 1024 * 1024
"""The most bytes of a reply to INFO. A server with ten thousand replicas stays below it."""
MOST_RUN_ID = 100
"""Characters of a run id; those of Redis have 40."""
LARGEST = 2**63 - 1
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class NotUnderstood(InvalidResponse):
    """A server's answer is not one that the command can have, so the server cannot be used."""


@contextmanager
def understood(command: str) -> Iterator[None]:
    """Code in this block reads a reply. An error that a bad reply causes becomes :class:`NotUnderstood`; failures stay
    the same."""
    try:
        yield
    except FAILURES:
        raise
    except Exception as error:
        raise NotUnderstood(f"it answers {command} as no Redis server does ({type(error).__name__})") from error


def integer(reply: object, least: int = 0) -> int:
    """A whole number, at least ``least``. Raises :class:`NotUnderstood` for another reply."""
    if type(reply) is not int or not least <= reply <= LARGEST:
        raise NotUnderstood(f"its answer is not a number in the allowed range: {reply!r:.50}")
    return reply


def items(reply: object, count: int | None = None) -> list[Any]:
    """The parts of a list, with a given length if one is given. Raises :class:`NotUnderstood` for another reply."""
    if not isinstance(reply, list) or count not in (None, len(reply)):
        raise NotUnderstood(f"its answer is not a list of the expected form: {reply!r:.50}")
    return reply


def one_of(reply: object, *known: bytes) -> bytes:
    """A reply that is one of these words. Raises :class:`NotUnderstood` for another one."""
    if not isinstance(reply, bytes) or reply not in known:
        raise NotUnderstood(f"its answer is not one of the allowed words: {reply!r:.50}")
    return reply


def text_of(reply: object) -> bytes:
    """A text, of :data:`MOST_INFO_BYTES` at most. Raises :class:`NotUnderstood` for another reply."""
    if not isinstance(reply, bytes) or len(reply) > MOST_INFO_BYTES:
        raise NotUnderstood(f"it answers with what is no such text as is asked for: {reply!r:.50}")
    return reply


class Info(dict[str, Any]):
    """The fields of a reply to INFO: whole numbers as such, ``name=value,...`` as mappings, everything else as text.

    ``sections`` are the names of the sections in the reply.
    """

    sections: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, reply: object) -> Self:
        """Read a reply. Raises :class:`NotUnderstood`."""
        if isinstance(reply, bytes):
            reply = reply[: MOST_INFO_BYTES + 1].decode(errors="replace")
        if not isinstance(reply, str) or len(reply) > MOST_INFO_BYTES:
            raise NotUnderstood(f"its answer to INFO is not text ({type(reply).__name__})")
        found = cls()
        lines = reply.splitlines()
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and not name.startswith("#"):
                found[name] = _value(value)
        found.sections = frozenset(line[2:] for line in lines if line.startswith("# "))
        if not found and not found.sections:
            raise NotUnderstood("it answers INFO without a single field")
        return found

    def number(self, name: str, otherwise: int | None = None, least: int = 0) -> int:
        """A whole number, at least ``least``; ``otherwise`` where there is none. Raises :class:`NotUnderstood`."""
        if name not in self and otherwise is not None:
            return otherwise
        value = self.get(name)
        if type(value) is not int or not least <= value <= LARGEST:
            raise NotUnderstood(f"INFO has a {name} that no Redis server has: {value!r:.50}")
        return value

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Text of visible characters; ``otherwise`` where there is none. Raises as :meth:`number` does."""
        value = self.get(name, otherwise)
        if (
            value is None
            or (value == "" and otherwise is None)
            or isinstance(value, dict)
            or not str(value).isprintable()
        ):
            raise NotUnderstood(f"INFO has a {name} that no Redis server has: {value!r:.50}")
        return str(value)

    @property
    def run_id(self) -> str:
        """The run id of the process. Raises :class:`NotUnderstood`."""
        found = self.text("run_id")
        if len(found) > MOST_RUN_ID:
            raise NotUnderstood(f"INFO has a run_id that no Redis server has: {found!r:.50}")
        return found

    @property
    def is_master(self) -> bool:
        """Whether its role is master. Raises :class:`NotUnderstood` for a role that is neither master nor replica."""
        if self.get("role") not in ("master", "slave"):
            raise NotUnderstood(f"INFO names no role of a Redis server: {self.get('role')!r:.50}")
        return bool(self["role"] == "master")

    @property
    def following(self) -> tuple[str, int] | None:
        """Host and port of its master, as the server was told; None for a master. Raises as :meth:`number` does."""
        if self.is_master:
            return None
        port = self.number("master_port")
        if port > 65535:
            raise NotUnderstood(f"INFO has a master_port that no Redis server has: {port!r:.50}")
        return self.text("master_host"), port

    @property
    def keys_of_databases(self) -> dict[int, int]:
        """How many keys each database has; empty databases are left out. Raises as :meth:`number` does."""
        return {
            int(name[2:]): Info(_mapping(name, value)).number("keys")
            for name, value in self.items()
            if re.fullmatch(r"db[0-9]{1,9}", name, re.ASCII)
        }

    @property
    def replicas(self) -> list[Info]:
        """Its fields about each of its replicas, without the links that follow its stream
        (:mod:`migrator.stream.link`). Raises as :meth:`number` does."""
        return [one for one in self._listed() if one.get("ip") != FOLLOWER]

    @property
    def replicas_connected(self) -> int:
        """How many replicas it has, listed or not, without those links; 0 if it does not tell. Raises likewise."""
        links = len([one for one in self._listed() if one.get("ip") == FOLLOWER])
        connected: int = self.number("connected_slaves", 0)
        return max(0, connected - links)

    def _listed(self) -> list[Info]:
        return [
            Info(_mapping(name, value))
            for name, value in self.items()
            if re.fullmatch(r"slave[0-9]{1,9}", name, re.ASCII)
        ]


def _value(text: str) -> int | str | dict[str, int | str]:
    if _INTEGER.fullmatch(text):
        return int(text)
    parts = text.split(",")
    if all("=" in part for part in parts):
        pairs = (part.partition("=") for part in parts)
        return {name: int(value) if _INTEGER.fullmatch(value) else value for name, _, value in pairs}
    return text


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise NotUnderstood(f"INFO has a {name} that no Redis server has: {value!r:.50}")
    return value


class _Checking(Redis):
    async def parse_response(self, connection: AbstractConnection, command_name: Any, **options: Any) -> Any:
        try:
            with understood(str(command_name)):
                return await super().parse_response(connection, command_name, **options)  # type: ignore[arg-type]
        except NotUnderstood:
            # It is no longer known where the next reply begins.
            await connection.disconnect(nowait=True)
            raise


class CheckedRedis(_Checking):
    """A client that checks the form of each reply; a wrong one raises one of ``FAILURES``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_response_callback("INFO", _info)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> CheckedPipeline:
        return CheckedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


async def info_of(client: Redis, section: str | None = None) -> Info:
    """A server's reply to INFO. Errors are those of ``client``."""
    found = await client.info(section)
    return found if isinstance(found, Info) else Info(found)


def _info(response: Any, **_: Any) -> Info:
    return Info.parse(response)


class CheckedPipeline(_Checking, Pipeline):  # type: ignore[misc]
    """The same for commands that are sent together."""

    async def _execute_transaction(
        self, connection: AbstractConnection, commands: CommandStackT, raise_on_error: bool
    ) -> Any:
        try:
            with understood("EXEC"):
                return await super()._execute_transaction(connection, commands, raise_on_error)  # type: ignore[arg-type]
        except NotUnderstood:
            await connection.disconnect(nowait=True)
            raise
