"""Routers of resources. What holds of all their endpoints stands here.

Each endpoint is made once, when its file is imported, with its whole path. An application takes it as it is
(:func:`topom.api.build`): including one router in another would make each endpoint anew in every topom.
"""

from typing import Any

from fastapi import APIRouter, Depends

from topom.api.access import require_known_query, require_token
from topom.api.models import Refusal

PREFIX = "/api/v1"
REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Refusal, "description": description}
    for code, description in (
        (401, "The bearer token, or the session, is missing or wrong."),
        (403, "The role of the token does not allow it, or a page of another origin made the browser send it."),
        (404, "What the request names is not there."),
        (409, "It cannot be done as things stand; the message says why."),
        (422, "The request does not say something that can be done."),
        (503, "The store fails, or no topom leads, so nothing was changed; or too many requests wait."),
        (504, "The topom that leads fell silent; whether it was done is not known."),
    )
}


def resource(path: str, tag: str, **options: Any) -> APIRouter:
    """A router for the endpoints of one resource, below ``/api/v1`` and this path.

    Args:
        tag: the heading in the documents.
        options: more for :class:`fastapi.APIRouter`.
    """
    held = [Depends(require_token), Depends(require_known_query)]
    return APIRouter(prefix=PREFIX + path, tags=[tag], dependencies=held, responses=REFUSALS, **options)
