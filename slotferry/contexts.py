"""Contexts: addresses, tokens and certificates of clusters under names, in a file that only its owner can read.

The file is written whole, to a new file that takes the old one's place, under a lock: two commands that write at the
same time lose nothing. One that others can read is refused, because its tokens are no secret any more. A token goes
only to the address that stands beside it. Of certificates, the names of their files are kept.

**bounded**: the wait for the lock, since a command that is paused may hold it.
"""

import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slotferry.processes import process_runs
from slots.formats import CONTEXTS, WRITER
from slots.topomtls import NO_FILES, Files

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCK_SECONDS = 5.0
"""How long a command waits for another one that writes, which takes milliseconds."""
LENT_SECONDS = 0.5
"""The same for a throw-away cluster, whose end does not wait for long."""
_POLL_SECONDS = 0.02
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_TLS_KEYS = ("tls_ca", "tls_certificate", "tls_key")


class ContextError(Exception):
    """A context cannot be read or kept; the text is a sentence for the operator."""


@dataclass(frozen=True)
class Context:
    """A cluster.

    Attributes:
        topom: addresses of its topoms, with commas.
        token: the API's bearer token; empty where there is none. Never shown.
        pid: of the process that takes the context away when it ends; 0 for one that stays.
        tls: files for a topom that serves TLS, by their whole paths.
    """

    topom: str
    token: str = field(default="", repr=False)
    pid: int = 0
    tls: Files = NO_FILES


@dataclass(frozen=True)
class Contexts:
    """All contexts by name, and the name of the one in use; empty for none."""

    known: dict[str, Context] = field(default_factory=dict)
    current: str = ""

    def get(self, name: str) -> Context:
        """Raises :class:`ContextError` for an unknown name."""
        try:
            return self.known[name]
        except KeyError:
            there = f"kept are: {', '.join(sorted(self.known))}" if self.known else "none is kept yet"
            raise ContextError(
                f"there is no context {name}; {there} (slotferry context set NAME --topom URL)"
            ) from None


def file() -> Path:
    """Where contexts are kept: ``slotferry/contexts.json`` below ``XDG_CONFIG_HOME``, by default ``~/.config``.

    Raises:
        ContextError: there is no such place.
    """
    try:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:
        raise ContextError("there is no home folder to keep contexts in; set XDG_CONFIG_HOME to a folder") from None
    return base / "slotferry" / "contexts.json"


def load() -> Contexts:
    """What is kept; nothing where there is no file.

    Raises:
        ContextError: the file cannot be read, or others can read it.
    """
    path = file()
    try:
        with path.open("rb") as kept:
            _require_secret(path, os.fstat(kept.fileno()))
            return _understood(path, kept.read())
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ContextError(f"{path} cannot be read: {error.strerror}") from None


def change(make: Callable[[Contexts], Contexts], limit: float = LOCK_SECONDS) -> Contexts:
    """Keep what ``make`` gives for what is kept now.

    Raises:
        ContextError: as :func:`load`, or the file cannot be written, or others write it for ``limit`` seconds.
    """
    path = file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock"), limit):
            contexts = make(load())
            _write(path, contexts)
            return contexts
    except OSError as error:
        raise ContextError(f"{path} cannot be written: {error.strerror}") from None


def with_context(contexts: Contexts, name: str, context: Context) -> Contexts:
    """With one more, or another one under this name. Raises :class:`ContextError` for a name that none may have."""
    if not NAME.fullmatch(name):
        raise ContextError(
            f"{name!r} is no name for a context; take letters, digits, dots, hyphens and underscores, 64 at most"
        )
    return replace(contexts, known={**contexts.known, name: context})


def without(contexts: Contexts, name: str) -> Contexts:
    """Without this one; if it was in use, none is. Raises :class:`ContextError` for an unknown name."""
    contexts.get(name)
    known = {other: context for other, context in contexts.known.items() if other != name}
    return Contexts(known, "" if contexts.current == name else contexts.current)


@contextmanager
def lent(name: str, topom: str, token: str) -> Iterator[str]:
    """Keep a context while the block runs, and give its name: ``name``, with a number if that is taken.

    A context that a process could not take away because it was killed gives its name up.

    Raises:
        ContextError: it cannot be kept.
    """
    own = Context(topom, token, os.getpid())
    named = ""

    def add(contexts: Contexts) -> Contexts:
        nonlocal named
        named = next(one for one in _names(name) if _is_free(contexts, one))
        return with_context(contexts, named, own)

    change(add, LENT_SECONDS)
    try:
        yield named
    finally:
        with suppress(ContextError):
            # Somebody may have put another cluster under this name meanwhile.
            change(lambda now: without(now, named) if now.known.get(named) == own else now, LENT_SECONDS)


def named_files(files: Files) -> dict[str, str]:
    """The files by what they are: ``tls_ca``, ``tls_certificate`` and ``tls_key``; "" for none."""
    return dict(zip(_TLS_KEYS, (files.authorities, files.certificate, files.key), strict=True))


def require_tls(topom: str, files: Files) -> None:
    """Raises :class:`ContextError` for files with addresses none of which has TLS: whoever names files believes that
    the token goes over the network encrypted."""
    if files and not any(url.strip().startswith("https://") for url in topom.split(",")):
        raise ContextError(
            f"there are certificates for topom, but {topom} is no address with TLS; write https:// there, or leave the "
            "certificates out"
        )


def _names(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _is_free(contexts: Contexts, name: str) -> bool:
    there = contexts.known.get(name)
    return there is None or (there.pid > 0 and not process_runs(there.pid))


def _require_secret(path: Path, said: os.stat_result) -> None:
    if said.st_uid != os.geteuid():
        raise ContextError(f"{path} belongs to another user and is not used; set XDG_CONFIG_HOME to a folder of yours")
    if stat.S_IMODE(said.st_mode) & _OTHERS:
        raise ContextError(
            f"{path} has tokens, and others may read or change it (mode {stat.S_IMODE(said.st_mode):o}); change those "
            f"tokens if others are on this computer, and run: chmod 600 {path}"
        )


def _understood(path: Path, content: bytes) -> Contexts:
    try:
        found: Any = json.loads(content)
        if not CONTEXTS.reads(said := found["format"]):
            raise ContextError(
                f"{CONTEXTS.refusal(str(path), said)}; {WRITER}, or set XDG_CONFIG_HOME to another folder"
            )
        known = {
            str(name): Context(
                str(one["topom"]),
                str(one["token"]),
                int(one["pid"]),
                # Fields with a default may be missing.
                Files(*(str(one.get(key, "")) for key in _TLS_KEYS)),
            )
            for name, one in found["contexts"].items()
        }
        return Contexts(known, str(found["current"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise ContextError(f"{path} is not what slotferry writes; correct it, or remove it") from None


def _write(path: Path, contexts: Contexts) -> None:
    listed = {
        name: {"topom": context.topom, "token": context.token, "pid": context.pid, **named_files(context.tls)}
        for name, context in sorted(contexts.known.items())
    }
    # mkstemp makes a file that only its owner can read.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix="contexts-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            json.dump({"format": CONTEXTS.number, "current": contexts.current, "contexts": listed}, new, indent=2)
            new.flush()
            os.fsync(new.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path, limit: float) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        end = time.monotonic() + limit
        while not _takes(descriptor):
            if time.monotonic() >= end:
                raise ContextError(
                    f"another command has {path} locked for over {limit:g} s; end it if it is paused, then try again"
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _takes(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
