"""No key is missed by a SCAN over all groups, whatever moves meanwhile: the walk against a model of servers.

The model has servers as sets of keys in buckets, slots that move key by key between any two pages, or by a copy all at
once, workers that hear of each table at their own time (held to by the barrier, or fenced), start anew, and take turns
in serving one scan.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from proxy.commands.keyspace.listedkeys import ShownSlots
from proxy.commands.keyspace.moves import Moves
from proxy.commands.keyspace.scancursor import EPOCHS, Cursor, CursorError
from proxy.commands.keyspace.scanwalk import FIRST, OLDEST, Walk
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.searching import examples

SLOTS = 4
GROUPS = (1, 2, 3, 7)
KEYS = 16
BUCKETS = 4
WORKERS = 3
MOST_PAGES = 200

slots = st.integers(0, SLOTS - 1)
groups = st.sampled_from(GROUPS)
workers = st.integers(0, WORKERS - 1)


@dataclass
class Worker:
    """One worker: what it has seen, the tables it has yet to put in force, the groups whose servers shut it out."""

    moves: Moves = field(default_factory=Moves)
    waiting: deque[SlotTable] = field(default_factory=deque)
    fenced_at: set[int] = field(default_factory=set)
    identity: int = 0

    def __post_init__(self) -> None:
        self.walk = Walk(self.moves)

    def take(self, table: SlotTable) -> None:
        self.moves.take(table, str(self.identity))


class Servers(RuleBasedStateMachine):
    """Slots, keys and workers; the scan that is under way, and what it has to return."""

    make_worker: Callable[[], Worker] = Worker

    def __init__(self) -> None:
        super().__init__()
        # Where each key is. A master's number changes when the group gets another master.
        self.at: dict[int, int] = {}
        self.masters = dict.fromkeys(GROUPS, 0)
        self.locked_at = dict.fromkeys(range(SLOTS), 0)
        self.cursor = 0
        self.expected: set[int] = set()
        self.returned: set[int] = set()

    @initialize(owners=st.lists(groups, min_size=SLOTS, max_size=SLOTS), keys=st.sets(st.integers(0, KEYS - 1)))
    def start(self, owners: list[int], keys: set[int]) -> None:
        at_rest = tuple(Slot(index, owner) for index, owner in enumerate(owners))
        self.table = SlotTable(EPOCHS - 5, at_rest, {group: self.group(group) for group in GROUPS})
        self.workers = [self.make_worker() for _ in range(WORKERS)]
        for worker in self.workers:
            worker.take(self.table)
        self.at = {key: owners[key % SLOTS] for key in keys}

    def group(self, group_id: int) -> Group:
        return Group(group_id, (f"server-{group_id}-{self.masters[group_id]}:1",))

    def store(self, *changed: Slot, grown: int = 1) -> None:
        """A new table, which the workers hear of later."""
        self.table = self.table.changed(self.table.epoch + grown, changed, [self.group(group) for group in GROUPS])
        for worker in self.workers:
            if not worker.fenced_at:
                worker.waiting.append(self.table)

    def action(self, slot: int) -> tuple[SlotState | None, int, int]:
        """State, source and target of a slot."""
        found = self.table.slots[slot]
        return (found.action.state, found.group_id, found.action.target_id) if found.action else (None, 0, 0)

    # -- slots move ----------------------------------------------------------------------------------------

    @rule(slot=slots, to=groups, copied=st.booleans())
    def lock(self, slot: int, to: int, copied: bool = False) -> None:
        state, source = self.action(slot)[0], self.table.slots[slot].group_id
        if state is None and source != to:
            self.store(Slot(slot, source, Action(SlotState.PREPARED, to, copy="copy" if copied else "")))
            self.locked_at[slot] = self.table.epoch

    @rule(slot=slots)
    def roll_back(self, slot: int) -> None:
        state, source, target = self.action(slot)
        if state is SlotState.PREPARED:
            self.store(Slot(slot, source, Action(SlotState.PREPARING, target)))
        elif state is SlotState.PREPARING:
            self.store(Slot(slot, source))

    @rule(slot=slots, fence=st.booleans())
    def begin_to_move(self, slot: int, fence: bool) -> None:
        """The barrier: every worker has put the lock in force, or those that have not are shut out."""
        state, source, target = self.action(slot)
        if state is not SlotState.PREPARED:
            return
        late = [worker for worker in self.workers if worker.moves.epoch < self.locked_at[slot] or worker.fenced_at]
        if not fence and any(not worker.fenced_at for worker in late):
            return
        for worker in late:
            worker.fenced_at |= {source, target}
            worker.waiting.clear()
        action = self.table.slots[slot].action
        if action is None or not action.copy:
            self.store(Slot(slot, source, Action(SlotState.MIGRATING, target)))
            return
        # A copy becomes the owner's at once, and what the source has of it is seen no more.
        self.store(Slot(slot, source, replace(action, state=SlotState.FINISHED)))
        for key in self.at:
            if key % SLOTS == slot:
                self.at[key] = target

    @rule(slot=slots, some=st.integers(0, 2**KEYS - 1))
    def move_keys(self, slot: int, some: int) -> None:
        state, source, target = self.action(slot)
        if state is SlotState.MIGRATING:
            for key, group in self.at.items():
                if key % SLOTS == slot and group == source and some >> key & 1:
                    self.at[key] = target

    @rule(slot=slots)
    def move_all_keys(self, slot: int) -> None:
        self.move_keys(slot, 2**KEYS - 1)

    @rule(slot=slots)
    def finish(self, slot: int) -> None:
        state, source, target = self.action(slot)
        left = any(key % SLOTS == slot and group == source for key, group in self.at.items())
        if state is SlotState.MIGRATING and not left:
            self.store(Slot(slot, source, Action(SlotState.FINISHED, target)))
        elif state is SlotState.FINISHED:
            self.store(Slot(slot, target))

    @rule(slot=slots, to=groups, copied=st.booleans())
    def move_whole_slot(self, slot: int, to: int, copied: bool = False) -> None:
        """All at once, because the single states seldom come together by chance."""
        self.lock(slot, to, copied)
        for worker in range(WORKERS):
            self.apply(worker, 99)
        self.begin_to_move(slot, fence=False)
        self.move_all_keys(slot)
        self.finish(slot)
        self.finish(slot)

    @rule(group=groups)
    def replace_master(self, group: int) -> None:
        """The new master has the data, but gives it in another order."""
        self.masters[group] += 1
        self.store()

    @rule(grown=st.sampled_from([1, 100, OLDEST // 3, OLDEST, EPOCHS]))
    def time_passes(self, grown: int) -> None:
        # If a client waits longer than cursors remember, nothing is promised.
        if not self.cursor or grown < EPOCHS // 2:
            self.store(grown=grown)
            for worker in range(WORKERS):
                self.apply(worker, 99)
            if self.cursor:
                self.page(0)

    # -- workers -------------------------------------------------------------------------------------------

    @rule(worker=workers, tables=st.integers(1, 4))
    def apply(self, worker: int, tables: int) -> None:
        """A worker may hear of several tables as of one."""
        waiting = self.workers[worker].waiting
        table = None
        for _ in range(min(tables, len(waiting))):
            table = waiting.popleft()
        if table is not None:
            self.workers[worker].take(table)

    @rule(worker=workers)
    def start_anew(self, worker: int) -> None:
        """A worker dies; or, fenced, gets another identity and the newest table."""
        old = self.workers[worker]
        if old.fenced_at:
            old.fenced_at = set()
            old.identity += 1
            old.take(self.table)
        else:
            self.workers[worker] = self.make_worker()
            self.workers[worker].take(self.table)

    # -- keys and the scan ---------------------------------------------------------------------------------

    @rule(key=st.integers(0, KEYS - 1))
    def create_or_delete(self, key: int) -> None:
        if self.at.pop(key, None) is None:
            self.at[key] = self.table.slots[key % SLOTS].owner_id
        self.expected.discard(key)

    @rule(worker=workers)
    def page(self, worker: int) -> None:
        """One SCAN by any worker."""
        asked = self.workers[worker]
        if asked.moves.switching:
            # It waits for a newer table.
            self.apply(worker, 99)
            if asked.moves.switching:
                return
        if not self.cursor:
            self.expected = set(self.at)
            self.returned = set()
            cursor = asked.walk.begin()
        else:
            cursor = asked.walk.resume(Cursor.unpack(self.cursor))
        assert cursor is not None
        if not self.answers(asked, cursor.group):
            return
        position = self.scan_server(cursor, asked.moves.shown)
        if not position and not all(self.answers(asked, group) for group in asked.moves.masters):
            return
        cursor = asked.walk.advance(cursor, position)
        self.cursor = cursor.pack() if cursor is not None else 0
        if cursor is None:
            missed = self.expected - self.returned
            assert not missed, f"missed keys {missed}"
        else:
            assert 0 < self.cursor < 2**63

    def answers(self, worker: Worker, group: int) -> bool:
        """Whether a group's server answers; else the client gets an error, and asks again with the same cursor."""
        known = worker.moves.masters.get(group)
        return group not in worker.fenced_at and known in (None, self.group(group).master)

    def scan_server(self, cursor: Cursor, shown: ShownSlots) -> int:
        """Return the keys of a bucket, or of all that follow, that the worker shows; where the server goes on."""
        position = cursor.position
        master = self.group(cursor.group).master or ""
        pages = 1 if cursor.number == FIRST else BUCKETS
        for _ in range(pages):
            if position < BUCKETS:
                self.returned |= {
                    key
                    for key, group in self.at.items()
                    if group == cursor.group and self.bucket(key) == position and shown.has(master, key % SLOTS)
                }
            position += 1
        return position if position < BUCKETS else 0

    def bucket(self, key: int) -> int:
        """Where a key is at its server; each master has another order."""
        group = self.at[key]
        return crc32(b"%d %d %d" % (key, group, self.masters[group])) % BUCKETS

    @precondition(lambda self: self.cursor)
    @rule(worker=workers, pages=st.integers(2, 12))
    def pages(self, worker: int, pages: int) -> None:
        for _ in range(pages):
            if self.cursor:
                self.page(worker)

    def teardown(self) -> None:
        """Once nothing moves any more, a scan ends."""
        if not hasattr(self, "workers"):
            return
        for worker in range(WORKERS):
            self.apply(worker, 999)
            if self.workers[worker].fenced_at:
                self.start_anew(worker)
        for slot in range(SLOTS):
            self.settle(slot)
        served = 0
        while self.cursor:
            self.page(served % WORKERS)
            served += 1
            assert served < MOST_PAGES, "the scan does not end"

    def settle(self, slot: int) -> None:
        for _ in range(4):
            self.roll_back(slot)
            self.move_all_keys(slot)
            self.finish(slot)
        for worker in range(WORKERS):
            self.apply(worker, 999)


