"""Events: what an operator or topom did to the cluster, who, when, and the epoch of the slot table before and after.

An event is stored by the same write as the change that it tells of (:meth:`topom.cluster.ledger.Ledger.change`), so
there is no change without its event, and no event of a change that did not come about.
:mod:`topom.cluster.event_finding` finds the events of a change by comparing the state before with the state after.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from topom.reasons import Reason

MOST_TEXT = 500
"""Characters of an event's sentence."""
NAMED_BY = 8
"""Digits of a topom's instance by which events name it."""
MOST_WHO = 100
"""Characters of who did it."""

actor: ContextVar[str] = ContextVar("actor", default="")
"""The name of who asked for the change that is under way in this task; empty for topom itself."""


class What(StrEnum):
    """Every kind of event: its name, what an event of this kind tells, and the page of ``docs/`` that says more.

    The page of all kinds in the documents is made from this (``scripts/reference.py``).
    """

    meaning: str
    page: str

    def __new__(cls, name: str, meaning: str, page: str = "") -> Self:
        """The kind of this name."""
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.meaning = meaning
        kind.page = page
        return kind

    TOPOM_STARTED = (
        "topom_started",
        "a topom with a store of its own started, and writes to the store from now on; slots that were "
        "locked are unlocked",
    )
    TOPOM_LEADS = (
        "topom_leads",
        "of several topoms another one leads, in this term and at this URL, and writes to the store from now "
        "on; slots that were locked are unlocked",
        "several-topoms.md",
    )
    GROUP_ADDED = "group_added", "a group was added"
    GROUP_REMOVED = "group_removed", "a group was removed"
    SERVER_ADDED = "server_added", "a server was added to a group"
    SERVER_REMOVED = "server_removed", "a server was removed from a group"
    SERVER_CHANGED = "server_changed", "a server is in another datacenter, or on another node"
    SERVER_WHOLE = (
        "server_whole",
        "a server that joins a group as a replica, or joins it again, holds a whole copy",
        "joining.md#a-server-that-joins",
    )
    SERVER_STRAYED = (
        "server_strayed",
        "a replica does not follow its master any more; topom makes it a replica again if nothing is lost by that",
        "strays.md#a-replica-that-does-not-follow",
    )
    SERVER_TWICE = (
        "server_twice",
        "two addresses lead to one server; topom does nothing to it until you remove one of them",
        "servers-odd.md#one-server-by-two-addresses",
    )
    SERVER_SWEPT = (
        "server_swept",
        "foreign keys were removed from a master, and how many",
        "servers-odd.md#a-server-has-keys-that-are-not-its",
    )
    FOREIGN_KEYS = (
        "foreign_keys",
        "a master has keys of slots that other groups own, and only you know whether they are needed",
        "servers-odd.md#a-server-has-keys-that-are-not-its",
    )
    REPLICA_RESYNCED = (
        "replica_resynced",
        "a replica has a new copy from its master",
        "digest.md#a-replica-that-differs",
    )
    MASTER_CHANGED = "master_changed", "another server is the master of a group"
    GROUP_LOCKED = (
        "group_locked",
        "requests for a group wait while another server becomes its master",
        "high-availability.md",
    )
    GROUP_UNLOCKED = (
        "group_unlocked",
        "requests for a group go on, to the master that it has now",
        "high-availability.md",
    )
    FIRST_LAYOUT = "first_layout", "topom assigned the slots by itself (min_groups); slots_assigned says how"
    MASTER_NOT_REPLACED = (
        "master_not_replaced",
        "a master has failed, and why it is not replaced yet; at most once a minute for a group",
        "failover.md",
    )
    MASTER_LACKS_DATA = (
        "master_lacks_data",
        "topom does not tell a server to follow its group's master, because the master lacks what the server "
        "has: it came back empty, or with older data; the text says what you do; at most once a minute for a "
        "server",
        "strays.md#a-master-that-comes-back-with-less",
    )
    SERVER_FAILED = (
        "server_failed",
        "servers failed by the majority of views, with the number of views in which they are silent; one "
        "event names all that are found at a time, and a new leader repeats it for those that it finds failed",
        "failover.md#which-servers-have-failed",
    )
    SERVER_BACK = "server_back", "as many views hear servers again as do not", "failover.md#which-servers-have-failed"
    RULES_CHANGED = "rules_changed", "the product has other slot rules, and which", "slot-rules.md"
    DIGEST_BEGUN = "digest_begun", "replicas are compared with their master", "digest.md"
    DIGEST_ENDED = "digest_ended", "how many keys of a replica differ from its master's", "digest.md"
    RESYNC_BEGUN = (
        "resync_begun",
        "replicas will get a new copy from their master; it is stored before they are told, and "
        "replica_resynced follows when one is whole",
        "digest.md#a-replica-that-differs",
    )
    SLOTS_ASSIGNED = "slots_assigned", "slots were given to a group at once"
    SLOTS_OFFLINE = "slots_offline", "slots were taken from their group"
    REBALANCE_PLANNED = (
        "rebalance_planned",
        "a plan was made and begun; slots_pending names the slots",
        "rebalancing.md",
    )
    REBALANCE_WAITS = (
        "rebalance_waits",
        'slots would move by themselves (rebalance = "auto"), and why they do not; at most once an hour for one reason',
        "automatic-rebalancing.md",
    )
    SLOTS_PENDING = "slots_pending", "slots wait to move to a group", "architecture-slot.md#one-slot-through-its-states"
    SLOTS_COPYING = "slots_copying", "slots that are to move are being copied by the replication stream", "following.md"
    SLOTS_PREPARING = (
        "slots_preparing",
        "slots are about to be locked",
        "architecture-slot.md#one-slot-through-its-states",
    )
    SLOTS_LOCKED = (
        "slots_locked",
        "slots are locked: requests for them wait",
        "architecture-slot.md#one-slot-through-its-states",
    )
    SLOTS_UNLOCKED = (
        "slots_unlocked",
        "a lock was given up, and is tried again",
        "architecture-slot.md#one-slot-through-its-states",
    )
    SLOTS_MOVING = "slots_moving", "slots are the target's, and their keys are being moved", "moving-keys.md"
    SLOTS_FINISHED = (
        "slots_finished",
        "all keys of slots are at the target",
        "architecture-slot.md#one-slot-through-its-states",
    )
    SLOTS_MOVED = (
        "slots_moved",
        "slots are at rest in the group that they have moved to",
        "architecture-slot.md#one-slot-through-its-states",
    )
    SLOTS_CANCELLED = "slots_cancelled", "a move was cancelled: the slots stay, or go back", "when-a-move-stops.md"
    SLOTS_SKIPPED = "slots_skipped", "slots step aside until they are retried", "when-a-move-stops.md"
    SLOTS_RETRIED = "slots_retried", "slots that had stepped aside go on", "when-a-move-stops.md"
    SOURCE_RESTARTED = (
        "source_restarted",
        "the source of slots that move key by key, or one of both servers on the way back, was restarted; if its data "
        "are older, keys that clients have deleted at the other one may be alive again",
        "when-a-move-stops.md#a-source-comes-back-with-older-data",
    )
    MIGRATION_SET = (
        "migration_set",
        "settings of the migration were changed, or moving was paused or resumed",
        "pacing.md",
    )
    PROXY_REGISTERED = "proxy_registered", "a proxy became a member, or came back with another address or process"
    PROXY_LOST = "proxy_lost", "topom has not heard a proxy for proxy_lease_seconds", "failures.md"
    PROXY_BACK = "proxy_back", "topom hears a lost proxy again", "failures.md"
    PROXY_DRAINS = "proxy_drains", "a proxy lets its clients go, or was told to", "leaving-proxies.md"
    PROXY_LEFT = "proxy_left", "a proxy ended in good order", "leaving-proxies.md"
    MIGRATOR_REGISTERED = (
        "migrator_registered",
        "a process that makes copies by the replication stream is there",
        "copies.md#where-copies-are-made",
    )
    MIGRATOR_GONE = (
        "migrator_gone",
        "a process that makes copies by the replication stream has ended, or is lost",
        "copies.md#where-copies-are-made",
    )
    LEAVING = "leaving", "a group, server or node is on its way out", "leaving.md"
    LEFT = "left", "what was on its way out is gone", "leaving.md"
    STAYING = "staying", "what was on its way out stays after all", "leaving.md"
    POOL_ADDED = "pool_added", "a server was added to the pool", "placement.md"
    POOL_REMOVED = "pool_removed", "a server was removed from the pool", "placement.md"
    POOL_CHANGED = "pool_changed", "a server of the pool is on another node, or was changed otherwise", "placement.md"
    PLACEMENT_AUTO = "placement_auto", "from now on placement is applied by itself, or no more", "placement.md"
    PLACEMENT_BEGUN = "placement_begun", "a placement is applied, and with which steps", "placement.md"
    PLACEMENT_STEP = (
        "placement_step",
        "a step of a placement was begun, is done, or is not done, and why",
        "placement.md",
    )
    PLACEMENT_ENDED = "placement_ended", "a placement is over, or was cancelled", "placement.md"
    PROXY_FENCED = (
        "proxy_fenced",
        "a proxy is no member any more, and its fence will be put up at the servers",
        "failures.md",
    )
    PROXY_CUT_OFF = "proxy_cut_off", "a proxy's fence is up, at these servers", "failures.md"
    OWN_KEY_PUT_ASIDE = (
        "own_key_put_aside",
        "a master had another program's key under one of Slotferry's names; it was renamed to "
        "__slotferry:aside:..., and fences that are not up everywhere yet are set again",
    )
    PROTECTION_ON = (
        "protection_on",
        "so many members are lost that topom replaces no master by itself",
        "high-availability.md#protection-mode",
    )
    PROTECTION_OVER = (
        "protection_over",
        "enough members are back, and topom replaces masters again",
        "high-availability.md#protection-mode",
    )
    PROXY_STOOD_DOWN = (
        "proxy_stood_down",
        "a group got another master although this lost proxy could not be fenced off the former one: the "
        "proxy has stood down",
        "stand-down.md#a-machine-that-is-lost",
    )
    PROTECTION_LIFTED = (
        "protection_lifted",
        "an operator lets failed masters be replaced although many members are lost",
        "high-availability.md#protection-mode",
    )
    PROTECTION_RESTORED = (
        "protection_restored",
        "enough members are back, and protection holds for the next loss",
        "high-availability.md#protection-mode",
    )
    SENTINEL_ADDED = "sentinel_added", "a Sentinel was added", "sentinel.md"
    SENTINEL_REMOVED = "sentinel_removed", "a Sentinel was removed", "sentinel.md"
    SENTINELS_SET = (
        "sentinels_set",
        "a Sentinel was added or removed for the first time: from now on these Sentinels count instead of "
        "those in the settings",
        "sentinel.md",
    )
    SENTINELS_RESYNCED = (
        "sentinels_resynced",
        "Sentinels were told to forget the groups and watch them again, and which Sentinels could not be told",
        "sentinel.md",
    )
    SETTINGS_RELOADED = (
        "settings_reloaded",
        "the topom that leads has read its settings anew, and which changed or need a restart",
        "settings.md",
    )
    SETTINGS_REFUSED = (
        "settings_refused",
        "the topom that leads could not use its settings, and nothing changed",
        "settings.md",
    )
    USER_SET = (
        "user_set",
        "a user of clients that topom keeps was added or changed, and which fields; never a password",
        "kept-users.md",
    )
    USER_REMOVED = "user_removed", "a user of clients that topom keeps was removed", "kept-users.md"
    PAUSED = "paused", "an operator has topom do nothing by itself, and why", "failures-servers.md#hands-off"
    RESUMED = "resumed", "topom acts by itself again", "failures-servers.md#hands-off"
    STATE_CHANGED = "state_changed", "something else that topom stores has changed"


