"""Answers every error with the same small object."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from slots.environment import nearest
from slots.version import program_version
from slots.wrongvalues import in_words
from topom.errors import TopomError

log = structlog.get_logger(__name__)


def _refusal(status: int, error: str, message: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": error, "message": message}, status, headers)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TopomError)
    return _refusal(error.status, type(error).__name__, str(error))


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = _fields_of_body(request)
    sentences = []
    for entry in error.errors():
        where, *within = entry["loc"] or ("body",)
        # Where a body is no JSON, this is the number of the character.
        place = "" if entry["type"] == "json_invalid" else ".".join(map(str, within))
        known = fields if where == "body" else entry.get("ctx", {}).get("known", ())
        near = nearest(place, known) if entry["type"] == "extra_forbidden" else None
        hint = f"; did you mean {near}?" if near else ""
        sentences.append(f"{place or 'the body'} {in_words(entry)}{hint}")
    return _refusal(422, "InvalidRequest", "; ".join(sentences))


def _fields_of_body(request: Request) -> list[str]:
    """The names of the fields that the request's body may have."""
    field = getattr(request.scope.get("route"), "body_field", None)
    model = field.field_info.annotation if field is not None else None
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    to_do = ""
    if error.status_code == 404 and path.endswith("/"):
        to_do = "; leave out the slash at its end"
    elif error.status_code == 404 and path.startswith("/api/"):
        to_do = f"; topom {program_version()} has nothing there: is the caller of another version?"
    return _refusal(error.status_code, "HttpError", f"{request.method} {path}: {error.detail}{to_do}")


async def _gone(request: Request, error: Exception) -> Response:
    # The client left before its body had come: nobody reads this, and nothing has failed.
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    log.error("request_failed", path=request.url.path, exc_info=error)
    return _refusal(500, type(error).__name__, "topom failed at this request; its log says more")


def add_handlers(app: FastAPI) -> None:
    """Let ``app`` answer every error as ``{"error", "message"}``."""
    app.add_exception_handler(TopomError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _failed)
