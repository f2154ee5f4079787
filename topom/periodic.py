"""Looks at what is to be done, soon after anything that is stored has changed, for as long as a topom leads.

What goes on by itself (:mod:`topom.leaving.groups`, :mod:`topom.placement.applying`, :mod:`topom.masters.sentinels`) is
done in looks: each does what can be done at that moment, and says when the next one is due even if nothing changes.
**bounded**: there is a pause between two looks however much changes, and a wait that grows, with full jitter, after one
that came to nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from slots.backoff import Backoff
from topom.errors import TopomError

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.2
"""Between two looks at least."""
RETRY_SECONDS_MAX = 10.0


async def keep_looking(news: asyncio.Event, look: Callable[[], Awaitable[float | None]], waits: str) -> None:
    """Look again and again, for ever.

    Args:
        news: set by whoever knows that there is something to see.
        look: gives the seconds after which it is to be looked without news, too; None for never. A TopomError that it
            raises is logged.
        waits: the event to log it by.
    """
    backoff = Backoff(PAUSE_SECONDS, RETRY_SECONDS_MAX)
    while True:
        news.clear()
        try:
            again = await look()
        except TopomError as error:
            wait = backoff.next()
            log.warning(waits, reason=str(error), retry_seconds=wait)
            await asyncio.sleep(wait)
            continue
        backoff.reset()
        await asyncio.sleep(PAUSE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(again):
                await news.wait()
