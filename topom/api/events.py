"""Events: what was done, by which operator or topom, and when."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from topom.api import event_models
from topom.api.access import Calling, ServedTopom
from topom.api.event_stream import EventStream, EventStreams
from topom.api.routers import resource

MOST_EVENTS = 1000

router = resource("/events", "events")


@router.get("")
async def list_events(
    topom: ServedTopom,
    since: Annotated[
        int | None, Query(ge=0, description="Id of the last event that is known; the answer begins after it.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS, description="Events to give at most.")] = 100,
) -> event_models.Events:
    """The newest events; with `since`, the events after it, the oldest of them first."""
    events = topom.ledger.state.events
    oldest, newest = (events[0].id, events[-1].id) if events else (0, 0)
    if since is None:
        chosen = events[-limit:]
    else:
        place = max(0, since + 1 - oldest)  # ids have no gaps
        chosen = events[place : place + limit]
    return event_models.Events(
        oldest=oldest, newest=newest, events=[event_models.Event(**asdict(event)) for event in chosen]
    )


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events, one an event."}},
)
async def stream_events(
    request: Request,
    caller: Calling,
    since: Annotated[int | None, Query(ge=0, description="Id of the last event that is known.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0, description="As `since`; browsers send it.")] = None,
) -> EventStream:
    """Every event after `since`, or from now on, as soon as it is stored, as server-sent events."""
    streams: EventStreams = request.app.state.event_streams
    return streams.begin(since if last_event_id is None else last_event_id, caller.expires)
