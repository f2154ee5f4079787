"""All that topom remembers, as one value that never changes: the slot table, the product, members, settings.

A change makes a new :class:`ClusterState` of a larger version; the ledger stores it before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from slots.group import host_of
from slots.keyslots import KeySlots
from slots.messages.message import Product
from slots.slot import OFFLINE
from slots.table import SlotTable
from topom.cluster import hours
from topom.cluster.departures import Departures
from topom.cluster.events import Event
from topom.cluster.hours import Halt
from topom.cluster.lineage import Start
from topom.cluster.placement_run import NOTHING_KEPT, Kept
from topom.cluster.speed import PairSpeed
from topom.reasons import Kind, Reason


@dataclass(frozen=True, slots=True)
class ProxyRecord:
    """A proxy that is a member. ``instance`` is the id that the process made at its start, 32 hex digits.

    ``address`` is ``host:port`` for clients, ``hostname`` and ``pid`` tell the operator where it runs,
    ``workers`` is its number of worker processes, ``version`` that of its program. ``draining``: the proxy lets its
    clients go, or has been told to, and then leaves. ``stand_down`` is the allowance in seconds by which it surely
    stands down when it hears nobody (:mod:`topom.proxies.standdown`), or a longer time than that; None if that is not
    sure.
    """

    id: int
    instance: str
    address: str
    hostname: str
    pid: int
    workers: int
    version: str
    draining: bool = False
    stand_down: float | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """A proxy that may still run, and that must not reach servers from now on (:mod:`topom.cluster.fences`).

    ``number`` counts fences as they are stored; ``stand_down`` is as it was in its record.
    """

    instance: str
    proxy_id: int
    number: int = 0
    stand_down: float | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """A process of a server, by its run id, and the ``number`` up to which it has the fences."""

    process: str
    number: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """What is leaving: its ``kind``, its id, why, and since when (1970, UTC).

    A ``group`` (:mod:`topom.leaving.groups`) has its number as its id, a ``server`` (:mod:`topom.leaving.servers`) its
    address, a ``node`` (:mod:`topom.leaving.nodes`) its name. For a node, ``copies`` says how many servers each of its
    groups has to keep, by the group's number.
    """

    kind: Literal["group", "server", "node"]
    id: str
    why: str
    since: float
    copies: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """Its key in :attr:`ClusterState.leaving`."""
        return self.key_of(self.kind, self.id)

    @staticmethod
    def key_of(kind: str, id: str) -> str:
        """The key of what has this kind and id."""
        return f"{kind}/{id}"


@dataclass(frozen=True, slots=True)
class Joining:
    """A replica that was not seen whole yet (:mod:`topom.copies.joining`). ``wipe``: the keys that it had may be lost.

    ``again``: it was whole once, and has stopped following its master (:mod:`topom.copies.strays`). ``anew``: it is to
        forget what it has, and ``told`` is the run id of the process that was told so. A later process of the server
        may have the old data again.
    ``copy_of`` is as it was in the pool.
    """

    address: str
    wipe: bool = False
    again: bool = False
    anew: bool = False
    told: str = ""
    copy_of: int | None = None


@dataclass(frozen=True, slots=True)
class Differs:
    """What is known against a replica of a group (:mod:`topom.cluster.differing`).

    A check found that ``keys`` of its keys differ from its master's, in ``slots`` slots. ``named`` gives the first of
    these slots; ``at`` is when, in seconds since 1970, UTC.
    """

    server: str
    group: int
    keys: int
    slots: int = 0
    named: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolServer:
    """A server that is in no group and that a group may take (:mod:`topom.placement`).

    ``node`` is the host that it runs on, empty where nobody said; ``datacenter`` likewise. ``wipe`` says that what it
    holds may be lost, for a server that becomes a replica loses what it holds. Without ``wipe`` it is only taken while
    it holds no key. ``copy_of`` is the group of which it has a copy, if that and not an operator is why it may be
    wiped: its data may be lost as long as the group's master has it.
    """

    address: str
    node: str = ""
    datacenter: str = ""
    wipe: bool = False
    copy_of: int | None = None

    @property
    def node_name(self) -> str:
        """Name of its node; the host of its address where nobody said."""
        return self.node or host_of(self.address)


@dataclass(frozen=True, slots=True)
class Promotion:
    """The latest change of a group's master. It is kept until all of the group's servers that answer follow the master.

    ``server`` is the one to be master, ``former`` the master before. The slot table says whether the master is decided:
    the group is locked until then. ``earlier`` are other servers of the group, from changes that were not over when
    this one began: they may still say that they are masters. ``run_id`` is that of the process that was chosen to be
    master; empty where that is not known.
    """

    server: str
    former: str
    earlier: tuple[str, ...] = ()
    run_id: str = ""

    def __post_init__(self) -> None:
        # Stores know lists but no tuples.
        object.__setattr__(self, "earlier", tuple(self.earlier))

    @property
    def concerned(self) -> frozenset[str]:
        """The servers of this change, and of the changes before it."""
        return frozenset({self.server, self.former, *self.earlier})


@dataclass(frozen=True, slots=True)
class Noted:
    """How far a group's master, a ``server``, was in its stream of writes (:mod:`topom.masters.offsets`)."""

    server: str
    stream: str
    offset: int