@pytest.mark.long
def test_no_key_is_missed() -> None:
    thorough = settings(
        max_examples=examples(200), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Servers, settings=thorough)


class ForgetsMoves(Moves):
    """As if nothing had moved."""

    def backward_since(self, epoch: int) -> int:
        return 0


class CountsOneMove(Moves):
    """As if no slot moved backward twice."""

    def backward_since(self, epoch: int) -> int:
        return min(super().backward_since(epoch), 1)


class OnlyWhatBegan(Moves):
    """As if a move that was under way when the scan began did not count."""

    def backward_since(self, epoch: int) -> int:
        return sum(ended > epoch for ended in self._lately)


class KnowsThePast(Moves):
    """As if a worker that was just started had seen everything."""

    def take(self, table: SlotTable, identity: str) -> None:
        super().take(table, identity)
        self.known_since = 0


class OverlooksCopies(Moves):
    """As if only slots in ``migrating`` were on their way."""

    def take(self, table: SlotTable, identity: str) -> None:
        others = (slot for slot in table.slots if not (slot.action and slot.action.copy))
        known = {slot.id: slot for slot in self._table.slots} if self._table is not None else {}
        seen = {slot.id: slot for slot in others}
        kept = tuple(seen.get(slot.id, known.get(slot.id, slot)) for slot in table.slots)
        super().take(SlotTable(table.epoch, kept, table.groups), identity)


