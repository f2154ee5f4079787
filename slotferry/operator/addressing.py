"""Which topom a verb asks: the one of its options, else of the environment, else of a context."""

import os

from slotferry import contexts
from slotferry.client import DEFAULT_URL
from slotferry.contexts import ContextError

TOPOM_VARIABLE, TOKEN_VARIABLE, CONTEXT_VARIABLE = "SLOTFERRY_TOPOM", "SLOTFERRY_TOKEN", "SLOTFERRY_CONTEXT"


def resolve(topom: str, token: str, named: str) -> tuple[str, str]:
    """Address and token to use.

    A context's token goes to no other address than its own. A context that the command line names goes before the
    environment.

    Args:
        topom: the option's address, else the environment's.
        token: likewise.
        named: the context that the command line names; empty if it names none.

    Raises:
        ContextError: the context cannot be had, or another cluster is named, too.
    """
    if named:
        if topom not in ("", os.environ.get(TOPOM_VARIABLE)):
            raise ContextError("--context and --topom both name a cluster; leave one of them out")
        topom, token = "", "" if token == os.environ.get(TOKEN_VARIABLE) else token
    if topom:
        return topom, token
    kept = contexts.load()
    name = named or os.environ.get(CONTEXT_VARIABLE, "") or kept.current
    if not name:
        return DEFAULT_URL, token
    context = kept.get(name)
    return context.topom, token or context.token
