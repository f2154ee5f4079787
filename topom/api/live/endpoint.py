"""The live picture as a resource."""

from fastapi import Request
from fastapi.responses import StreamingResponse

from topom.api.access import Calling
from topom.api.live.viewers import Viewer, Viewers
from topom.api.routers import resource

router = resource("/live", "live")


@router.get(
    "",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
)
async def watch(request: Request, caller: Calling) -> Viewer:
    """The cluster as it is, then what changes, as server-sent events; for the page.

    `picture` has all: sections of values by key (`cluster`, `problems`, `groups`, `figures`, `proxies`,
    `migration`, `sizes`, `load`, `notable`, `decision`),
    `slots` as runs `[first, count, group]` or `[first, count, group, state, target, course]`, `heat` with a number for
    each slot, and `events`. `changes` has what changed, in the same form; a key that is gone is null. `leader` says
    that another topom leads: ask again.
    """
    viewers: Viewers = request.app.state.viewers
    return viewers.join(caller.expires)
