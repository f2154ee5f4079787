"""The HTTP API, with one file for each resource, and the control stream.

Everything except ``/healthz`` needs the bearer token (:mod:`topom.api.door`). A follower passes requests on
(:mod:`topom.api.forwarding`). Every error is answered as ``{"error": "<type>", "message": "<a sentence for the
operator>"}``. Whatever waits says why with the record of :mod:`topom.reasons`, as ``{"kind", "what", "since",
"to_do"}``; null if it does not wait.

May import: reasons, errors, store, cluster, servers, proxies, migration, copies, masters, placement, balance, leaving,
term.

To change

- a resource: the file of its name, and its objects in the file of its name with ``_models``; what the command shows of
  it: the folder ``slotferry/operator``;
- which clients get in: :mod:`~topom.api.security` (the token), :mod:`~topom.api.entrance` (connections),
  :mod:`~topom.api.door` (requests), :mod:`~topom.api.access` (endpoints);
- what a follower does with requests: :mod:`~topom.api.forwarding`;
- the stream of events: :mod:`~topom.api.event_stream`;
- the stream of tables to proxies: :mod:`~topom.api.control`; its frames: :mod:`topom.proxies.frames`.
"""

from fastapi import APIRouter, Depends, FastAPI, Response

from topom.api import (
    control,
    digests,
    events,
    groups,
    metrics,
    migration,
    nodes,
    placement,
    pool,
    proxies,
    rebalance,
    sentinels,
    sizes,
    slots,
    status,
    topoms,
)
from topom.api.access import require_token
from topom.api.door import Door
from topom.api.errors import add_handlers
from topom.api.event_stream import EventStreams
from topom.api.forwarding import Forwarding
from topom.api.models import Refusal
from topom.api.topom_models import Health
from topom.cluster.event_sinks import EventSinks
from topom.reasons import Kind, Reason
from topom.term.announcing import INSTANCE, program_version
from topom.term.node import Node
from topom.term.service import Topom

PREFIX = "/api/v1"
SIZES_BODY_BYTES = 64 * 1024 * 1024
"""The largest body of a measurement: ten keys of 256 characters for each of 16384 slots fit."""


def build(topom: Topom | Node, *tokens: str) -> FastAPI:
    """The application that serves ``topom``, alone or one of several, to clients that have one of the tokens."""
    node = topom if isinstance(topom, Node) else None
    alone = topom if isinstance(topom, Topom) else None
    app = FastAPI(
        title="Slotferry topom",
        summary="The control plane of Slotferry: groups, servers, proxies, slots, and moving slots live.",
        version=program_version(),
        redoc_url=None,
    )
    app.state.node = node
    app.state.serving = (lambda: node.serving) if node is not None else (lambda: alone)
    app.state.event_streams = EventStreams(app.state.serving)
    sinks = node.events if node is not None else EventSinks()
    sinks.add(app.state.event_streams)
    if alone is not None:
        alone.ledger.listen(sinks.changed)
    if node is not None:
        app.add_middleware(Forwarding, node=node)
    app.add_middleware(Door, tokens=tokens, larger={PREFIX + "/sizes": SIZES_BODY_BYTES})
    add_handlers(app)
    api = APIRouter(
        prefix=PREFIX,
        dependencies=[Depends(require_token)],
        responses={
            code: {"model": Refusal, "description": description}
            for code, description in (
                (401, "The bearer token is missing or wrong."),
                (404, "What the request names is not there."),
                (409, "It cannot be done as things stand; the message says why."),
                (422, "The request does not say something that can be done."),
                (503, "The store fails, or no topom leads, so nothing was changed; or too many requests wait."),
                (504, "The topom that leads fell silent; whether it was done is not known."),
            )
        },
    )
    for resource in (
        *(status, groups, nodes, pool, placement, digests, proxies, slots, sizes),
        *(rebalance, migration, sentinels, events, topoms),
    ):
        api.include_router(resource.router)
    app.include_router(api)
    app.include_router(metrics.router(topom))
    app.include_router(control.router)

    @app.get("/healthz", tags=["status"], response_model_exclude_none=True)
    async def healthz(response: Response) -> Health:
        """Whether changes are possible through this topom; the status is 503 if not. Needs no token."""
        if node is None:
            lost = alone is not None and alone.ledger.lost.is_set()
            reason = Reason.now(Kind.STORE, "another topom has written to the store") if lost else None
        else:
            reason = node.reason
        if reason is not None:
            response.status_code = 503
        if node is not None:
            response.headers[INSTANCE] = node.instance
        leads = node.leading is not None if node is not None and node.shared else None
        return Health(ok=reason is None, reason=reason, leads=leads)

    return app
