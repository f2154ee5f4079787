"""Serves the page's files from memory. :mod:`topom.api.page_headers` adds what a browser may do with them.

**bounded**: the files are read once, at the start; together they have at most :data:`MOST_BYTES`.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HERE = Path(__file__).parent
ASSETS = "/assets/"
MOST_BYTES = 300 * 1024
"""What all files have together, before they are compressed."""
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""By suffix; a file with another one is not served."""


@dataclass(frozen=True, slots=True)
class _File:
    whole: bytes
    compressed: bytes
    media: str
    tag: str


def read() -> Mapping[str, bytes]:
    """The files by the path under which they are served."""
    found = {"/": (HERE / "index.html").read_bytes()}
    folder = HERE / "assets"
    for file in sorted(folder.rglob("*")):
        if file.suffix in MEDIA:
            found[ASSETS + file.relative_to(folder).as_posix()] = file.read_bytes()
    return found


def routes() -> list[Route]:
    """What serves the page, for an application."""
    files = {path: _file(path, content) for path, content in read().items()}

    async def serve(request: Request) -> Response:
        file = files.get(request.url.path)
        if file is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {"ETag": file.tag, "Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media)
        return Response(file.whole, headers=headers, media_type=file.media)

    paths = ("/", ASSETS + "{path:path}")
    return [Route(path, serve, methods=["GET"], include_in_schema=False) for path in paths]


def _file(path: str, content: bytes) -> _File:
    media = MEDIA[Path(path).suffix or ".html"]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, gzip.compress(content, 6, mtime=0), media, tag)