class OverlooksMasters(Moves):
    """As if a cursor meant the same to every master."""

    def take(self, table: SlotTable, identity: str) -> None:
        super().take(table, identity)
        self.masters_changed = 0


def machine(moves: type[Moves], *owners: int) -> Servers:
    """A model that a test leads step by step. Keys 0 to 3 are of slots 0 to 3, and so on."""
    made = Servers()
    made.make_worker = lambda: Worker(moves())  # type: ignore[method-assign, assignment]
    made.start(owners=list(owners), keys=set(range(KEYS)))
    return made


def apply_all(made: Servers) -> None:
    for worker in range(WORKERS):
        made.apply(worker, 99)


def until_group(made: Servers, group: int, worker: int = 0) -> None:
    """Scan up to the beginning of a group."""
    while not made.cursor or (found := Cursor.unpack(made.cursor)).group < group or found.position:
        made.page(worker)


def until_over(made: Servers, worker: int = 0) -> None:
    made.page(worker)
    while made.cursor:
        made.page(worker)


def a_move_after_its_target_was_scanned(made: Servers) -> None:
    until_group(made, 2)
    made.move_whole_slot(0, 1)
    until_over(made)


def a_copy_after_its_target_was_scanned(made: Servers) -> None:
    until_group(made, 2)
    made.move_whole_slot(0, 1, copied=True)
    until_over(made)


def a_move_that_was_under_way(made: Servers) -> None:
    made.lock(0, 1)
    apply_all(made)
    made.begin_to_move(0, fence=False)
    apply_all(made)
    until_group(made, 2)
    made.move_all_keys(0)
    until_over(made)


def a_slot_that_moves_to_and_fro(made: Servers) -> None:
    until_group(made, 2)
    made.move_whole_slot(0, 1)
    while Cursor.unpack(made.cursor).number == FIRST:
        made.page(0)
    made.move_whole_slot(0, 3)
    until_group(made, 2)
    made.move_whole_slot(0, 1)
    until_over(made)


