"""The HTTP API, a file a resource, and the control stream beside it.

Everything under ``/api/v1`` asks for the bearer token; ``/healthz`` and the API's description do not. Every
error is answered as ``{"error": "<type>", "message": "<a sentence for the operator>"}``.
"""

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Depends, FastAPI

from topom import control
from topom.api import groups, migration, proxies, rebalance, sentinels, sizes, slots, status
from topom.api.access import require_token
from topom.api.errors import add_handlers
from topom.api.limit import BodyLimit
from topom.api.models import Health, Problem
from topom.service import Topom

PREFIX = "/api/v1"
SIZES_BODY_BYTES = 64 * 1024 * 1024
"""Of a measurement: ten keys of 256 characters for each of 16384 slots fit."""


def build(topom: Topom, token: str) -> FastAPI:
    """The application that serves ``topom`` to whoever has ``token``."""
    app = FastAPI(
        title="Slotferry topom",
        summary="The control plane of Slotferry: groups, servers, proxies, slots, and moving slots live.",
        version=_version(),
        redoc_url=None,
    )
    app.state.topom = topom
    app.state.token = token
    app.add_middleware(BodyLimit, token=token, larger={PREFIX + "/sizes": SIZES_BODY_BYTES})
    add_handlers(app)
    api = APIRouter(
        prefix=PREFIX,
        dependencies=[Depends(require_token)],
        responses={
            code: {"model": Problem, "description": description}
            for code, description in (
                (401, "The bearer token is missing or wrong."),
                (404, "What the request names is not there."),
                (409, "It cannot be done as things stand; the message says why."),
                (422, "The request does not say something that can be done."),
                (503, "The store fails; nothing was changed."),
            )
        },
    )
    for resource in (status, groups, proxies, slots, sizes, rebalance, migration, sentinels):
        api.include_router(resource.router)
    app.include_router(api)
    app.include_router(control.router)

    @app.get("/healthz", tags=["status"])
    async def healthz() -> Health:
        """Whether topom runs and may change things. Needs no token."""
        return Health(ok=not topom.ledger.lost.is_set())

    return app


def _version() -> str:
    try:
        return version("slotferry")
    except PackageNotFoundError:
        return "0"
