"""The dependencies of every endpoint: who asks, and the topom that is served."""

from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from topom.api.sessions import COOKIE, Caller
from topom.cluster import events
from topom.errors import BodyNotTaken
from topom.term.service import Topom

_bearer = HTTPBearer(
    auto_error=False, description="A token of topom; the one that it made is in the file `token` of its data folder."
)
_session = APIKeyCookie(name=COOKIE, auto_error=False, description="A session that `POST /login` began.")

USER_HEADER = "X-Slotferry-User"
"""Names the operator in events. Nothing proves it, so the token's name stands behind it."""
ORDER_SECONDS = 23.0
"""How long a request that changes something waits, once topom leads, until topom may act. A topom that passes it on
waits for a little longer."""
READS = ("GET", "HEAD")
"""Methods of requests that change nothing."""
CALLER = "slotferry.caller"
"""Where the door notes in the scope of a request who asks."""


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


Calling = Annotated[Caller, Depends(_caller)]
"""Who asks."""


async def require_token(
    caller: Calling,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    session: Annotated[str | None, Depends(_session)],
    user: Annotated[str | None, Header(alias=USER_HEADER, description="Who is told in events to have done it.")] = None,
) -> None:
    """Let events name who asks for what this request changes.

    The door has checked it (:mod:`topom.api.door`); the credentials are here for OpenAPI.
    """
    events.actor.set(events.asker(caller.name, user))


async def require_known_query(request: Request) -> None:
    """Raises RequestValidationError for what the query says and the endpoint does not know: it would have no effect,
    though a caller of another version may rely on it."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "ctx": {"known": known}} for name in unknown]
        )


async def refuse_body(request: Request) -> None:
    """Raises :class:`~topom.errors.BodyNotTaken` for a body that says anything: it would have no effect."""
    if (await request.body()).strip() not in (b"", b"{}", b"null"):
        raise BodyNotTaken("this takes no body; what there is to say stands in the query, as in drain?why=old")


async def _topom(request: Request) -> Topom:
    topom: Topom = request.app.state.serving()
    if request.method not in READS:
        # newest-store: what an operator asks for is done to servers as well.
        await topom.members.newest.settled_within(ORDER_SECONDS)
    return topom


ServedTopom = Annotated[Topom, Depends(_topom)]
