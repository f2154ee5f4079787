"""The page's files: how large they are, where libraries come from, how they are served."""

import gzip
import hashlib
import re
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from topom.web import pages

VENDOR = pages.HERE / "assets" / "vendor"
FILES = pages.read()


async def get(path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(Starlette(routes=[*pages.routes()]))
    async with httpx.AsyncClient(transport=transport, base_url="http://topom", headers=headers) as client:
        return await client.get(path)


def test_all_files_together_are_small() -> None:
    assert sum(map(len, FILES.values())) <= pages.MOST_BYTES
    assert {path.suffix for path in (pages.HERE / "assets").rglob("*") if path.is_file()} <= set(pages.MEDIA)


def test_libraries_are_what_their_list_says() -> None:
    listed = {}
    for line in (VENDOR / "sources.txt").read_text().splitlines():
        digest, name, source, licence = line.split("  ")
        assert source.startswith("npm:")
        assert licence
        listed[name] = digest
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDOR.glob("*.js")}
    assert found == listed
    licences = (VENDOR / "licences.txt").read_text()
    assert "The MIT License" in licences
    assert "Apache License" in licences


def test_nothing_comes_from_elsewhere_or_stands_within_the_page() -> None:
    page = FILES["/"].decode()
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", page)
    for path in re.findall(r'(?:src|href)="([^"#][^"]*)"', page):
        assert path in FILES, path
    ours = {path: content.decode() for path, content in FILES.items() if "/vendor/" not in path}
    assert [path for path, text in ours.items() if re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(", text)] == []
    assert [path for path, text in ours.items() if path.endswith((".js", ".css")) and "//cdn" in text] == []


def test_every_module_that_is_imported_is_there() -> None:
    for path, content in FILES.items():
        if path.endswith(".js") and "/vendor/" not in path:
            for name in re.findall(r'from "([^"]+)"', content.decode()):
                assert (Path("/", *Path(path).parts[1:-1]) / name).as_posix().replace("js/../", "") in FILES, (
                    path,
                    name,
                )


@pytest.mark.parametrize("path", ["/", "/assets/js/app.js", "/assets/css/base.css", "/assets/icon.svg"])
async def test_a_file_is_served_as_what_it_is(path: str) -> None:
    answer = await get(path)
    assert answer.status_code == 200
    assert answer.content == FILES[path]
    assert answer.headers["content-type"] == pages.MEDIA[Path(path).suffix or ".html"]
    assert answer.headers["cache-control"] == "no-cache"


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    tag = (await get("/")).headers["etag"]
    again = await get("/", **{"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert (await get("/assets/js/live.js")).headers["etag"] != tag


async def test_files_are_compressed_for_who_takes_that() -> None:
    plain = await get("/", **{"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    small = await get("/", **{"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == plain.content
    assert int(small.headers["content-length"]) == len(gzip.compress(FILES["/"], 6)) < len(FILES["/"])


@pytest.mark.parametrize("path", ["/assets/../pages.py", "/assets/js/none.js", "/assets/", "/assets/%2e%2e/pages.py"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await get(path)).status_code == 404
