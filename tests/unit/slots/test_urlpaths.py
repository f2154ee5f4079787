"""A name in the path of a URL arrives as it is, whatever is in it."""

from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.urlpaths import literal


@pytest.mark.parametrize("name", [".", "..", "...", "a.b", "../a", "a/..", "./.", "a/b", "%2E", "?", "#", "-", ".a"])
def test_odd_names_arrive(name: str) -> None:
    for safe in ("", "/", ":"):
        url = httpx.URL(f"http://topom.test/users/{literal(name, safe)}")
        assert unquote(url.raw_path.decode()) == f"/users/{name}"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8))
def test_any_name_arrives(name: str) -> None:
    assert unquote(httpx.URL(f"http://topom.test/{literal(name, '')}").raw_path.decode()) == f"/{name}"
