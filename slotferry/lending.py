"""A throw-away cluster's own context: it is there while the cluster is."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from slotferry import contexts
from slotferry.contexts import ContextError
from slotferry.local import LocalCluster
from slotferry.output import note


@asynccontextmanager
async def own_context(cluster: LocalCluster, name: str) -> AsyncIterator[str]:
    """Keep a context for the cluster while the block runs; gives the beginning of a command line that uses it.

    Where contexts cannot be kept, the command line names the address, and the token is left to the reader.
    """
    with ExitStack() as stack:
        try:
            named = stack.enter_context(contexts.lent(name, cluster.topom_url, cluster.token))
        except ContextError as error:
            note(f"no context for this cluster: {error}")
            yield f"SLOTFERRY_TOPOM={cluster.topom_url} SLOTFERRY_TOKEN=... slotferry"
        else:
            yield f"slotferry --context {named}"
