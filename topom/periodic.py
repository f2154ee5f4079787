"""What topom does by itself, as loops that each tell their story in one sentence.

A :class:`Loop` looks, does what can be done at that moment, and says what came of it. The sentence goes to the log when
it says something else than before, and ``slotferry status`` shows it. A loop that is *held* (an operator has paused
topom, or protection mode is on: :mod:`topom.cluster.hands_off`) does not look, and says so.

**bounded**: there is a pause between two looks however much changes, and a wait that grows, with full jitter, after a
look that failed.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import structlog

from slots.backoff import Backoff
from topom.errors import TopomError
from topom.reasons import Reason, Reasons

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.2
"""Between two looks at least."""
RETRY_SECONDS_MAX = 10.0
HELD_SECONDS = 1.0
"""Between two questions whether a loop is still held."""


@dataclass(frozen=True, slots=True)
class Look:
    """What came of a look.

    Attributes:
        says: one sentence, without a full stop; empty if there was nothing to do.
        again: seconds until the next look; None for when there is news.
        over: whether nothing is left to do for as long as this topom leads.
        about: what it says, if the sentence has figures that change with each look; empty for the sentence itself.
    """

    says: str = ""
    again: float | None = None
    over: bool = False
    about: str = ""


def never_held() -> Reason | None:
    """Nothing holds the loop."""
    return None


class Loop(ABC):
    """Something that topom does by itself.

    Args:
        held: why it may not act now; None if it may.
    """

    name: ClassVar[str]
    """As the log and ``slotferry status`` name it."""
    first_seconds: ClassVar[float] = 0.0
    """How long after the beginning of a term the first look is."""
    pause_seconds: ClassVar[float | None] = None
    """Between two looks at least; None for :data:`PAUSE_SECONDS`."""

    def __init__(self, held: Callable[[], Reason | None] = never_held) -> None:
        self._held = held
        self._woken = asyncio.Event()
        self._waits = Reasons[None]()
        self.says = ""
        """What it said last."""
        self._about = ""
        self.since = time.time()
        """Since when it says that, in seconds since 1970, UTC, whatever the figures in it."""

    @property
    def held(self) -> bool:
        """Whether it may not act now."""
        return self._held() is not None

    @property
    def waits(self) -> Reason | None:
        """Why it does not go on: it is held, or its last look failed. None if it does."""
        return self._waits.get(None)

    @abstractmethod
    async def look(self) -> Look:
        """Do what can be done now. A TopomError is what it says then."""

    def wake(self) -> None:
        """There is news: look soon."""
        self._woken.set()

    async def run(self) -> None:
        """Look again and again, until cancelled, or until a look is the last one."""
        await asyncio.sleep(self.first_seconds)
        backoff = Backoff(PAUSE_SECONDS, RETRY_SECONDS_MAX)
        while True:
            self._woken.clear()
            try:
                held = self._held()
                look = await self.look() if held is None else Look(str(held), HELD_SECONDS)
            except TopomError as error:
                self._say(str(self._waits.waits(None, error)))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            if held is None:
                self._waits.over(None)
            else:
                self._waits.waits(None, held)
            self._say(look.says, look.about)
            if look.over:
                return
            pause = PAUSE_SECONDS if self.pause_seconds is None else self.pause_seconds
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if look.again is None else max(0.0, look.again - pause)):
                    await self._woken.wait()

    def _say(self, sentence: str, about: str = "") -> None:
        self.says = sentence
        about = about or sentence
        if about == self._about:
            return
        self._about, self.since = about, time.time()
        log.info("loop_says", loop=self.name, says=sentence or "nothing to do")
