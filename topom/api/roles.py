"""Which role a request needs.

It follows from the method: to read takes a viewer, anything else an operator. :data:`EXCEPTIONS` has the rest. The
door asks this before it reads a body, and the OpenAPI document says it of each endpoint, as ``x-role``.
"""

from collections.abc import Mapping

from slots.messages.copies import PATH
from topom.api.access import READS
from topom.api.routers import PREFIX
from topom.term.tokens import Role

LIVE = "/livez"
READY = "/readyz"
LOGIN = "/login"
ME = f"{PREFIX}/me"
ASSETS = "/assets/"
"""The page's files; they hold nothing of a cluster."""
EXCEPTIONS: Mapping[tuple[str, str], Role | None] = {
    ("GET", LIVE): None,
    ("GET", READY): None,
    ("GET", "/"): None,
    ("POST", LOGIN): None,
    ("POST", "/logout"): Role.VIEWER,
}
"""By method and path; None: anybody, also without a token."""
ANYBODY = "anybody"


def needed(method: str, path: str) -> Role | None:
    """The role that a request needs; None if it needs none."""
    if method in READS:
        return None if path.startswith(ASSETS) else EXCEPTIONS.get(("GET", path), Role.VIEWER)
    return EXCEPTIONS.get((method, path), Role.OPERATOR)


def needed_for_stream(path: str) -> Role:
    """The role that a WebSocket needs."""
    return Role.MIGRATOR if path == PATH else Role.PROXY


def describe(document: dict[str, object]) -> None:
    """Add to an OpenAPI document the role of each endpoint."""
    paths = document["paths"]
    assert isinstance(paths, dict)
    for path, endpoints in paths.items():
        for method, endpoint in endpoints.items():
            endpoint["x-role"] = needed(method.upper(), path) or ANYBODY
