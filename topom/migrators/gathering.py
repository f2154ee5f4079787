"""Copies of one source that begin together: one migrator makes them, by one stream of the source.

Batches that start together and share their source are a *gathering*. Each member finds out by itself how its slots
move. Twice it waits for the others:

- before it is stored that its slots are copied: from then on the source is not swept, and a copy begins only where the
  source is swept;
- before the source is followed: the stream begins with the first that asks for it, and who comes later is not in it.

No member joins later. Who is late, or has lost its copy, is shut out: its slots are as before, it ends, and waits for
its turn. So does who is to move key by key while another member is there.

**bounded**: each wait ends after :data:`GATHER_SECONDS`, whatever becomes of the others.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from topom.errors import Unavailable
from topom.migrators.members import Migrator
from topom.reasons import Kind

GATHER_SECONDS = 15.0
"""How long a member waits for the others, each of the two times."""


class Stage(IntEnum):
    """How far a member is."""

    LOOKING = 0
    CHOSEN = 1
    """It is to be copied."""
    BEGUN = 2
    """Its migrator knows of the copy."""


class OutOfTurn(Unavailable):
    """Slots cannot begin to move beside others of their source; none of them was touched.

    Args:
        alone: whether they are to begin without others next time.
    """

    kind = Kind.BUSY

    def __init__(self, what: str, alone: bool) -> None:
        super().__init__(what)
        self.alone = alone


class Gathering:
    """The members, which only get fewer.

    Args:
        seconds: how long they wait for each other.

    Attributes:
        shared: whether it ever had two members.
        id: of the stream that they share.
    """

    def __init__(self, seconds: float = GATHER_SECONDS) -> None:
        self.id = secrets.token_hex(16)
        self.shared = False
        self._seconds = seconds
        self._over = False
        self._stages: dict[Hashable, Stage] = {}
        self._late: set[Hashable] = set()
        self._changed = asyncio.Event()
        self._followed: tuple[str, str, tuple[str, ...]] | None = None
        self._migrator: Migrator | None = None

    def join(self, one: Hashable) -> None:
        """Make this a member, before any member begins."""
        self._stages[one] = Stage.LOOKING
        self.shared = len(self._stages) > 1

    def close(self) -> None:
        """From now on it is too late to begin."""
        self._over = True

    def leave(self, one: Hashable) -> None:
        """This member is over, and so is its copy."""
        self._stages.pop(one, None)
        self._notify()

    def require_turn(self, one: Hashable) -> None:
        """Raise :class:`OutOfTurn` if it is too late for a member to begin."""
        if one in self._late:
            raise OutOfTurn("the others of their source did not wait for these slots any longer", alone=True)
        if self._over or (self.shared and self._stages.get(one, Stage.LOOKING) is Stage.BEGUN):
            raise OutOfTurn("slots of their source are copied already, or are to begin anew together", alone=False)

    def require_alone(self, one: Hashable) -> None:
        """Raise :class:`OutOfTurn` if there is another member. If not, there will be none."""
        if any(other is not one for other in self._stages):
            raise OutOfTurn("slots that move key by key share their source with no others", alone=True)

    def agree(self, source: str, run_id: str, replicas: tuple[str, ...]) -> tuple[str, ...]:
        """The replicas that the stream may follow: those that the first member names. Raises :class:`OutOfTurn` if its
        source was another process."""
        if not self.shared:
            return replicas
        if self._followed is None:
            self._followed = source, run_id, replicas
        if self._followed[:2] != (source, run_id):
            raise OutOfTurn(f"{source} is another process than the one that the others copy from", alone=False)
        return self._followed[2]

    async def chosen(self, one: Hashable) -> None:
        """This member is to be copied: return once all others know their way as well."""
        await self._reached(one, Stage.CHOSEN)

    async def begun(self, one: Hashable) -> None:
        """The migrator knows of this member's copy: return once it knows of all, and the stream may begin."""
        await self._reached(one, Stage.BEGUN)
        if self.shared:
            self.close()

    def migrator(self, found: Migrator) -> Migrator:
        """The migrator of all: the one that was found first. Another one takes its place if it is gone: the stream has
        not begun there, for that waits for all."""
        if not self.shared:
            return found
        if self._migrator is None or self._migrator.gone:
            self._migrator = found
        return self._migrator

    async def _reached(self, one: Hashable, stage: Stage) -> None:
        if not self.shared or self._over or one not in self._stages:
            return
        self._stages[one] = max(self._stages[one], stage)
        self._notify()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                while self._behind(stage):
                    await self._changed.wait()
        self._late |= self._behind(stage)
        self._notify()

    def _behind(self, stage: Stage) -> set[Hashable]:
        """The members that are not so far, and that are waited for."""
        return {one for one, reached in self._stages.items() if reached < stage and one not in self._late}

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one copy in a gathering."""

    gathering: Gathering
    one: Hashable
    copy_id: str

    @property
    def stream_id(self) -> str:
        """Of the stream that it shares. A copy that shares none has one of its own each time that it begins."""
        return self.gathering.id if self.gathering.shared else self.copy_id
