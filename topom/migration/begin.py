"""How a batch begins, and begins anew.

First the servers are checked, so that a target that cannot take the slots is found while no slot is touched, and the
target is swept. A batch whose check fails stays ``pending``.
"""

from collections.abc import Collection
from contextlib import suppress

import structlog

from migrator.checks import Findings
from migrator.errors import ForeignKeys, MigrationError
from slots import ranges
from slots.states import SlotState
from slots.table import SlotTable
from topom.cluster import topology
from topom.errors import Unavailable
from topom.migration.batches import Batch, share_of, whole_replicas
from topom.migration.foreignkeys import SweepBrokenOff
from topom.migration.interfaces import Mover, Sweep
from topom.migration.samemasters import MasterChanged
from topom.migration.stored import StoredBatches, TargetWithoutServer
from topom.migration.streamed import NoWay, StreamedCopies
from topom.reasons import Kind

log = structlog.get_logger(__name__)


class CheckFailed(Unavailable):
    """The slots cannot be moved to their target now; none was touched."""

    kind = Kind.SERVER


class Beginnings:
    """The beginnings of one topom's batches."""

    def __init__(self, stored: StoredBatches, mover: Mover, sweep: Sweep, copies: StreamedCopies) -> None:
        self._stored = stored
        self._mover = mover
        self._sweep = sweep
        self._copies = copies

    async def check(self, source_id: int, target_id: int, slots: Collection[int]) -> None:
        """Look whether slots of one group could begin to move to another one. Raises :class:`CheckFailed`."""
        table = self._stored.table
        source, target = table.master_of(source_id), table.master_of(target_id)
        if target is None:
            raise CheckFailed(f"group {target_id} has no server", "add one")
        try:
            await self._mover.check(source, target, share_of(table, source_id, slots))
        except MigrationError as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error

    async def begin(self, batch: Batch) -> None:
        """Check the servers, and store ``preparing``, or ``copying`` if the batch goes by a copy. Raises CheckFailed,
        MasterChanged, and OutOfTurn if it cannot do so beside the batches that it shares its source with."""
        batch.gathering.require_turn(batch)
        table = self._stored.table
        source = self._stored.source_of(batch)
        share = share_of(table, batch.source_id, batch.slots)
        try:
            target = self._stored.target_of(batch)
            found = await self._mover.check(source, target, share)
            # owned: keys of these slots that it already has are old, and would be alive again.
            await self._sweep(batch.target_id)
        except (MigrationError, TargetWithoutServer) as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error
        batch.notes = found.notes
        await self._stored.observe("checked")
        copy = await self._copy_of(batch, found) if source is not None else ""
        if copy and source is not None:
            # From the first copy on, their source is not swept any more.
            await batch.gathering.chosen(batch)
            # Whatever ended a copy may have been about the server that it followed.
            replicas = whole_replicas(table, batch.source_id, batch.avoided)
            batch.replicas = batch.gathering.agree(source, found.source_run_id, replicas)
        else:
            # Nobody joins them later, so this holds for as long as the batch runs.
            batch.gathering.require_alone(batch)

        def begin(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            # run-id: what the check found holds for these two masters only.
            if (table.master_of(batch.source_id), table.master_of(batch.target_id)) != (source, target):
                raise MasterChanged("a group has another master than the one that was looked at; it is looked at again")
            batch.gathering.require_turn(batch)
            return topology.begin(
                table, epoch, slots, found.min_replicas, found.source_run_id, found.target_run_id, copy
            )

        await self._stored.change(batch, begin)
        batch.state = SlotState.COPYING if copy else SlotState.PREPARING
        if source is not None and copy:
            await self._copies.begin(batch, source, target, (found.source_run_id, found.target_run_id), copy)
        await self._stored.advanced(batch)

    async def _copy_of(self, batch: Batch, found: Findings) -> str:
        """The id of the copy by which a batch goes; empty if its keys move one by one. Raises CheckFailed.

        The source's data has to be known before its slots leave by a copy: after the switch its keys of them are
        foreign there, and only those of known data are deleted without an operator.

        hidden: a copy that was given up at its very end has counted the source's keys as hidden, until it is swept. It
        may have been another batch's, or an earlier topom's.
        """
        copy = await self._id_for(batch, found)
        if not copy:
            # Nothing is swept where others are to copy.
            batch.gathering.require_alone(batch)
            if not self._may_hide(batch, found):
                return ""
        try:
            await self._sweep_source(batch.source_id)
        except ForeignKeys as error:
            # Keys that move one by one leave none, so no operator is waited for.
            self._copies.hidden_at.discard(batch.source_id)
            batch.by_keys, batch.notes = error.what, found.notes
            return await self._id_for(batch, found)
        except MigrationError as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error
        return copy

    def _may_hide(self, batch: Batch, found: Findings) -> bool:
        return bool(batch.copies_lost) or batch.source_id in self._copies.hidden_at or found.hides

    async def _sweep_source(self, group_id: int) -> None:
        # hidden: if a copy ends meanwhile, this sweep may have come too early for it.
        due = self._copies.hidden_at & {group_id}
        self._copies.hidden_at -= due
        try:
            await self._sweep(group_id)
        except BaseException:
            self._copies.hidden_at |= due
            raise

    async def _id_for(self, batch: Batch, found: Findings) -> str:
        try:
            return self._copies.id_for(batch, found)
        except NoWay as error:
            if self._may_hide(batch, found):
                # hidden: nothing else is done at the source for a while.
                with suppress(MigrationError, SweepBrokenOff):
                    await self._sweep_source(batch.source_id)
            # Copies are tried again after a while (:mod:`topom.migration.choosing`).
            batch.by_keys, batch.copies_lost = "", 0
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error

    async def begin_anew(self, batch: Batch, reason: str) -> None:
        """Put a batch that was not locked yet back to ``pending``, for this reason; its copy ends."""
        await self._copies.leave(batch)
        before = batch.state
        await self._stored.change(batch, lambda table, epoch, slots: topology.begin_anew(table, epoch, slots, before))
        batch.state = SlotState.PENDING
        log.info("slots_begin_anew", slots=ranges.show(batch.slots), reason=reason)
        await self._stored.observe("pending again")
