"""``/metrics``: what this topom tells Prometheus, whether it leads or not (:mod:`topom.term.metrics`)."""

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from topom.api.access import require_token
from topom.errors import NotLeading
from topom.term.metrics import TopomCollector
from topom.term.node import Node
from topom.term.service import Topom

router = APIRouter(tags=["status"], dependencies=[Depends(require_token)])


def collector(topom: Topom | Node) -> Collector:
    """The metrics of one topom, alone or one of several."""
    if isinstance(topom, Topom):
        single = topom
        return TopomCollector(lambda: single, lambda: 0)
    node = topom

    def served() -> Topom | None:
        try:
            return node.serving
        except NotLeading:
            return None

    def term() -> int | None:
        leadership = node.leadership
        if node.leading is None or leadership is None:
            return None
        return leadership.leader.term if node.shared else 0

    return TopomCollector(served, term, node.store_times.collect, node.tending.failures)


def registry(topom: Topom | Node) -> CollectorRegistry:
    """The metrics of one topom."""
    made = CollectorRegistry()
    made.register(collector(topom))
    return made


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """The metrics of this topom, in the format of Prometheus; each topom answers for itself."""
    return Response(generate_latest(request.app.state.metrics), media_type=CONTENT_TYPE_LATEST)
