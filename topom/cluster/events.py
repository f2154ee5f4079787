"""Events: what an operator or topom did to the cluster, who, when, and the epoch of the slot table before and after.

An event is stored by the same write as the change that it tells of (:meth:`topom.cluster.ledger.Ledger.change`), so
there is no change without its event, and no event of a change that did not come about.
:mod:`topom.cluster.event_finding` finds the events of a change by comparing the state before with the state after.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

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
    """Every kind of event."""

    TOPOM_STARTED = "topom_started"
    TOPOM_LEADS = "topom_leads"
    GROUP_ADDED = "group_added"
    GROUP_REMOVED = "group_removed"
    SERVER_ADDED = "server_added"
    SERVER_REMOVED = "server_removed"
    SERVER_CHANGED = "server_changed"
    SERVER_WHOLE = "server_whole"
    SERVER_STRAYED = "server_strayed"
    SERVER_TWICE = "server_twice"
    SERVER_SWEPT = "server_swept"
    FOREIGN_KEYS = "foreign_keys"
    REPLICA_RESYNCED = "replica_resynced"
    MASTER_CHANGED = "master_changed"
    GROUP_LOCKED = "group_locked"
    GROUP_UNLOCKED = "group_unlocked"
    FIRST_LAYOUT = "first_layout"
    MASTER_NOT_REPLACED = "master_not_replaced"
    MASTER_LACKS_DATA = "master_lacks_data"
    SERVER_FAILED = "server_failed"
    SERVER_BACK = "server_back"
    DIGEST_BEGUN = "digest_begun"
    DIGEST_ENDED = "digest_ended"
    RESYNC_BEGUN = "resync_begun"
    SLOTS_ASSIGNED = "slots_assigned"
    SLOTS_OFFLINE = "slots_offline"
    REBALANCE_PLANNED = "rebalance_planned"
    REBALANCE_WAITS = "rebalance_waits"
    SLOTS_PENDING = "slots_pending"
    SLOTS_COPYING = "slots_copying"
    SLOTS_PREPARING = "slots_preparing"
    SLOTS_LOCKED = "slots_locked"
    SLOTS_UNLOCKED = "slots_unlocked"
    SLOTS_MOVING = "slots_moving"
    SLOTS_FINISHED = "slots_finished"
    SLOTS_MOVED = "slots_moved"
    SLOTS_CANCELLED = "slots_cancelled"
    SLOTS_SKIPPED = "slots_skipped"
    SLOTS_RETRIED = "slots_retried"
    MIGRATION_SET = "migration_set"
    PROXY_REGISTERED = "proxy_registered"
    PROXY_LOST = "proxy_lost"
    PROXY_BACK = "proxy_back"
    PROXY_DRAINS = "proxy_drains"
    PROXY_LEFT = "proxy_left"
    MIGRATOR_REGISTERED = "migrator_registered"
    MIGRATOR_GONE = "migrator_gone"
    LEAVING = "leaving"
    STAYING = "staying"
    POOL_ADDED = "pool_added"
    POOL_REMOVED = "pool_removed"
    POOL_CHANGED = "pool_changed"
    PLACEMENT_AUTO = "placement_auto"
    PLACEMENT_BEGUN = "placement_begun"
    PLACEMENT_STEP = "placement_step"
    PLACEMENT_ENDED = "placement_ended"
    PROXY_FENCED = "proxy_fenced"
    PROXY_CUT_OFF = "proxy_cut_off"
    OWN_KEY_PUT_ASIDE = "own_key_put_aside"
    PROTECTION_ON = "protection_on"
    PROTECTION_OVER = "protection_over"
    PROXY_STOOD_DOWN = "proxy_stood_down"
    PROTECTION_LIFTED = "protection_lifted"
    PROTECTION_RESTORED = "protection_restored"
    SENTINEL_ADDED = "sentinel_added"
    SENTINEL_REMOVED = "sentinel_removed"
    SENTINELS_SET = "sentinels_set"
    SENTINELS_RESYNCED = "sentinels_resynced"
    SETTINGS_RELOADED = "settings_reloaded"
    SETTINGS_REFUSED = "settings_refused"
    PAUSED = "paused"
    RESUMED = "resumed"
    STATE_CHANGED = "state_changed"


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