@dataclass(frozen=True, slots=True)
class Said:
    """What is to become an event: its kind and a sentence for the operator.

    ``at`` is given if it happened at another time than it is stored, and ``reason`` if it tells of something that
    waits.
    """

    what: What
    text: str
    at: float | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done.

    Attributes:
        id: counts from 1, without gaps.
        at: when, in seconds since 1970, UTC, by the clock of the topom that stored it. An event that waited for the
            store may be older than one with a smaller id.
        who: the name of the token that was shown, behind the name that came with the request if one did, such as
            ``ada@host (by operator)``; or ``topom`` and its instance.
        what: one of :class:`What`; in a store of another version it may be one that this version does not know.
        text: a sentence, of :data:`MOST_TEXT` characters at most.
        epoch_before: the slot table's epoch before the change; the same as ``epoch_after`` if the change left the table
            alone.
        epoch_after: the slot table's epoch after the change.
        reason: why something waits, for an event that tells of that; the text says it, too.
    """

    id: int
    at: float
    who: str
    what: str
    text: str
    epoch_before: int
    epoch_after: int
    reason: Reason | None = None


def asker(token: str, name: str | None) -> str:
    """Who asks, in events: the name of the token, behind the ``name`` that was given; one line of visible characters.

    The token's name is always whole: it is what is proven.
    """
    shown = "".join(character if character.isprintable() else "?" for character in name or "").strip()
    if not shown:
        return token
    proven = f" (by {token})"
    return shortened(shown, MOST_WHO - len(proven)) + proven


def is_topom(who: str) -> bool:
    """Whether somebody in events is topom itself, and not one who asked it."""
    return re.fullmatch(f"topom( [0-9a-f]{{{NAMED_BY}}})?", who) is not None


def shortened(text: str, most: int) -> str:
    """The text, with an ellipsis for its end if it has more characters than ``most``."""
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."
