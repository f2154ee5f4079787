"""Whether a topom can make changes; for programs that ask without the token."""

from fastapi import APIRouter, Request, Response

from topom.api.topom_models import Health
from topom.reasons import Kind, Reason
from topom.term.announcing import INSTANCE
from topom.term.node import Node

router = APIRouter(tags=["status"])


@router.get("/healthz", response_model_exclude_none=True)
async def healthz(request: Request, response: Response) -> Health:
    """Whether changes are possible through this topom; the status is 503 if not. Needs no token."""
    node: Node | None = request.app.state.node
    if node is None:
        lost = request.app.state.serving().ledger.lost.is_set()
        reason = Reason.now(Kind.STORE, "another topom has written to the store") if lost else None
    else:
        reason = node.reason
        response.headers[INSTANCE] = node.instance
    if reason is not None:
        response.status_code = 503
    leads = node.leading is not None if node is not None and node.shared else None
    return Health(ok=reason is None, reason=reason, leads=leads)
