"""Who asks, by what a request shows; what several headers, odd ones and those of browsers mean."""

import pytest

from topom.api.callers import Callers, foreign_page, from_page, session_cookie
from topom.api.sessions import Caller
from topom.term.tokens import Role, Token, Tokens

GRAFANA = Token(Role.VIEWER, "grafana", b"secret of grafana")
CALLERS = Callers(Tokens("own", GRAFANA), "shop")
COOKIE = CALLERS.sessions.begin(GRAFANA)[0].encode()
OWN = Caller("operator", Role.OPERATOR)
VIEWER = Caller("grafana", Role.VIEWER)

Header = tuple[bytes, bytes]


def bearer(secret: bytes) -> Header:
    return b"authorization", b"Bearer " + secret


def cookie(value: bytes = COOKIE) -> Header:
    return b"cookie", b"slotferry_session=" + value


@pytest.mark.parametrize(
    ("value", "caller"),
    [
        (b"Bearer own", OWN),
        (b"bearer own", OWN),
        (b"Bearer  own ", OWN),
        (b"Bearer secret of grafana", VIEWER),
        *((value, None) for value in (b"", b"Bearer", b"Bearer ", b"own", b"Basic own", b"Bearer ow", b"Bearer owns")),
        *((value, None) for value in (b"\xff\xfe", b"Bearer \xc3\xb6wn", b"Bearer own\x00", b"Bearer own, Bearer own")),
    ],
)
def test_a_bearer_token(value: bytes, caller: Caller | None) -> None:
    assert CALLERS.of([(b"authorization", value)]) == caller


def test_two_authorizations_are_nobodys() -> None:
    assert CALLERS.of([bearer(b"own"), bearer(b"own")]) is None
    assert CALLERS.of([bearer(b"own"), bearer(b"wrong")]) is None
    assert CALLERS.of([bearer(b"wrong"), bearer(b"own"), cookie()]) is None


def test_no_token_is_none() -> None:
    assert Callers(Tokens("")).of([bearer(b"")]) is None
    assert Callers(Tokens("")).of([]) is None


def test_a_cookie() -> None:
    found = CALLERS.of([cookie()])
    assert found is not None
    assert (found.name, found.role) == ("grafana", Role.VIEWER)
    assert found.expires is not None
    assert CALLERS.of([(b"cookie", b"a=b; slotferry_session=" + COOKIE + b" ;c=d")]) == found
    assert CALLERS.of([(b"cookie", b"a=b"), cookie()]) == found
    assert CALLERS.of([(b"cookie", b"x" * 10_000), cookie()]) == found


@pytest.mark.parametrize(
    "headers",
    [
        [cookie(), cookie()],
        [cookie(), cookie(b"other")],
        [(b"cookie", b"slotferry_session=" + COOKIE + b"; slotferry_session=x")],
        [(b"cookie", b"my_slotferry_session=" + COOKIE)],
        [(b"cookie", b"Slotferry_Session=" + COOKIE)],
        [(b"cookie", b"x" * 20_000), cookie()],
        [(b"cookie", b";" * 60_000)],
        [cookie(b""), (b"cookie", b"")],
        [cookie(b"\xff" * 100)],
        [cookie(b'"' + COOKIE + b'"')],
        [cookie(COOKIE + b"x" * 50_000)],
    ],
)
def test_cookies_that_are_nobodys(headers: list[Header]) -> None:
    assert CALLERS.of(headers) is None


def test_an_authorization_wins_over_a_cookie() -> None:
    assert CALLERS.of([cookie(), bearer(b"own")]) == OWN
    assert CALLERS.of([cookie(), bearer(b"wrong")]) is None
    assert CALLERS.of([cookie(), (b"authorization", b"")]) is None


def test_only_the_own_cookie_is_taken_out() -> None:
    assert session_cookie([(b"cookie", b"a=b; slotferry_session=v; c=d")]) == b"v"
    assert session_cookie([(b"cookie", b"a=b")]) is None


HOST = (b"host", b"Topom:8380")


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ([], False),
        ([(b"origin", b"http://topom:8380")], False),
        ([(b"origin", b"https://topom:8380")], False),
        ([(b"origin", b"http://topom:8381")], True),
        ([(b"origin", b"http://evil")], True),
        ([(b"origin", b"http://topom:8380.evil")], True),
        ([(b"origin", b"http://evil@topom:8380")], True),
        ([(b"origin", b"null")], True),
        ([(b"origin", b"")], True),
        ([(b"origin", b"http://[")], True),
        ([(b"origin", b"http://topom:8380"), (b"origin", b"http://evil")], True),
        ([(b"sec-fetch-site", b"same-origin")], False),
        ([(b"sec-fetch-site", b"same-site")], True),
        ([(b"sec-fetch-site", b"cross-site")], True),
        ([(b"sec-fetch-site", b"none")], True),
        ([(b"sec-fetch-site", b"same-origin"), (b"sec-fetch-site", b"cross-site")], True),
        ([(b"sec-fetch-site", b"cross-site"), (b"origin", b"http://topom:8380")], True),
    ],
)
def test_pages_of_others(headers: list[Header], foreign: bool) -> None:
    assert foreign_page([HOST, *headers]) == foreign
    assert from_page([HOST, (b"x-slotferry-request", b"1"), *headers]) == (not foreign)


def test_two_hosts_are_no_origin() -> None:
    assert foreign_page([HOST, (b"host", b"evil"), (b"origin", b"http://evil")])
    assert foreign_page([(b"origin", b"http://evil")])


@pytest.mark.parametrize("values", [[], [b""], [b"0"], [b"1", b"1"], [b"true"]])
def test_the_header_is_needed(values: list[bytes]) -> None:
    assert not from_page([HOST, *((b"x-slotferry-request", value) for value in values)])
