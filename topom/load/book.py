"""The book of the load: what all proxies have counted, by slot, group, server, proxy and user.

Time goes by in periods of some seconds, each with what came in it, and by whole minutes of the wall clock. What a slot
has had counts for the group that owned it when the period ended.

**bounded**: every kind has its limit of names (:mod:`topom.load.measured`), and a day of minutes
(:mod:`topom.load.day`) takes 12 bytes a name and minute: with 1,000 groups, 3,000 servers and 1,000 proxies 86 MB, and
6 to 20 MB for slots and users.
"""

import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from slots.messages.load import MOST_USERS
from slots.messages.message import MOST_PROXIES, MOST_SERVERS
from slots.slot import OFFLINE
from slots.table import SlotTable
from topom.cluster.topology import MAXIMUM_GROUP_ID, all_servers
from topom.load.day import Day, DayMinute, Kind
from topom.load.hotkeys import MOST_SHOWN, BusyKey, HotKeys
from topom.load.measured import MINUTE, Measured
from topom.load.notable import NotableRequests

MOST_KEPT = 100
"""Slots, and users, of which a minute is kept for a day: those with the most requests in that minute."""
SILENT_SECONDS = 60.0
"""After which the book begins anew, if no proxy has told anything."""
IDLE_REQUESTS = 0.001
"""A second: a user with fewer is forgotten."""


class SlotRate(NamedTuple):
    """What is asked of a slot, a second. Bytes are those of requests, and of replies."""

    requests: float
    bytes_in: float
    bytes_out: float


class Book:
    """What is measured. One task writes it, and nothing in it waits.

    Args:
        number_of_slots: of the product.
        clock: seconds since 1970, UTC.
        day: the minutes that are known, and gets those that end; None for none.
    """

    def __init__(self, number_of_slots: int, clock: Callable[[], float] = time.time, day: Day | None = None) -> None:
        self._clock = clock
        self.by_slot: Measured[int] = Measured(number_of_slots, MOST_KEPT, range(number_of_slots))
        self.by_group: Measured[int] = Measured(MAXIMUM_GROUP_ID)
        self.by_server: Measured[str] = Measured(MOST_SERVERS)
        self.by_proxy: Measured[int] = Measured(MOST_PROXIES)
        """All requests of a proxy's clients, those without keys too."""
        self.by_user: Measured[str] = Measured(MOST_USERS, MOST_KEPT)
        self.kinds: Mapping[Kind, Measured[Any]] = {
            "groups": self.by_group,
            "servers": self.by_server,
            "proxies": self.by_proxy,
            "users": self.by_user,
            "slots": self.by_slot,
        }
        self.keys = HotKeys()
        self.notable = NotableRequests()
        self.day = day or Day()
        self.began_at = clock()
        """When the counts of the first period began."""
        self.minute_seconds = 0.0
        """How much of the minute that ended last was measured."""
        self._measured = 0.0
        self._whole = 0.0
        self._silent = 0.0
        self._told = False
        """Whether anything was told in this period."""
        self._minute = self._minute_of(self.began_at)
        self._minute_seconds = 0.0
        self._minute_told = False
        """Whether anything was told in this minute."""
        self._table: SlotTable | None = None
        self._group_rows = array("i", [-1]) * number_of_slots

    # -- for those who plan and show -----------------------------------------------------------------------------------

    @property
    def measured_seconds(self) -> float:
        """How long the counts cover: since the first answer of a proxy to this leader. 0 while there is none, and again
        if no proxy has told anything for :data:`SILENT_SECONDS`."""
        return self._measured

    @property
    def whole_seconds(self) -> float:
        """For how long every proxy has told, without a gap, what it counted. What some of them tell is not the fleet's
        load: the clients of another one may ask for other slots."""
        return self._whole

    def slots(self) -> list[SlotRate]:
        """What is asked of each slot, by slot: means of late, in which what is older by
        :data:`slots.slotrates.HALF_LIFE_SECONDS` weighs half."""
        rates = map(self.by_slot.table.rates, range(len(self.by_slot)))
        return [SlotRate(requests, bytes_in, bytes_out) for requests, _, bytes_in, bytes_out, *_ in rates]

    def hot_keys(self, most: int = MOST_SHOWN) -> list[BusyKey]:
        """The keys that are asked for most, over all proxies, the hottest first."""
        return self.keys.busiest(self.by_proxy.total().requests, most)

    # -- for the one who writes ----------------------------------------------------------------------------------------

    def told(self) -> None:
        """A proxy has told something that was added."""
        self._told = True

    def end_proxy(self, proxy_id: int) -> None:
        """A proxy is none any more, or is not heard: forget what it told of itself and of hot keys. What it counted of
        slots decays."""
        self.by_proxy.end(proxy_id)
        self.keys.end(proxy_id)

    def end_period(self, seconds: float, table: SlotTable, whole: bool = True) -> None:
        """A period has lasted so long, and the slots are now as in this table. ``whole``: whether every proxy tells."""
        if table is not self._table:
            self._follow(table)
        if self._told or self._measured:
            self._measured += seconds
        self._whole = self._whole + seconds if whole and self._measured else 0.0
        self._silent = 0.0 if self._told else self._silent + seconds
        self._minute_told |= self._told
        self._told = False
        self.by_slot.table.add_period_to(self.by_group.table, self._group_rows)
        for measured in self.kinds.values():
            measured.table.decay(seconds)
        self.notable.end_old()
        self._minute_seconds += seconds
        minute = self._minute_of(self._clock())
        if minute != self._minute:
            kept = {kind: measured.turn(self._minute_seconds) for kind, measured in self.kinds.items()}
            if self._minute_told:
                self.day.add(DayMinute(self._minute, kept))
            self.by_user.keep_busy(IDLE_REQUESTS)
            self._minute, self.minute_seconds, self._minute_seconds = minute, self._minute_seconds, 0.0
            self._minute_told = False
        if self._measured and self._silent >= SILENT_SECONDS:
            self._measured = self._whole = 0.0
            self.keys.clear()
            for measured in self.kinds.values():
                measured.clear()

    def _follow(self, table: SlotTable) -> None:
        self._table = table
        self.by_group.keep(table.groups)
        self.by_server.keep(set(all_servers(table)))
        for group_id in table.groups:
            self.by_group.row(group_id)
        for slot in table.slots:
            row = self.by_group.row(slot.owner_id) if slot.owner_id != OFFLINE else None
            self._group_rows[slot.id] = -1 if row is None else row

    def _minute_of(self, now: float) -> float:
        return now - now % MINUTE
