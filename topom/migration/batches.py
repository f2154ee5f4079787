"""Which slots move together, and which pairs of groups side by side.

Stock servers have no index of a slot's keys, so a scan of a source costs the same for one slot as for many. So slots of
one (source, target) pair form a batch. A group takes part in one batch at a time: a server accepts keys by one permit
at a time, and gives keys away by one permit (``docs/moving-keys.md``). Two batches that share a server would take its
permit from each other, over and over.

A copy needs no permit, and its source makes one snapshot for any number of them. So batches that begin together may
share their source, as one gathering (:mod:`topom.migrators.gathering`). Those that turn out to go key by key wait until
they are alone. Nobody joins batches that have begun, and none that an earlier topom left is shared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from migrator.progress import Progress
from slots.beginning import Beginning
from slots.messages.copies import MOST_OF_A_STREAM
from slots.slot import OFFLINE, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.cluster.state import ClusterState
from topom.cluster.topology import all_servers
from topom.migrators.gathering import Gathering

Pair = tuple[int, int]
"""Ids of the groups from which and to which slots go."""
Kind = tuple[int, int, Course, SlotState, Beginning]
"""What the slots of a batch have in common: source, target, course, state, and the processes with which their actions
began."""

IN_TURN = (Course.BACK, Course.FORWARD, Course.TURNING)
"""Of batches that wait for the same groups, the one whose course comes first here goes first.

