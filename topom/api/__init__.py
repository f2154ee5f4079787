"""The HTTP API, with one file for each resource, and the control stream.

Each request needs a role (:mod:`topom.api.roles`), which a bearer token or a session has (:mod:`topom.api.door`).
Anybody gets ``/livez``, ``/readyz`` and the page's files, and may log in. A follower passes requests on
(:mod:`topom.api.forwarding`). Every error is answered as ``{"error": "<type>", "message": "<a sentence for the
operator>"}``. Whatever waits says why with the record of :mod:`topom.reasons`, as ``{"kind", "what", "since",
"to_do"}``; null if it does not wait.

May import: reasons, errors, store, cluster, servers, proxies, load, migrators, doctor, migration, copies, masters,
placement, balance, leaving, term, web.

To change

- a resource: the file of its name, and its objects in the file of its name with ``_models``; what the command shows of
  it: the folder ``slotferry/operator``;
- which clients get in: :mod:`topom.term.tokens` (tokens), :mod:`~topom.api.sessions` (cookies),
  :mod:`~topom.api.callers` (who asks), :mod:`~topom.api.guesses` (wrong tokens), :mod:`~topom.api.roles` (what each may
  do), :mod:`~topom.api.login`, :mod:`~topom.api.entrance` (connections),
  :mod:`~topom.api.door` (requests), :mod:`~topom.api.access` (endpoints);
- what an orchestrator is told: :mod:`~topom.api.probes`;
- what a browser is told about pages: :mod:`~topom.api.page_headers`;
- the page that describes the API: :mod:`~topom.api.documents`;
- what a follower does with requests: :mod:`~topom.api.forwarding`;
- the stream of events: :mod:`~topom.api.event_stream`; the live picture for the page: :mod:`topom.api.live`;
- the stream of tables to proxies: :mod:`~topom.api.control`; its messages: :mod:`slots.messages.control`;
- the stream of migrators: :mod:`~topom.api.migrator_stream`; its messages: :mod:`slots.messages.copies`.
"""

from typing import Any

from fastapi import FastAPI

from slots.version import program_version
from topom.api import (
    control,
    digests,
    doctor,
    documents,
    events,
    groups,
    load,
    login,
    metrics,
    migration,
    migrator_stream,
    migrators,
    nodes,
    placement,
    pool,
    probes,
    proxies,
    rebalance,
    rules,
    sentinels,
    settings,
    sizes,
    slots,
    status,
    topoms,
    users,
)
from topom.api.callers import Callers
from topom.api.door import Door
from topom.api.errors import add_handlers
from topom.api.event_stream import EventStreams
from topom.api.forwarding import Forwarding
from topom.api.live import endpoint as live
from topom.api.live.viewers import Viewers
from topom.api.roles import describe
from topom.api.routers import PREFIX
from topom.cluster.event_sinks import EventSinks
from topom.term.node import Node
from topom.term.reloading import InForce
from topom.term.service import Topom
from topom.web import pages

RESOURCES = (
    *(status, doctor, groups, nodes, pool, placement, digests, proxies, slots, sizes, load),
    *(rebalance, rules, users, migration, migrators, sentinels, events, live, topoms, settings),
    *(metrics, login, control, migrator_stream, probes, documents),
)
"""The files that serve requests, in the order of the documents."""
SIZES_BODY_BYTES = 64 * 1024 * 1024
"""The largest body of a measurement: ten keys of 256 characters for each of 16384 slots fit."""


class _Application(FastAPI):
    """Says in its OpenAPI document which role each endpoint needs."""

    def openapi(self) -> dict[str, Any]:
        known = self.openapi_schema is not None
        document = super().openapi()
        if not known:
            describe(document)
        return document


def build(topom: Topom | Node, callers: Callers, in_force: InForce | None = None) -> FastAPI:
    """The application that serves ``topom``, alone or one of several, to these callers.

    Args:
        in_force: its settings; None if it does not know where they came from.
    """
    node = topom if isinstance(topom, Node) else None
    single = topom if isinstance(topom, Topom) else None
    app = _Application(
        title="Slotferry topom",
        summary="The control plane of Slotferry: groups, servers, proxies, slots, and moving slots live.",
        version=program_version(),
        docs_url=None,
        redoc_url=None,
        # A client that follows a redirection may drop its body, or show its token to whatever Host the request named.
        redirect_slashes=False,
        routes=[*pages.routes(), *(route for resource in RESOURCES for route in resource.router.routes)],
    )
    app.state.callers = callers
    app.state.failures = login.Failures()
    app.state.metrics = metrics.registry(topom)
    app.state.node = node
    app.state.settings = in_force
    app.state.serving = (lambda: node.serving) if node is not None else (lambda: single)
    app.state.load_pages = load.Pages()
    app.state.event_streams = EventStreams(app.state.serving)
    app.state.viewers = Viewers(node, app.state.serving)
    sinks = node.events if node is not None else EventSinks()
    sinks.add(app.state.event_streams)
    sinks.add(app.state.viewers)
    if single is not None:
        single.ledger.listen(sinks.changed)
    if node is not None:
        app.add_middleware(Forwarding, node=node)
    app.add_middleware(Door, callers=callers, larger={PREFIX + "/sizes": SIZES_BODY_BYTES})
    add_handlers(app)
    return app
