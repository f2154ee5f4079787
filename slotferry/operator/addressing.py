"""Which topom a verb asks, and how: by its options, else by the environment, else by a context."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from slotferry import contexts
from slotferry.client import DEFAULT_URL
from slotferry.contexts import ContextError
from slots.smallfiles import read_small
from slots.topomtls import NO_FILES, Files, from_environment

TOPOM_VARIABLE, TOKEN_VARIABLE, CONTEXT_VARIABLE = "SLOTFERRY_TOPOM", "SLOTFERRY_TOKEN", "SLOTFERRY_CONTEXT"
TOKEN_FILE_VARIABLE = "SLOTFERRY_TOKEN_FILE"
"""Names a file with the token, for an environment that no token should stand in."""


@dataclass(frozen=True)
class Line:
    """What the command line says before the verb.

    Attributes:
        context: the context that it names; empty if it names none.
        tls: the certificates that it names.
    """

    context: str = ""
    tls: Files = NO_FILES


@dataclass(frozen=True)
class Where:
    """A topom, or several that share a store.

    Attributes:
        topom: their addresses, with commas.
        token: the API's bearer token; empty for none.
        tls: certificates for addresses with ``https``.
        unused: the names of the contexts that are kept, if nothing says which cluster is meant.
    """

    topom: str
    token: str = field(repr=False)
    tls: Files
    unused: tuple[str, ...] = ()


def resolve(topom: str, token: str, line: Line) -> Where:
    """The topom to ask.

    A context's token goes to no other address than its own, and its certificates count for no other. A context that the
    command line names goes before the environment.

    Args:
        topom: the option's address, else the environment's.
        token: likewise.

    Raises:
        ContextError: the context or the token cannot be had, or another cluster is named, too, or certificates for one
            without TLS.
    """
    files = from_environment()
    if line.context:
        if topom not in ("", os.environ.get(TOPOM_VARIABLE)):
            raise ContextError("--context and --topom both name a cluster; leave one of them out")
        topom, token = "", "" if token == os.environ.get(TOKEN_VARIABLE) else token
        files = NO_FILES
    elif not token and (path := os.environ.get(TOKEN_FILE_VARIABLE)):
        token = _in_file(Path(path))
    where = _with_context(topom, token, line.tls.over(files), line.context)
    contexts.require_tls(where.topom, line.tls)
    return where


def _with_context(topom: str, token: str, files: Files, named: str) -> Where:
    if topom:
        return Where(topom, token, files)
    kept = contexts.load()
    name = named or os.environ.get(CONTEXT_VARIABLE, "") or kept.current
    if not name:
        return Where(DEFAULT_URL, token, files, tuple(sorted(kept.known)))
    context = kept.get(name)
    return Where(context.topom, token or context.token, files.over(context.tls))


def _in_file(path: Path) -> str:
    try:
        token = read_small(path).decode("ascii", "replace").rstrip("\r\n")
    except OSError as error:
        why = f"the file {path}, which {TOKEN_FILE_VARIABLE} names, cannot be read: {error.strerror}"
        raise ContextError(why) from error
    if not token:
        # Else a context's token would take its place, and its user would be another one than was meant.
        raise ContextError(f"the file {path}, which {TOKEN_FILE_VARIABLE} names, is empty")
    return token
