"""What a browser is told about pages and their files."""

from typing import Any

import pytest

from topom.api.page_headers import add_headers


async def headers_of(path: str, *own: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await add_headers(path, send)({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b"), *own]})
    await add_headers(path, send)({"type": "http.response.body", "body": b"x"})
    assert sent[1] == {"type": "http.response.body", "body": b"x"}
    return dict(sent[0]["headers"])


@pytest.mark.parametrize("path", ["/", "/docs", "/assets/app.js"])
async def test_pages_run_nothing_but_our_own(path: str) -> None:
    headers = await headers_of(path)
    assert headers[b"content-security-policy"].startswith(b"default-src 'none'; script-src 'self'; ")
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert b"unsafe" not in headers[b"content-security-policy"]
    assert (headers[b"x-content-type-options"], headers[b"referrer-policy"]) == (b"nosniff", b"no-referrer")
    assert headers.get(b"cache-control") == (None if path.startswith("/assets") else b"no-store")
    assert headers[b"a"] == b"b"


async def test_headers_of_the_answer_stay() -> None:
    headers = await headers_of("/", (b"Cache-Control", b"no-cache"))
    assert (headers[b"Cache-Control"], b"cache-control" in headers) == (b"no-cache", False)


async def test_other_answers_stay_as_they_are() -> None:
    assert await headers_of("/api/v1/status") == {b"a": b"b"}