If some of the slots that moved together are cancelled, the slots that go on arrive before the others are turned round.
Otherwise proxies would move keys of some slots one way, and keys of the others the other way, at the same time."""


@dataclass(eq=False)
class Batch:
    """Slots on their way together.

    Attributes:
        notes: what the operator should know about its servers.
        changed: set when its slots may go another way now, or should be tried again at once.
        writing: whether the next change of the state is this batch's own.
        resting: whether it waits for the next attempt.
        copies_lost: how many copies by the replication stream it has lost.
        replicas: of the source, whose stream its copy may follow.
        avoided: the servers that were followed by copies that it has lost.
        by_keys: why its keys move one by one, although they were to go by the stream; empty if that is not so.
        restarted: of servers that were restarted while keys moved: by address, that they were, and what that means.
        restarted_as: the run ids of the processes that this was said of.
        gathering: the batches with which it shares its source. It is a member while it runs.
    """

    source_id: int
    target_id: int
    slots: tuple[int, ...]
    state: SlotState
    course: Course = Course.FORWARD
    notes: tuple[str, ...] = ()
    progress: Progress = field(default_factory=Progress)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writing: bool = False
    resting: bool = False
    copies_lost: int = 0
    replicas: tuple[str, ...] = ()
    avoided: set[str] = field(default_factory=set)
    by_keys: str = ""
    restarted: dict[str, str] = field(default_factory=dict)
    restarted_as: set[str] = field(default_factory=set)
    gathering: Gathering = field(default_factory=Gathering)

    def __post_init__(self) -> None:
        self.gathering.join(self)

    @property
    def groups(self) -> frozenset[int]:
        """The groups that it uses."""
        return frozenset({self.source_id, self.target_id} - {OFFLINE})

    @property
    def follows(self) -> str:
        """Which server its copy follows, as a note for the operator; "" while it follows none."""
        followed = self.progress.followed
        return followed and f"follows {'replica' if followed in self.replicas else 'master'} {followed}"

    @property
    def pair(self) -> Pair:
        """The groups from which and to which its slots go."""
        return self.source_id, self.target_id

    def remaining(self, state: ClusterState) -> tuple[int, ...]:
        """The slots of this batch that an operator has neither cancelled, nor skipped, nor sent elsewhere since."""
        return tuple(slot for slot in self.slots if slot not in state.skipped and self._has(state.table.slots[slot]))

    def turn(self) -> None:
        """Exchange source and target: its slots were turned round, or that was taken back."""
        self.source_id, self.target_id = self.target_id, self.source_id
        self.course = Course.TURNING if self.course is Course.BACK else Course.BACK

    def begin_with(self, other: Batch) -> None:
        """Share the source with this one, which has not begun either."""
        self.gathering, self.avoided = other.gathering, other.avoided
        self.gathering.join(self)

    def goes_on_from(self, former: Batch) -> None:
        """A batch of the same pair ended before its slots moved: what it has learned holds for this one."""
        self.copies_lost, self.by_keys = former.copies_lost, former.by_keys
        self.avoided |= former.avoided

    def forget_copies(self) -> None:
        """What it has learned of copies that it has lost holds no more."""
        self.copies_lost, self.by_keys = 0, ""

    def _has(self, slot: Slot) -> bool:
        action = slot.action
        return (
            action is not None
            and (slot.group_id, action.target_id, action.course) == (self.source_id, self.target_id, self.course)
            # A slot that was cancelled and sent on its way again waits for the next batch.
            and (self.state is SlotState.PENDING or action.state is not SlotState.PENDING)
        )


def whole_replicas(table: SlotTable, group_id: int, avoided: Collection[str] = ()) -> tuple[str, ...]:
    """The replicas of a group that are not known to differ from their master, without those to be ``avoided``. A copy
    may follow one of them."""
    group = table.groups.get(group_id)
    if group is None:
        return ()
    return tuple(server for server in group.replicas if server not in group.unread and server not in avoided)


def next_batches(
    state: ClusterState,
    running: Iterable[Batch],
    most_slots: int,
    begin: bool,
    deferred: Collection[Pair] = (),
    share: bool = False,
    alone: Collection[Pair] = (),
) -> list[Batch]:
    """Batches that can start beside the ``running`` ones.

    Slots that are further than ``pending`` and in no running batch were left by a topom that ended, or were taken from
    their batch by an operator. They come first, as the batch that they were. Those that were copied only come to rest
    or are ``pending`` again: their batch ends with that, and no other one begins in their groups before. If new work
    may ``begin``, pending slots follow by ascending id, at most ``most_slots`` in a batch, without those of
    ``deferred`` pairs. If slots may be copied, batches ``share`` a source, but for those that are to be ``alone``.
    Skipped slots are passed over.
    """
    running = list(running)
    taken = {slot for batch in running for slot in batch.slots}
    busy = {group for batch in running for group in batch.groups}
    busy |= {group.id for group in state.table.groups.values() if group.locked}
    work = _work(state, taken)
    gatherings: dict[int, list[Batch]] = {}
    batches: list[Batch] = []

    def add(candidates: Mapping[Kind, list[int]], most: int | None) -> None:
        for (source_id, target_id, course, action_state, _), slots in sorted(candidates.items(), key=_in_turn):
            pair = source_id, target_id
            others: list[Batch] = []
            if action_state is SlotState.PENDING and share and pair not in alone and source_id != OFFLINE:
                others = gatherings.setdefault(source_id, others)
            used = {source_id, target_id} - {OFFLINE}
            if others and len(others) < MOST_OF_A_STREAM:
                used.remove(source_id)
            if used & busy:
                continue
            batch = Batch(source_id, target_id, tuple(slots[:most]), action_state, course)
            if others:
                batch.begin_with(others[0])
            elif any(slot in work.copied for slot in batch.slots):
                batch.gathering.close()
            others.append(batch)
            busy.update(batch.groups)
            batches.append(batch)

    add(work.left, None)
    busy |= work.held
    if begin:
        # Proxies still move keys of skipped slots, so no batch begins that would send keys the opposite way.
        against = {(target_id, source_id) for source_id, target_id in work.aside}
        passed_over = against | set(deferred)
        add({kind: slots for kind, slots in work.waiting.items() if kind[:2] not in passed_over}, most_slots)
    return batches


@dataclass
class _Work:
    """Slots with actions that are in no running batch. ``left`` are further than pending, ``waiting`` are pending."""

    left: dict[Kind, list[int]] = field(default_factory=dict)
    waiting: dict[Kind, list[int]] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)
    """Those of both that were copied."""
    held: set[int] = field(default_factory=set)
    """The groups of those."""
    aside: set[Pair] = field(default_factory=set)
    """The pairs between which skipped slots are moving."""


def _work(state: ClusterState, taken: Collection[int]) -> _Work:
    work = _Work()
    for slot in state.table.slots:
        action = slot.action
        if action is None or slot.id in taken:
            continue
        if slot.id in state.skipped:
            if action.state is SlotState.MIGRATING:
                work.aside.add((slot.group_id, action.target_id))
            continue
        found = work.waiting if action.state is SlotState.PENDING else work.left
        if action.copy:
            work.copied.add(slot.id)
            work.held |= {slot.group_id, action.target_id}
        kind = slot.group_id, action.target_id, action.course, action.state, action.beginning
        found.setdefault(kind, []).append(slot.id)
    return work


def _in_turn(candidate: tuple[Kind, list[int]]) -> tuple[int, bool, int]:
    """Slots that are locked come before others of their course: clients wait for them."""
    (_, _, course, state, _), slots = candidate
    return IN_TURN.index(course), state is not SlotState.PREPARED, slots[0]


def pending_slots(state: ClusterState, pair: Pair) -> list[int]:
    """Slots that wait to go this way, without those that are skipped."""
    return [
        slot.id
        for slot in state.table.slots
        if slot.action is not None
        and slot.action.state is SlotState.PENDING
        and (slot.group_id, slot.action.target_id) == pair
        and slot.id not in state.skipped
    ]


def share_of(table: SlotTable, group_id: int, slots: Collection[int]) -> float:
    """Which part of a group master's data is in these of its slots, from 0 to 1, if all slots are alike."""
    held = sum(slot.group_id == group_id for slot in table.slots)
    return min(1.0, len(slots) / held) if held else 0.0


def servers_of(table: SlotTable, source_id: int, target_id: int) -> Collection[str]:
    """Servers at which a proxy with an older table could do harm to slots on this way.

    If the source has no servers, the slots may have had any owner before, so these are all servers.
    """
    if table.master_of(source_id) is None:
        return all_servers(table)
    return [*table.groups[source_id].servers, *table.groups[target_id].servers]
