"""Answers every error with the same small object."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

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
    sentences = []
    for entry in error.errors():
        place = ".".join(str(part) for part in entry["loc"] if part not in ("body", "query", "path"))
        sentences.append(f"{place or 'the body'}: {entry['msg']}")
    return _refusal(422, "InvalidRequest", "; ".join(sentences))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, "HttpError", f"{request.method} {request.url.path}: {error.detail}")


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
