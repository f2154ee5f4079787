"""Load: what the proxies count, for people and for pages that are refreshed every few seconds.

An answer is written once for all that ask within :data:`FRESH_SECONDS`: ten viewers cost as much as one. It is written
on a thread, one at a time, so that the event loop goes on meanwhile.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response

from slots.keynames import readable
from slots.messages.load import KEY_BYTES, Why
from slots.table import SlotTable
from topom.api import large_json
from topom.api import load_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.load import minutes as day_minutes
from topom.load.day import Kind
from topom.load.history import series
from topom.load.measured import DAY_MINUTES, Counts, Row
from topom.load.notable import MOST_KEPT, Seen
from topom.term.service import Topom

FRESH_SECONDS = 2.0
MOST_PAGES = 16
"""Different answers that are kept for others who ask the same."""
MOST_SHOWN = 100
"""Slots, users and series, at most."""
DEFAULT_SERIES = 20
DEFAULT_NOTABLE = 100
KEY_CHARACTERS = 4 * KEY_BYTES
"""No key is cut for its length alone: a byte takes four characters at most."""

router = resource("/load", "load")


class Pages:
    """Answers that are kept for a short time, each by what was asked for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pages: OrderedDict[object, tuple[float, str, bytes]] = OrderedDict()
        """Each with when it was written, and the instance of the topom: that of a term that is over may go."""
        self._writing = asyncio.Lock()

    async def page(self, asked: object, topom: Topom, write: Callable[[], Mapping[str, Any]]) -> bytes:
        """The answer, as JSON; it is written if there is none of this topom, or it is old."""
        async with self._writing:
            kept = self._pages.get(asked)
            now = self._clock()
            if kept is not None and kept[1] == topom.instance and now - kept[0] < FRESH_SECONDS:
                return kept[2]
            written = await asyncio.to_thread(lambda: large_json.write(write()))
            self._pages[asked] = now, topom.instance, written
            self._pages.move_to_end(asked)
            while len(self._pages) > MOST_PAGES:
                self._pages.popitem(last=False)
            return written


@router.get("", response_model=models.Load)
async def show(
    request: Request,
    topom: ServedTopom,
    slots: Annotated[
        Literal["all", "top"], Query(description="`all` slots, also those without requests, or the 100 busiest.")
    ] = "top",
) -> Response:
    """How busy slots, groups, servers, proxies and users are, and which keys are hot."""
    pages: Pages = request.app.state.load_pages
    return _json(await pages.page(slots, topom, lambda: describe(topom, slots == "all")))


@router.get("/history", response_model=models.History)
async def show_history(
    request: Request,
    topom: ServedTopom,
    of: Annotated[Kind, Query(description="Of what.")] = "groups",
    minutes: Annotated[int, Query(ge=1, le=DAY_MINUTES, description="The last so many.")] = 60,
    most: Annotated[int, Query(ge=1, le=MOST_SHOWN, description="Series, at most.")] = DEFAULT_SERIES,
) -> Response:
    """The load of the last day by minute, of the busiest groups, servers, proxies, users or slots."""
    pages: Pages = request.app.state.load_pages
    return _json(await pages.page((of, minutes, most), topom, lambda: _history(topom, of, minutes, most)))


@router.get("/notable", response_model=models.NotableRequests)
async def show_notable(
    request: Request,
    topom: ServedTopom,
    why: Annotated[Why | None, Query(description="Those of one reason only.")] = None,
    most: Annotated[int, Query(ge=1, le=MOST_KEPT, description="Entries, at most.")] = DEFAULT_NOTABLE,
) -> Response:
    """Big keys and slow commands: requests that took long, or that carried or showed much. Those that are alike are one
    entry; the one that was seen last comes first."""
    pages: Pages = request.app.state.load_pages
    return _json(await pages.page(("notable", why, most), topom, lambda: describe_notable(topom, most, why)))


@router.get("/minutes", response_model=day_minutes.Told)
async def show_minutes(
    request: Request,
    topom: ServedTopom,
    after: Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds since 1970, UTC.")] = 0.0,
) -> Response:
    """What is kept of each minute that began later; a topom that follows asks this."""
    pages: Pages = request.app.state.load_pages
    return _json(await pages.page(("minutes", after), topom, lambda: day_minutes.told(topom.load.day.after(after))))


