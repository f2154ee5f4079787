"""The page that describes the API."""

import re
from html.parser import HTMLParser

from topom.api import RESOURCES
from topom.api.documents import page

ODD = "<script>alert('&\"')</script>"


class Reader(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_says_all_that_the_document_says_and_links_what_it_names() -> None:
    from fastapi import FastAPI

    document = FastAPI(title="T", routes=[route for one in RESOURCES for route in one.router.routes]).openapi()
    read = Reader(page(document))
    assert read.open == []
    assert set(read.tags) <= {
        *("html", "head", "meta", "title", "body", "h1", "h2", "h3", "p", "a", "ul", "li"),
        *("table", "tr", "th", "td", "code"),
    }
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in read.text
    for name, schema in document["components"]["schemas"].items():
        assert name in read.text
        assert all(field in read.text for field in schema.get("properties", ()))
    places = {value for name, value in read.attributes if name == "id"}
    links = {value for name, value in read.attributes if name == "href"}
    assert {link[1:] for link in links if link is not None and link.startswith("#")} <= places
    assert {link for link in links if link is not None and not link.startswith("#")} == {"/openapi.json"}


def test_whatever_stands_there_is_text() -> None:
    schema = {"type": ODD, "description": ODD}
    endpoint = {
        "tags": [ODD],
        "description": ODD,
        "x-role": ODD,
        "parameters": [{"name": ODD, "in": ODD, "required": True, "schema": {"enum": [ODD]}, "description": ODD}],
        "requestBody": {"content": {ODD: {"schema": {"type": "array", "items": {"const": ODD}}}}},
        "responses": {ODD: {"description": ODD, "content": {"a": {"schema": {"$ref": "#/x/" + ODD}}}}},
    }
    document = {
        "info": {"title": ODD, "version": ODD, "summary": ODD},
        "paths": {ODD: {ODD: endpoint}},
        "components": {
            "schemas": {
                ODD: {
                    **schema,
                    "enum": [ODD],
                    "required": [ODD],
                    "properties": {
                        ODD: {"anyOf": [schema, {"type": "object", "additionalProperties": schema}], "description": ODD}
                    },
                }
            }
        },
    }
    text = page(document)
    read = Reader(text)
    assert "script" not in read.tags
    assert {name for name, _ in read.attributes} == {"lang", "charset", "name", "content", "href", "id"}
    assert len(re.findall("<script", text, re.IGNORECASE)) == 0
    assert read.text.count(ODD) + read.text.count(ODD.replace("<script>", "<SCRIPT>")) >= 20
