"""Reads the settings of a process anew while it runs: on SIGHUP, or when it is asked to.

A setting whose type is :data:`slots.settings.Live` is taken over at once, unless it is bound to another one that
changes (:meth:`slots.settings.Settings.bound`). Of each other one that has changed, only the name is kept: it needs a
restart. **Whole**: each part of the process looks at the new settings first; only when all can
use them, all take them. A file that cannot be used changes nothing. No value of a setting is told, only names.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import structlog

from slots.hangups import early_hangups
from slots.settings import Settings, SettingsError, read_file
from slots.tls import TlsError

log = structlog.get_logger()

Kind = TypeVar("Kind", bound=Settings)
Taker: TypeAlias = Callable[[Kind], Callable[[], None]]
"""A part's look at settings that may soon hold. It gives what makes the part use them, which must not fail.

It raises :class:`~slots.settings.SettingsError` if the part cannot use them, and has changed nothing then.
"""


class Reloading(Generic[Kind]):
    """The settings of one process that are in force.

    Args:
        settings: those that the process began with.
        file: where they stand; None if they come from the environment alone.
    """

    def __init__(self, settings: Kind, file: Path | None) -> None:
        self.settings = settings
        self.file = "" if file is None else str(file.absolute())
        self.since = time.time()
        """When the file was read that is in force, in seconds since 1970."""
        self.restart: tuple[str, ...] = ()
        """Settings that have another value in the file, and need a restart."""
        self.hidden: tuple[str, ...] = ()
        """Settings that have another value in the environment than in the file when it was read last."""
        self.refused = ""
        """Why the file could not be used when it was read last; empty if it could."""
        self.takers: list[Taker[Kind]] = []

    def reload(self) -> tuple[str, ...]:
        """Read the settings anew; gives the names of those that have changed.

        Raises:
            SettingsError: they cannot be used, and nothing has changed.
        """
        return self.take(self._read)

    def take(self, read: Callable[[], Kind]) -> tuple[str, ...]:
        """As :meth:`reload`, of settings that ``read`` gives."""
        try:
            changed = self._take(read())
        except SettingsError as error:
            self.refused = str(error)
            log.error("settings_refused", file=self.file, reason=self.refused)
            raise
        named = {"changed": changed, "restart": self.restart, "hidden": self.hidden}
        log.info("settings_reloaded", file=self.file, **{what: list(names) for what, names in named.items()})
        return changed

    def _read(self) -> Kind:
        kind = type(self.settings)
        environment = kind.environment()
        in_file = read_file(Path(self.file)) if self.file else {}
        found = kind.checked({**in_file, **environment})
        self.hidden = kind.hidden(in_file, environment)
        return found

    def _take(self, found: Kind) -> tuple[str, ...]:
        kind, before = type(self.settings), self.settings
        bound, then = before.bound(), found.bound()
        live = {name for name in kind.live() if bound.get(name) == then.get(name)}
        other = [name for name in kind.model_fields if getattr(found, name) != getattr(before, name)]
        changed = tuple(name for name in other if name in live)
        waiting = tuple(name for name in other if name not in live)
        held = {name: getattr(found if name in changed else before, name) for name in kind.model_fields}
        try:
            new = kind.checked(held)
        except SettingsError as error:
            raise SettingsError(f"Beside what needs a restart ({', '.join(waiting)}): {error}") from None
        for put in [take(new) for take in self.takers]:
            put()
        self.settings, self.restart, self.since, self.refused = new, waiting, time.time(), ""
        return changed


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Have certificates that cannot be used refuse the settings. ``what``: what they are for."""
    try:
        yield
    except TlsError as error:
        raise SettingsError(f"{what}: {error}") from None


def on_hangup(reload: Callable[[], object]) -> None:
    """Have SIGHUP call ``reload``, in this event loop. A refusal of the settings is in the log by then."""

    def call() -> None:
        with suppress(SettingsError):
            reload()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, call)
    if early_hangups.came:
        early_hangups.came = False
        loop.call_soon(call)
