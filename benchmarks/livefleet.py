"""A large fleet's page, for measuring and for tests: 1,000 groups, 16,384 slots, of which 512 always move.

The page is the real one. The stream of live pictures says what topom's code makes of such a fleet; no topom runs.
"""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from slots.slot import MAXIMUM_SLOTS, Action, Slot
from slots.states import SlotState
from topom.api.live.picture import Picture, changes, message, whole
from topom.web import pages

GROUPS = 1000
MOVING = 512
"""Slots on their way at a time; in each message they come to rest, and others set off."""
SECONDS = 0.5
"""Between two messages, as topom does it."""
STEPS = MAXIMUM_SLOTS // MOVING
"""Pictures, which follow each other for ever."""

LOAD = {
    "measured_seconds": 60.0,
    "proxies_telling": 2,
    "proxies_total": 2,
    "users": [],
    "groups": {"1": 1234},
    "total": {"requests": 99_000.0, "errors": 0.0, "bytes_in": 1e6, "bytes_out": 1e7},
    "slots": [{"slot": 7, "group_id": 8, "requests": 5000.0, "bytes_in": 1.0, "bytes_out": 1.0}],
    "hot_keys": [
        {
            "key": "<b>feed</b>",
            "hashed": False,
            "length": 11,
            "database": 0,
            "slot": 7,
            "group_id": 8,
            "rate": 4000.0,
            "excess": 0.0,
            "share": 0.04,
        }
    ],
}
HEAT = [5000.0 if slot == 7 else 0.0 for slot in range(MAXIMUM_SLOTS)]


def groups() -> dict[str, Any]:
    def server(group: int, place: int) -> dict[str, Any]:
        return {
            "address": f"10.{place}.{group // 250}.{group % 250}:6379",
            "condition": "alive",
            "up": True,
            "role": "slave" if place else "master",
            "views": 9,
            "node": f"node-{(group + place * 7) % 300}",
            "datacenter": f"dc-{place}",
        }

    return {
        str(group): {"id": group, "slots": 16, "servers": [server(group, place) for place in range(3)]}
        for group in range(1, GROUPS + 1)
    }


def figures(step: int) -> dict[str, Any]:
    """All of them change with each message."""
    return {str(group): [[10**6 + step, 10**9 + 10**7 * step, 5 * step]] * 3 for group in range(1, GROUPS + 1)}


def slots(step: int) -> tuple[Slot, ...]:
    def one(slot: int) -> Slot:
        group = 1 + (slot + slot // 512 * (slot // 512 < step)) % GROUPS
        if slot // MOVING == step % (MAXIMUM_SLOTS // MOVING):
            return Slot(slot, group, Action(SlotState.MIGRATING, 1 + (slot + 500) % GROUPS))
        return Slot(slot, group)

    return tuple(map(one, range(MAXIMUM_SLOTS)))


def picture(step: int) -> Picture:
    cluster = {
        "product": "fleet",
        "epoch": step,
        "topoms": [],
        "loops": [],
        "pause": None,
        "slots": {"total": MAXIMUM_SLOTS, "assigned": MAXIMUM_SLOTS, "offline": 0, "moving": MOVING},
    }
    return Picture(
        sections={
            "cluster": cluster,
            "problems": {},
            "groups": groups(),
            "figures": figures(step),
            "proxies": {},
            "load": LOAD,
        },
        slots=slots(step),
        heat={"load": HEAT},
    )


@contextmanager
def served() -> Iterator[str]:
    """The address of the page, which needs no token. It ends with the block."""
    steps = [picture(step) for step in range(STEPS)]
    first = message("picture", whole(steps[0]))
    following = [message("changes", changes(old, new)) for old, new in itertools.pairwise([*steps, steps[0]])]
    gone = threading.Event()

    async def live(request: Request) -> Response:
        async def say() -> AsyncIterator[bytes]:
            yield first
            for frame in itertools.cycle(following):
                await asyncio.sleep(SECONDS)
                if gone.is_set():
                    break
                yield frame

        return StreamingResponse(say(), media_type="text/event-stream")

    async def me(request: Request) -> Response:
        return JSONResponse({"name": "fleet", "role": "viewer", "expires": None})

    routes = [*pages.routes(), Route("/api/v1/live", live), Route("/api/v1/me", me)]
    config = uvicorn.Config(Starlette(routes=[*routes]), port=0, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        gone.set()
        server.should_exit = True
        thread.join(30)
        socket.close()