def describe(topom: Topom, all_slots: bool) -> Mapping[str, Any]:
    """The object of :class:`~topom.api.load_models.Load`."""
    book, table = topom.load, topom.ledger.table
    members = topom.members.all()
    addresses = {member.record.id: member.record.address for member in members}
    group_of = {server: group.id for group in table.groups.values() for server in group.servers}
    owned = table.by_group
    servers = sorted(book.by_server, key=lambda row: (group_of.get(row.name, 0), row.name))
    of_group: dict[int, list[Counts]] = {}
    for row in servers:
        of_group.setdefault(group_of.get(row.name, 0), []).append(row.rates)
    return {
        "measured_seconds": round(book.measured_seconds, 1),
        "minute_seconds": round(book.minute_seconds, 1),
        "proxies_telling": topom.asking.telling,
        "proxies_total": len(members),
        "total": _rates(book.by_proxy.total()),
        "slots": [
            {"slot": row.name, "group_id": _owner(table, row.name), **_busy(row)}
            for row in (book.by_slot if all_slots else book.by_slot.busiest(MOST_SHOWN))
        ],
        "groups": [
            {
                "group_id": row.name,
                "slots": len(owned.get(row.name, ())),
                **_busy(row),
                "milliseconds": _mean(of_group.get(row.name, ())),
            }
            for row in _sorted(book.by_group)
        ],
        "servers": [
            {
                "server": row.name,
                "group_id": group_of.get(row.name, 0),
                **_busy(row),
                "milliseconds": _mean([row.rates]),
            }
            for row in servers
        ],
        "proxies": [
            {"proxy_id": row.name, "address": addresses.get(row.name, ""), **_busy(row)}
            for row in _sorted(book.by_proxy)
        ],
        "users": [{"user": row.name, **_busy(row)} for row in book.by_user.busiest(MOST_SHOWN)],
        "hot_keys": [
            {
                "key": readable(key.key, KEY_CHARACTERS),
                "hashed": key.hashed,
                "length": key.length,
                "database": key.database,
                "slot": key.slot,
                "group_id": _owner(table, key.slot),
                "rate": _short(key.rate),
                "excess": _short(key.excess),
                "share": round(key.share, 4),
            }
            for key in book.hot_keys()
        ],
    }


def describe_notable(topom: Topom, most: int, why: Why | None = None) -> Mapping[str, Any]:
    """The object of :class:`~topom.api.load_models.NotableRequests`."""
    table = topom.ledger.table
    addresses = {member.record.id: member.record.address for member in topom.members.all()}
    return {
        "since": round(topom.load.began_at, 1),
        "requests": [
            _notable(seen, table, addresses.get(seen.proxy_id, "")) for seen in topom.load.notable.newest(most, why)
        ],
    }


def _notable(seen: Seen, table: SlotTable, proxy_address: str) -> Mapping[str, Any]:
    alike = seen.alike
    return {
        "why": alike.why,
        "command": alike.command,
        "key": readable(alike.key, KEY_CHARACTERS),
        "hashed": alike.hashed,
        "length": alike.length,
        "database": alike.database,
        "slot": alike.slot if alike.slot >= 0 else None,
        "group_id": _owner(table, alike.slot) if alike.slot >= 0 else 0,
        "times": seen.times,
        "first_at": round(seen.first_at, 1),
        "last_at": round(seen.last_at, 1),
        "milliseconds": round(seen.microseconds / 1000, 3),
        "bytes_in": seen.bytes_in,
        "bytes_out": seen.bytes_out,
        "elements": seen.elements,
        "user": seen.user,
        "client": seen.client,
        "server": seen.server,
        "proxy_id": seen.proxy_id,
        "proxy_address": proxy_address,
    }


def _history(topom: Topom, of: Kind, minutes: int, most: int) -> Mapping[str, Any]:
    kept = topom.load.day.newest(of, minutes)
    return {
        "of": of,
        "minutes": [minute.began_at for minute in kept],
        "series": [
            {
                "name": str(one.name),
                **{
                    column: [None if value is None else _short(value) for value in values]
                    for column, values in zip(("requests", "bytes_in", "bytes_out"), one.columns, strict=True)
                },
            }
            for one in series(kept, most)
        ],
    }


def _sorted(rows: Iterable[Row[int]]) -> list[Row[int]]:
    return sorted(rows, key=lambda row: row.name)


def _owner(table: SlotTable, slot: int) -> int:
    return table.slots[slot].owner_id


def _busy(row: Row[Any]) -> Mapping[str, Any]:
    requests, errors, bytes_in, bytes_out, *_ = map(int, row.minute)
    minute = {"requests": requests, "errors": errors, "bytes_in": bytes_in, "bytes_out": bytes_out}
    return {**_rates(row.rates), "minute": minute}


def _rates(counts: Counts) -> Mapping[str, float]:
    requests, errors, bytes_in, bytes_out, *_ = map(_short, counts)
    return {"requests": requests, "errors": errors, "bytes_in": bytes_in, "bytes_out": bytes_out}


def _mean(rates: Collection[Counts]) -> float | None:
    timed = math.fsum(one.timed for one in rates)
    return round(math.fsum(one.microseconds for one in rates) / timed / 1000, 3) if timed else None


def _short(value: float) -> float:
    """What a person can use of it, and no more digits than that."""
    return round(value, 2)


def _json(written: bytes) -> Response:
    return Response(written, media_type="application/json")
