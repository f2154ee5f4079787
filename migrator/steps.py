"""The one sequence by which keys move, small and big ones: *take* at the source, *place* at the target, *drop* at the
source, each step by the permit of the call.

docs/moving-keys.md says how that upholds **absent-first** and **one-way**. What a small key's steps are is in
:mod:`migrator.transfer`, and a big key's in :mod:`migrator.bigkeys`. Here is what they share: a step runs by a permit,
one whose permit does not hold is tried again with a new one, and a key is dropped only once enough replicas have it and
both servers are still the processes that the move began with.

A lost connection ends the call of the migrator (:mod:`migrator.move`), and the next call renews the permit before
anything else. So the outcome of a step is always known here, or no longer matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import hiredis

from migrator.connection import Connection, pack
from migrator.errors import NotApart, TargetUnavailable
from migrator.options import MoveOptions
from slots import moving, permits
from slots.beginning import Beginning
from slots.kinds import Kind
from slots.moving import DROP
from slots.replies import NotUnderstood
from slots.scripts import NOT_PERMITTED, Script

Outcome = TypeVar("Outcome")

MOST_RENEWALS = 20
"""How many times in a row a step may find that its permit does not hold, because others renew it."""


class Permit:
    """The permit of one call, by which all its steps run.

    Args:
        source, target: connections to both, over which it is renewed.
        address: the target's ``host:port``, for messages.
        beginning: the run ids that the action began with.
    """

    def __init__(self, source: Connection, target: Connection, address: str, beginning: Beginning) -> None:
        self._source = source
        self._target = target
        self._address = address
        self._beginning = beginning
        self._renewing = asyncio.Lock()
        self.held = ""
        """The permit that is believed to hold."""

    def keeps_target(self, permit: str) -> bool:
        """Whether the target's copy counts, of a key that both servers have, for steps by that permit."""
        return self._beginning.keeps_target(*permits.processes_of(permit))

    async def by(self, step: Callable[[str], Awaitable[Outcome | None]]) -> Outcome:
        """The outcome of a step, which is given the permit, and gives None if that does not hold.

        Raises what ``step`` and :meth:`renew` do.
        """
        for _ in range(MOST_RENEWALS):
            permit = self.held
            outcome = await step(permit)
            if outcome is not None:
                return outcome
            await self.renew(permit)
        raise TargetUnavailable(
            f"the permit to move keys from {self._source.address} to {self._address} did not last in "
            f"{MOST_RENEWALS} attempts: others renew it all the time"
        )

    async def renew(self, doubted: str, *, anew: bool = False) -> None:
        """Get the permit that holds, other than ``doubted``; after that, steps with an earlier permit have no effect.

        Args:
            doubted: the permit of the step. Another step may have a new one already.
            anew: for the first of a call, see :func:`slots.permits.renew`.

        Raises:
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused, NotApart: see there.
        """
        async with self._renewing:
            if self.held != doubted:
                return
            try:
                self.held = await permits.renew(self._source, self._target, self._address, doubted, anew=anew)
            except permits.SameProcess as error:
                raise NotApart(str(error)) from error
            except permits.NoPermit as error:
                raise TargetUnavailable(f"target {self._address}: {error}", kind=Kind.BUSY) from error

    async def withdraw(self) -> None:
        """Withdraw the permit once the source has no key left: then nothing can arrive any more, and no flush is under
        way.

        Raises as :meth:`renew` does.
        """
        try:
            # A flush that has not reached the target yet may have removed keys from the source (slots/flushes.py).
            await permits.flushes_over(self._source, self._target)
        except permits.NoPermit as error:
            raise TargetUnavailable(f"target {self._address}: {error}", kind=Kind.BUSY) from error
        await permits.withdraw(self._source, self._target)


def _nothing() -> None:
    """No more is required."""


async def run(
    server: Connection,
    script: Script,
    arguments: Sequence[str | bytes | int],
    limit: float | None = None,
    require: Callable[[], None] = _nothing,
) -> object:
    """The reply of a step's script; None if its permit does not hold. Raises what :meth:`Connection.call` does."""
    (reply,) = await server.send(pack("EVALSHA", script.digest, *arguments), 1, limit, require)
    if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
        (reply,) = await server.send(pack("EVAL", script.text, *arguments), 1, limit, require)
    if isinstance(reply, hiredis.ReplyError):
        if str(reply).startswith(NOT_PERMITTED):
            return None
        raise server.refusal(reply)
    if reply is None:
        with server.understood("EVALSHA"):
            raise NotUnderstood("it answers nothing to a step")
    return reply


class Mover:
    """The connections of one mover to both servers, and the step that ends a key's move.

    Args:
        source, target: one connection to each.
        permit: of the call.
        options: how many replicas have to have keys first, and which processes both servers have to be.
        name: of its claims, unique among all movers.
    """

    def __init__(self, source: Connection, target: Connection, permit: Permit, options: MoveOptions, name: str) -> None:
        self._source = source
        self._target = target
        self.permit = permit
        self._options = options
        self._name = name

    async def _drop(
        self, permit: str, database: int, placed: Sequence[bytes], others: Sequence[bytes] = (), *, size: int = 0
    ) -> bool | None:
        """Delete the keys that were placed, and give back the claims on these and on others, which were not placed.

        True; None if the permit does not hold.

        Args:
            size: bytes of those placed that the target's replicas have not confirmed.

        Raises:
            TooFewReplicas: the keys are at the source still.
            What :attr:`MoveOptions.require` raises, and what :func:`run` does.
        """
        if placed:
            # A claim that is not confirmed is not given back either: the next call renews the permit.
            await self._options.confirmation.wait(self._target, size)
        keys = [*placed, *others]
        arguments = moving.drop_arguments(permit, database, self._name, keys, check=False, deletes=len(placed))
        # By now the target may have another master, which does not have the placed keys. The source may let this step
        # wait for long.
        reply = await run(self._source, DROP, arguments, require=self._options.require if placed else _nothing)
        if reply is None:
            return None
        with self._source.understood("EVALSHA"):
            moving.dropped(reply, len(keys))
        return True