def a_worker_that_was_started_since(made: Servers) -> None:
    until_group(made, 2)
    made.move_whole_slot(0, 1)
    made.start_anew(1)
    until_over(made, worker=1)


def another_master(made: Servers) -> None:
    made.page(0)
    made.replace_master(1)
    apply_all(made)
    until_over(made)


@pytest.mark.parametrize(
    ("broken", "story"),
    [
        (ForgetsMoves, a_move_after_its_target_was_scanned),
        (ForgetsMoves, a_copy_after_its_target_was_scanned),
        (OverlooksCopies, a_copy_after_its_target_was_scanned),
        (OnlyWhatBegan, a_move_that_was_under_way),
        (CountsOneMove, a_slot_that_moves_to_and_fro),
        (KnowsThePast, a_worker_that_was_started_since),
        (OverlooksMasters, another_master),
    ],
)
def test_what_a_worker_has_to_know(broken: type[Moves], story: Callable[[Servers], None]) -> None:
    """Each thing that a worker knows saves a key: without it, the key is missed."""
    story(machine(Moves, 3, 1, 2, 2))
    with pytest.raises(AssertionError, match="missed keys"):
        story(machine(broken, 3, 1, 2, 2))


def test_a_worker_that_is_fenced_off_somewhere_makes_no_step() -> None:
    made = machine(Moves, 2, 1, 7, 7)
    until_group(made, 2)
    made.lock(0, 1)
    made.apply(0, 99)
    made.begin_to_move(0, fence=True)
    made.move_all_keys(0)
    made.apply(0, 99)
    until_group(made, 7)
    for _ in range(3 * BUCKETS):
        # It knows nothing of the move, and the server of this group answers it.
        made.page(1)
    assert Cursor.unpack(made.cursor).group == 7
    until_over(made)


def test_a_long_move_costs_one_more_pass() -> None:
    """It does not cost as many passes as there are pages before the move is over."""
    made = machine(Moves, 3, 1, 2, 2)
    made.lock(0, 1)
    apply_all(made)
    made.begin_to_move(0, fence=False)
    apply_all(made)
    until_over(made)
    assert made.action(0)[0] is SlotState.MIGRATING


@pytest.mark.parametrize("copied", [False, True])
def test_moves_forward_cost_no_pass(copied: bool) -> None:
    made = machine(Moves, 1, 1, 2, 2)
    until_group(made, 2)
    made.move_whole_slot(0, 2, copied)
    made.lock(2, 7)
    numbers = set()
    while made.cursor:
        numbers.add(Cursor.unpack(made.cursor).number)
        made.page(0)
    assert numbers == {FIRST}


@pytest.mark.parametrize("copied", [False, True])
def test_what_was_rolled_back_costs_no_pass(copied: bool) -> None:
    made = machine(Moves, 2, 1, 2, 2)
    until_group(made, 2)
    made.lock(0, 1, copied)
    apply_all(made)
    made.roll_back(0)
    apply_all(made)
    numbers = set()
    while made.cursor:
        numbers.add(Cursor.unpack(made.cursor).number)
        made.page(0)
    assert numbers == {FIRST}


@given(
    st.builds(Cursor, st.integers(0, 3), st.integers(0, EPOCHS - 1), st.integers(1, 16383), st.integers(0, 2**32 - 1))
)
def test_a_cursor_is_one_number(cursor: Cursor) -> None:
    assert 0 < cursor.pack() < 2**63
    assert Cursor.unpack(cursor.pack()) == cursor


@given(
    st.builds(Cursor, st.integers(0, 3), st.integers(0, EPOCHS - 1), st.integers(1, 16383), st.integers(0, 2**22 - 1))
)
def test_a_cursor_of_some_million_keys_is_exact_in_floating_point(cursor: Cursor) -> None:
    """JavaScript and Lua have only floating-point numbers."""
    assert cursor.pack() < 2**53
    assert Cursor.unpack(int(float(cursor.pack()))) == cursor


def test_what_does_not_fit_into_a_cursor_is_said() -> None:
    with pytest.raises(CursorError, match="group of id 16384"):
        Cursor(0, 0, 16384, 0).pack()
    with pytest.raises(CursorError, match=r"server of group 5 gave the cursor 4294967296"):
        Cursor(0, 0, 5, 2**32).pack()


@given(st.integers(0, 2**63 - 1))
def test_any_number_may_be_sent_for_a_cursor(packed: int) -> None:
    made = machine(Moves, 3, 1, 2, 2)
    made.cursor = packed
    made.expected = set()
    for _ in range(4 * BUCKETS):
        if made.cursor:
            made.page(0)
