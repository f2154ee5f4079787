"""What an orchestrator asks of a topom, without a token: is it alive, and is it ready?

- ``/livez`` is answered by the event loop that does all of topom's work, and waits for nothing. So a topom that answers
  does not hang, and one that hangs does not answer. It says nothing of the store: to restart a topom brings no store
  back.
- ``/readyz`` is for who chooses a topom to ask. It is 503 while this one can pass nothing on and lead nothing: a
  follower needs a leader that answers it, and a leader a store that took its last write.

Some load balancers ask by HEAD: they get the same status, without the words.

Anybody may ask, so the answer is one word or one sentence, without a name or an address. With a token,
``/api/v1/status`` says more.
"""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from topom.api.roles import LIVE, READY
from topom.errors import NotLeading
from topom.term.announcing import INSTANCE
from topom.term.node import Node

router = APIRouter(tags=["status"])

STORE = "the store does not answer; nothing can be changed until it is back, and proxies serve on meanwhile"
UNSTORED = "the last change could not be stored; nothing can be changed until the store takes one, which is tried again"
NO_LEADER = "no topom leads at present; another is elected within seconds once the store answers"
MISPLACED = "another topom answers at the url that this one gives as its own; set url to where this one is reached"
REFUSED = "the topom that leads does not accept this topom's token; give all topoms the same token and tokens"
SAME_URL = (
    "the topom that leads by the store is at the url of this one; give each a url of its own, or, if this one was just "
    "started anew, wait for the end of that lease"
)
UNHEARD = "the topom that leads by the store does not answer; another is elected within seconds if it is gone"
UNREAD = "this topom has not read the store yet"
REPLACED = "another topom has written to the store"


@router.head(LIVE, include_in_schema=False)
@router.get(LIVE, response_class=PlainTextResponse)
async def livez(request: Request) -> PlainTextResponse:
    """Whether the process works: 200 as long as it answers at all. Needs no token."""
    node: Node | None = request.app.state.node
    return PlainTextResponse("ok\n", headers={} if node is None else {INSTANCE: node.instance})


@router.head(READY, include_in_schema=False)
@router.get(READY, response_class=PlainTextResponse, responses={503: {"description": "Not ready, and why."}})
async def readyz(request: Request) -> PlainTextResponse:
    """Whether it serves reads and leads, or follows a topom that does; 503 with the reason if not. Needs no token."""
    node: Node | None = request.app.state.node
    if node is not None:
        missing = _missing(node)
    else:
        ledger = request.app.state.serving().ledger
        missing = REPLACED if ledger.lost.is_set() else UNSTORED if ledger.unstored is not None else None
    return PlainTextResponse("ok\n" if missing is None else missing + "\n", 200 if missing is None else 503)


def _missing(node: Node) -> str | None:
    """Why this topom is not ready; None if it is."""
    if (leading := node.leading) is not None:
        return None if leading.ledger.unstored is None else UNSTORED
    if node.view.reason is not None:
        return STORE
    if node.leader is None:
        return NO_LEADER
    if node.unfit.get("misplaced") is not None:
        return MISPLACED
    if node.unfit.get("refused") is not None:
        return SAME_URL if node.leader.url == node.url else REFUSED
    if node.unfit.get("unheard") is not None:
        return UNHEARD
    try:
        node.serving  # noqa: B018
    except NotLeading:
        return UNREAD
    return None
