"""Decides whether a proxy that starts while topom is away may serve by the table in its file.

The danger is **one-owner**: slots may have moved since then, and only the fence would keep this proxy from their former
owners (:mod:`slots.connections`). The argument relies on what :mod:`proxy.supervisor.kept_table.tablefile` upholds:

- A slot leaves a server of this table only through a barrier of a newer epoch. This member has acknowledged no newer
  epoch, so the barrier passed only after the member's fence was set at that server.
- So every master in the table is checked. If none has the fence, no slot had left any of them by then. Before a slot
  leaves later, the proxy is fenced first: each connection of a worker looks for the fence before it sends anything, and
  the fence ends open connections. The same holds for any proxy that topom does not hear.
- A restarted server may have forgotten the fence, which can only have come after the last contact with topom. So every
  master has to be the very process that the file names (**run-id**). No clock tells how old a server is: a clock that
  is set forward makes a server look older than it is. A server that is a replica now, or does not answer, is no reason
  to begin either.
- Connections of an earlier process under this identity are ended at the servers first. So later acknowledgements are
  true of that process as well (**drained**).

**bounded**: each server is asked within a few seconds, all at once. A server that does not answer is tried again.
"""

import asyncio
from collections.abc import Callable

import structlog

from proxy.settings import ProxySettings
from proxy.supervisor.kept_table.tablefile import Kept
from proxy.supervisor.standdown.evidence import KNOWN_SECONDS
from proxy.supervisor.standdown.fenceprobe import client_of, look
from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.connections import end_connections, proxy_prefix
from slots.failures import FAILURES

ALONE_SECONDS = 3.0
"""Seconds during which topom is tried before the proxy checks whether it may do without."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.5, 2.0
REPLY_SECONDS = 2.0
MARGIN_SECONDS = 8.0
"""The last contact with topom may be so much older than the file's time, for a cut link is noticed that late."""

log = structlog.get_logger()


async def may_serve(
    kept: Kept, age_now: Callable[[], float], settings: ProxySettings, access: ServerAccess, wanted: Callable[[], bool]
) -> float | None:
    """The table's age in seconds, once the proxy may serve by it. None if it may not, or no longer has to.

    Args:
        kept: the content of the file.
        age_now: seconds since the table was last known to be topom's newest; may raise OSError.
        settings: of the proxy.
        access: how to log in at the servers.
        wanted: whether topom has not been reached so far.
    """
    await asyncio.sleep(ALONE_SECONDS)
    backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
    while wanted():
        try:
            age = age_now()
            # final-fence: servers do not keep marks for ever.
            if -MARGIN_SECONDS < age < min(settings.table_age_limit_seconds, KNOWN_SECONDS):
                reason = await look_at_masters(kept, access)
                # The servers' answers may have taken time, which adds to the time since topom was heard.
                age = age_now()
            else:
                reason = f"it is {age:.0f} s old, and table_age_limit_seconds is {settings.table_age_limit_seconds:g}"
        except (Unknown, OSError) as error:
            log.warning("kept_table_not_served_yet", reason=str(error))
            await asyncio.sleep(backoff.next())
            continue
        if reason is None:
            return age
        log.error("kept_table_not_served", epoch=kept.table.epoch, reason=f"{reason}; topom has to be met first")
        return None
    return None


class Unknown(Exception):
    """A server does not answer now. The message says which and why."""


async def look_at_masters(kept: Kept, access: ServerAccess) -> str | None:
    """Why the proxy may not serve by this table, for good; None if it may.

    Args:
        kept: the content of the file.
        access: how to log in at the servers.

    Raises:
        Unknown: try again.
    """
    masters = sorted({group.master for group in kept.table.groups.values() if group.master is not None})
    found = await asyncio.gather(*(_look(kept, master, access) for master in masters))
    return next((reason for reason in found if reason is not None), None)


async def _look(kept: Kept, server: str, access: ServerAccess) -> str | None:
    client = client_of(server, access, REPLY_SECONDS)
    try:
        found = await look(client, kept.instance)
        if found.fenced:
            return f"server {server} has fenced this proxy off: slots have moved since"
        if not found.is_master:
            return f"server {server} is no master any more"
        # run-id: any other process may have forgotten a fence.
        if found.run_id != kept.processes.get(server):
            return f"server {server} was started after the table was kept, and may have forgotten a fence"
        ended = await end_connections(client, proxy_prefix(kept.instance))
        log.info("server_looked_at", server=server, ended=ended)
    except (*FAILURES, KeyError) as error:
        raise Unknown(f"server {server} cannot be asked: {error}") from error
    finally:
        await client.aclose()
    return None
