"""Logging in with a browser: a token is posted once, and a cookie stands for it afterwards.

**bounded**: the size of the body (:mod:`topom.api.door`), and how often a second a wrong token is looked at in vain. A
right token gets in at any time, so nobody can lock an operator out.
"""

import json
import time
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qs

import structlog
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from topom.api.access import Calling, require_token
from topom.api.callers import Callers, foreign_page
from topom.api.roles import LOGIN, ME
from topom.api.routers import REFUSALS
from topom.api.sessions import COOKIE, SESSION_SECONDS, Caller
from topom.errors import TopomError
from topom.term.tokens import Role

log = structlog.get_logger(__name__)

WRONG_A_SECOND = 10

router = APIRouter(tags=["login"], responses=REFUSALS)


class LoginRefused(TopomError):
    """The token is not one of topom's."""

    status = 401


class RoleRefused(TopomError):
    """The role does not allow it."""

    status = 403


class ForeignPage(TopomError):
    """A page of another origin made the browser send it."""

    status = 403


class TooManyLogins(TopomError):
    """Too many wrong tokens came within a second."""

    status = 429


class Me(BaseModel):
    """Who asks."""

    name: str = Field(description="Name of the token, as events show it.")
    role: Role = Field(description="viewer, operator, proxy or migrator.")
    expires: Annotated[
        float | None, Field(description="When the session ends, seconds since 1970. null: with a token, it does not.")
    ]


class Failures:
    """Counts wrong tokens of the present second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._number = 0

    def another(self) -> bool:
        """Count one more; gives whether it is one too many."""
        now = self._clock()
        if now - self._began >= 1:
            self._began, self._number = now, 0
        self._number += 1
        return self._number > WRONG_A_SECOND


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "object", "required": ["token"], "properties": {"token": {"type": "string"}}}}
            for kind in ("application/json", "application/x-www-form-urlencoded")
        },
    }
}


@router.post(LOGIN, openapi_extra=_BODY)
async def login(request: Request, response: Response) -> Me:
    """Begin a session: the answer sets a cookie that stands for the token for 12 hours."""
    callers: Callers = request.app.state.callers
    client = request.client.host if request.client else ""
    if foreign_page(request.scope["headers"]):
        raise ForeignPage("only topom's own page logs a browser in; open topom's address and log in there")
    token = callers.tokens.find(_token(await request.body()))
    if token is None:
        if request.app.state.failures.another():
            raise TooManyLogins(f"more than {WRONG_A_SECOND} wrong tokens came within a second; try again in a second")
        log.warning("login_refused", client=client)
        raise LoginRefused("the token is wrong; it is in the file named token in topom's data folder")
    if not token.role.may(Role.VIEWER):
        raise RoleRefused(f"the page needs the role viewer; the token {token.name} has the role {token.role}")
    value, caller = callers.sessions.begin(token)
    log.info("login", name=token.name, role=str(token.role), client=client)
    response.set_cookie(COOKIE, value, max_age=SESSION_SECONDS, **_attributes(request))
    return _me(caller)


@router.post("/logout", status_code=204, dependencies=[Depends(require_token)])
async def logout(request: Request) -> Response:
    """Let the browser forget the session. A copy of the cookie holds until its end, or until the token is changed."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, **_attributes(request))
    return response


@router.get(ME, dependencies=[Depends(require_token)])
async def me(caller: Calling) -> Me:
    """Who asks, in which role, and until when."""
    return _me(caller)


def _me(caller: Caller) -> Me:
    return Me(name=caller.name, role=caller.role, expires=caller.expires)


def _attributes(request: Request) -> dict[str, Any]:
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": request.scope["scheme"] == "https"}


def _token(body: bytes) -> bytes:
    """The token in a body of JSON or of a form; empty if there is none."""
    try:
        if body.lstrip().startswith(b"{"):
            said = json.loads(body).get("token")
        else:
            (said,) = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=10).get("token", [""])
    except (ValueError, RecursionError):
        return b""
    return said.encode(errors="replace") if isinstance(said, str) else b""
