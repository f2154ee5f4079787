"""``/docs``: the API described on one page, made of the OpenAPI document; it needs no script and no network.

Whatever the document says is escaped.
"""

import html
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from topom.api.access import require_token

router = APIRouter()

Document = Mapping[str, Any]


@router.get("/docs", include_in_schema=False, dependencies=[Depends(require_token)])
async def documents(request: Request) -> HTMLResponse:
    """The page."""
    state = request.app.state
    if not hasattr(state, "documents"):
        state.documents = page(request.app.openapi())  # the document stays as it is
    return HTMLResponse(state.documents)


def page(document: Document) -> str:
    """The whole page for an OpenAPI document."""
    return "\n".join(_page(document))


def _page(document: Document) -> Iterator[str]:
    info = document["info"]
    title = _text(info["title"])
    yield '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
    yield f"<title>{title}</title></head>\n<body>"
    yield f"<h1>{title} {_text(info['version'])}</h1>\n<p>{_text(info.get('summary', ''))}</p>"
    yield '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>'
    endpoints: dict[str, list[tuple[str, str, Document]]] = {}
    for path, methods in document["paths"].items():
        for method, endpoint in methods.items():
            endpoints.setdefault(endpoint.get("tags", ["other"])[0], []).append((method.upper(), path, endpoint))
    yield "<ul>"
    for tag in endpoints:
        yield f'<li><a href="#{_text(tag)}">{_text(tag)}</a></li>'
    yield '<li><a href="#objects">objects</a></li>\n</ul>'
    for tag, listed in endpoints.items():
        yield f'<h2 id="{_text(tag)}">{_text(tag)}</h2>'
        for method, path, endpoint in listed:
            yield from _endpoint(method, path, endpoint)
    yield '<h2 id="objects">objects</h2>'
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        yield from _object(name, schema)
    yield "</body>\n</html>"


def _endpoint(method: str, path: str, endpoint: Document) -> Iterator[str]:
    yield f"<h3><code>{_text(method)} {_text(path)}</code></h3>"
    yield f"<p>{_text(endpoint.get('description', ''))}</p>\n<p>Role: {_text(endpoint.get('x-role', ''))}.</p>"
    parameters = endpoint.get("parameters", [])
    if parameters:
        yield "<table>\n<tr><th>parameter</th><th>in</th><th>type</th><th>what it is</th></tr>"
        for one in parameters:
            name = one["name"] + (" (required)" if one.get("required") else "")
            yield _row(name, one["in"], _kind(one.get("schema", {})), one.get("description", ""))
        yield "</table>"
    for media, content in endpoint.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body, {_text(media)}: {_kind(content.get('schema', {}))}</p>"
    yield "<table>\n<tr><th>status</th><th>when</th><th>answer</th></tr>"
    for status, answer in endpoint.get("responses", {}).items():
        kinds = ", ".join(
            _kind(content["schema"]) for content in answer.get("content", {}).values() if content.get("schema")
        )
        yield f"<tr><td>{_text(status)}</td><td>{_text(answer.get('description', ''))}</td><td>{kinds}</td></tr>"
    yield "</table>"


def _object(name: str, schema: Document) -> Iterator[str]:
    yield f'<h3 id="object-{_text(name)}"><code>{_text(name)}</code></h3>'
    yield f"<p>{_text(schema.get('description', ''))}</p>"
    if "enum" in schema:
        yield f"<p>One of {_text(', '.join(map(str, schema['enum'])))}.</p>"
    if schema.get("properties"):
        needed = schema.get("required", [])
        yield "<table>\n<tr><th>field</th><th></th><th>type</th><th>what it is</th></tr>"
        for field, kind in schema["properties"].items():
            required = "required" if field in needed else ""
            yield _row(field, required, _kind(kind), kind.get("description", ""))
        yield "</table>"


def _row(name: str, place: str, kind: str, description: str) -> str:
    """A row of a table; ``kind`` is HTML, the rest is text."""
    cells = f"<code>{_text(name)}</code>", _text(place), kind, _text(description)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _kind(schema: Document) -> str:
    """A type, as HTML with links to objects."""
    if "$ref" in schema:
        name = _text(schema["$ref"].rpartition("/")[2])
        return f'<a href="#object-{name}">{name}</a>'
    if several := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(_kind(one) for one in several)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {})) or 'anything'}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    if "enum" in schema:
        return _text(", ".join(map(str, schema["enum"])))
    if "const" in schema:
        return _text(schema["const"])
    return _text(schema.get("type", ""))


def _text(value: object) -> str:
    return html.escape(str(value))