@dataclass(frozen=True, slots=True)
class Lifting:
    """That an operator lifted protection mode (:mod:`topom.cluster.protection`), until the members lost then are back.

    ``by`` is the operator as events name them, ``at`` is when (1970, UTC); ``lost`` of ``members`` were lost.
    """

    by: str
    at: float
    lost: int
    members: int


@dataclass(frozen=True, slots=True)
class Pause:
    """That an operator has topom do nothing by itself (:mod:`topom.cluster.hands_off`): who, when (1970, UTC), and why.

    ``why`` is empty where nobody said.
    """

    by: str
    at: float
    why: str

    @property
    def reason(self) -> Reason:
        """The reason why all that topom does by itself waits."""
        why = f" ({self.why})" if self.why else ""
        to_do = "'slotferry resume' lets it act by itself again"
        return Reason(Kind.PAUSED, f"{self.by} has paused topom{why}", self.at, to_do)


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The plan that was begun last (:mod:`topom.balance.rebalancing`): its policy, who asked, and when (1970, UTC).

    ``capacity`` has the weights of groups that the last plan by bytes or load was asked for, by group.
    """

    policy: str
    by: str
    at: float
    capacity: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """How migrations run. A rate or a latency goal of 0 is none; no hours are always, no time zone is local time.
    ``way`` is ``keys``, ``stream`` or ``auto``."""

    parallel_slots: int
    keys_per_second: int
    bytes_per_second: int
    paused: bool = False
    latency_goal_milliseconds: float = 0.0
    hours: str = ""
    time_zone: str = ""
    min_replicas: int = 0
    way: str = "keys"


@dataclass(frozen=True)
class ClusterState:
    """``version`` counts the writes to the store; ``table.epoch`` is the version that last changed the table.

    One counter for both means that an epoch never comes twice, and that the store's compare-and-swap on the
    version is one on the epoch as well (**epochs**).

    ``writer`` is the id of the topom process that wrote this, made at its start, and ``term`` the term for which it
    leads, 0 where no other topom uses the store. ``migration_changes`` holds what an operator set over the configured
    migration settings. Proxies are by id, fenced ones by instance. ``skipped`` holds the slots whose actions step aside
    until an operator retries them, and why they do. ``moved`` says when each slot that was ever moved last came to
    rest, in seconds since 1970, UTC; ``speed`` how fast keys moved then; ``departures`` which groups they have left
    within a day (:mod:`topom.cluster.departures`). ``promotions`` holds the changes of masters that are not over, by
    group. ``events`` are the newest ones, by id (:mod:`topom.cluster.events`). ``assigned`` is whether any slot ever
    had a group, now or before. ``leaving`` lists what is leaving. ``sentinels`` are the addresses of the Sentinels,
    once an operator has added or removed one; None until then, while those in the settings count. ``pool`` holds the
    servers that are in no group, by address; none of them is in a group of the table. ``joining`` has the replicas that
    have not been seen whole yet. ``protection_lifted`` says that an operator has lifted protection mode, while that
    holds, and ``pause`` that one has paused topom. ``placement`` is the placement under way, and whether topom places
    by itself (:mod:`topom.placement`). ``priorities`` has, by address, the former ``replica-priority`` of servers that
    Sentinels are kept from electing (:mod:`topom.masters.sentinels.electable`). ``last_fence`` is the number of the
    newest fence; ``marked`` says which servers have fences. ``came`` has, by address, the number of a fence: the
    proxies fenced up to it may not have the server in their tables (:mod:`topom.cluster.fences`). ``differing`` has, by
    address, what is known against replicas, and ``offsets`` has how far the masters of groups were. ``data_ids`` has,
    by group, the id of its data once a scan has found no foreign key there, and ``sweeping``, by address, the sweeps
    that may be deleting such keys (:mod:`topom.migration.sweeping`). ``leftovers`` has, by group, the slots of which it
    may have old keys, each with the version that stored its switch (:mod:`topom.cluster.leftovers`). ``unwatched`` has
    the servers that came to their groups since every proxy was last known to have the table
    (:mod:`topom.proxies.standdown`). ``run_ids`` has, by address, the run id under which each known server was last
    seen (:mod:`topom.servers.identities`). ``last_plan`` is the plan that was begun last; None before the first.
    ``cluster_id`` and ``seal_key`` were made with the store, and nobody is told the key. ``starts`` are the latest
    starts; ``older`` says what proves that this is not the newest state, and is empty while nothing does
    (:mod:`topom.cluster.lineage`).
    ``users`` has the users of clients that topom keeps, by name: for each, those fields of
    :class:`slots.users.UserSettings` that have not their default, also such that only a later version knows.
    ``users_version`` is the version that last changed them; 0 if none did.
    ``offline_since`` is when the first of the slots that are offline lost its owner, in seconds since 1970, UTC; None
    if none is, and if that is not known.
    """

    version: int
    writer: str
    product: Product
    table: SlotTable
    term: int = 0
    next_proxy_id: int = 1
    proxies: Mapping[int, ProxyRecord] = field(default_factory=dict)
    fenced: Mapping[str, Fenced] = field(default_factory=dict)
    migration_changes: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[int, Reason] = field(default_factory=dict)
    moved: Mapping[int, float] = field(default_factory=dict)
    departures: Departures = field(default_factory=dict)
    speed: PairSpeed | None = None
    promotions: Mapping[int, Promotion] = field(default_factory=dict)
    sentinels: tuple[str, ...] | None = None
    events: tuple[Event, ...] = ()
    assigned: bool = False
    leaving: Mapping[str, Leaving] = field(default_factory=dict)
    pool: Mapping[str, PoolServer] = field(default_factory=dict)
    joining: Mapping[str, Joining] = field(default_factory=dict)
    protection_lifted: Lifting | None = None
    pause: Pause | None = None
    placement: Kept = NOTHING_KEPT
    priorities: Mapping[str, int] = field(default_factory=dict)
    differing: Mapping[str, Differs] = field(default_factory=dict)
    offsets: Mapping[int, Noted] = field(default_factory=dict)
    unwatched: frozenset[str] = frozenset()
    last_fence: int = 0
    marked: Mapping[str, Marked] = field(default_factory=dict)
    came: Mapping[str, int] = field(default_factory=dict)
    run_ids: Mapping[str, str] = field(default_factory=dict)
    data_ids: Mapping[int, str] = field(default_factory=dict)
    sweeping: Mapping[str, str] = field(default_factory=dict)
    leftovers: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    last_plan: LastPlan | None = None
    cluster_id: str = ""
    seal_key: str = ""
    starts: tuple[Start, ...] = ()
    older: str = ""
    offline_since: float | None = None
    users: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    users_version: int = 0

    @cached_property
    def key_slots(self) -> KeySlots:
        """Which slot each key has."""
        return self.table.key_slots(self.product.slot_function)

    def with_assigned(self) -> ClusterState:
        """This state, in which :attr:`assigned` is true if it was so before, or if its table says so."""
        assigned = self.assigned or any(slot.destination_id != OFFLINE for slot in self.table.slots)
        return self if assigned is self.assigned else replace(self, assigned=assigned)

    def with_offline_since(self, old: ClusterState | None, now: float) -> ClusterState:
        """This state, that follows ``old``, in which :attr:`offline_since` is what its table says."""
        if old is not None and old.table.slots is self.table.slots:
            return self
        since = self.offline_since
        if not _some_offline(self.table):
            since = None
        elif old is None or not _some_offline(old.table):
            since = now
        return self if since == self.offline_since else replace(self, offline_since=since)

    def migration(self, configured: MigrationSettings) -> MigrationSettings:
        """The migration settings that hold: the configured ones, with what an operator set over them.

        Settings that only another version knows are passed over.
        """
        held = asdict(configured)
        return MigrationSettings(**{name: self.migration_changes.get(name, held[name]) for name in held})

    def halt(self, configured: MigrationSettings) -> Halt | None:
        """Why no keys move now except those that clients ask for; None if keys may move."""
        if self.pause is not None:
            why = self.pause.reason
            return Halt(why.kind, why.what, why.to_do, since=why.since)
        settings = self.migration(configured)
        return hours.halt(settings.paused, settings.hours, settings.time_zone)


def _some_offline(table: SlotTable) -> bool:
    return any(slot.owner_id == OFFLINE for slot in table.slots)


def leaving_nodes(state: ClusterState) -> frozenset[str]:
    """Names of the nodes that are leaving."""
    return frozenset(entry.id for entry in state.leaving.values() if entry.kind == "node")


def leaving_servers(state: ClusterState) -> frozenset[str]:
    """Addresses of the servers that are leaving, by themselves or with their nodes."""
    listed = {entry.id for entry in state.leaving.values() if entry.kind == "server"}
    nodes = leaving_nodes(state)
    if nodes:
        listed |= {
            server
            for group in state.table.groups.values()
            for server in group.servers
            if group.node_of(server) in nodes
        }
    return frozenset(listed)


def leaving_groups(state: ClusterState) -> frozenset[int]:
    """Ids of the groups that are leaving."""
    return frozenset(int(entry.id) for entry in state.leaving.values() if entry.kind == "group")


def known_servers(state: ClusterState) -> list[str]:
    """Every server of every group, and those of the pool."""
    return [*(server for group in state.table.groups.values() for server in group.servers), *state.pool]
