"""The dependencies of every endpoint: the token, and the topom that is served."""

from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from topom.cluster import events
from topom.errors import BodyNotTaken
from topom.term.service import Topom

_bearer = HTTPBearer(auto_error=False, description="topom's token; it is in the file `token` of its data folder.")


USER_HEADER = "X-Slotferry-User"
"""Names the operator in events. Nothing proves it: a client with the token may write any name."""


async def require_token(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    user: Annotated[str | None, Header(alias=USER_HEADER, description="Who is told in events to have done it.")] = None,
) -> None:
    """Let events name the operator for what this request changes.

    The door has checked the token (:mod:`topom.api.door`); the credentials are here for OpenAPI.
    """
    events.actor.set(events.operator(user))


async def refuse_body(request: Request) -> None:
    """Raises :class:`~topom.errors.BodyNotTaken` for a body that says anything: it would have no effect."""
    if (await request.body()).strip() not in (b"", b"{}", b"null"):
        raise BodyNotTaken("this takes no body; what there is to say stands in the query, as in drain?why=old")


async def _topom(request: Request) -> Topom:
    topom: Topom = request.app.state.serving()
    return topom


ServedTopom = Annotated[Topom, Depends(_topom)]
