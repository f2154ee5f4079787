"""A request without the token gets nothing: not even what comes after its head is looked at."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from topom.api import door
from topom.api.callers import Callers
from topom.api.door import Door
from topom.api.guesses import MOST_WRONG
from topom.term.tokens import Role, Token, Tokens

TOKEN = (b"authorization", b"Bearer t")


class Client:
    """Speaks to the door; its body never comes."""

    def __init__(self, *pieces: bytes, host: str = "10.0.0.1") -> None:
        self.host = host
        self.asked = 0
        self.answers: list[Message] = []
        self._pieces = list(pieces)

    async def ask(
        self,
        method: str,
        path: str,
        *headers: tuple[bytes, bytes],
        type: str = "http",
        callers: Callers = Callers(Tokens("t")),  # noqa: B008
    ) -> None:
        scope = {"type": type, "method": method, "path": path, "headers": headers, "client": (self.host, 1)}
        await Door(self._inside, callers, {"/large": 10**9})(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        self.asked += 1
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Any) -> None:
        self.answers.append(message)

    async def _inside(self, scope: Any, receive: Any, send: Any) -> None:
        while scope["method"] == "POST" and (await receive())["more_body"]:
            pass
        await send({"type": "inside"})

    @property
    def answer(self) -> Any:
        return self.answers[0].get("status", self.answers[0]["type"])


@pytest.mark.parametrize("header", [(), ((b"authorization", b"Bearer x"),), ((b"authorization", b"\xff"),)])
@pytest.mark.parametrize(
    ("method", "path", "announced"),
    [
        ("POST", "/api/v1/groups", (b"content-length", b"1000000")),
        ("POST", "/livez", (b"transfer-encoding", b"chunked")),
        ("GET", "/readyz", (b"content-length", b"1")),
        ("GET", "/docs", (b"accept", b"*")),
        ("GET", "/openapi.json", (b"accept", b"*")),
        ("GET", "/metrics", (b"accept", b"*")),
        ("GET", "/elsewhere", (b"accept", b"*")),
    ],
)
async def test_nothing_is_read_without_the_token(method: str, path: str, announced: Any, header: Any) -> None:
    client = Client()
    await client.ask(method, path, announced, *header)
    assert client.answer == 401
    assert client.asked == 0


async def test_a_stream_without_the_token_is_not_accepted() -> None:
    client = Client()
    await client.ask("GET", "/api/v1/control", type="websocket")
    assert (client.answer, client.asked) == ("websocket.close", 0)


async def test_a_probe_needs_none() -> None:
    client = Client()
    await client.ask("GET", "/readyz", (b"content-length", b"0"))
    assert client.answer == "inside"


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/livez", "/readyz"])
async def test_what_anybody_may_read(path: str) -> None:
    client = Client()
    await client.ask("GET", path)
    assert client.answer == "inside"
    client = Client()
    await client.ask("GET", path, (b"content-length", b"1"))
    assert (client.answer, client.asked) == (401, 0)
    client = Client()
    await client.ask("POST", path)
    assert (client.answer, client.asked) == (401, 0)


async def test_a_login_needs_no_token_and_is_small() -> None:
    client = Client(b"x" * 4097)
    await client.ask("POST", "/login")
    assert client.answer == 413
    client = Client()
    await client.ask("POST", "/login", (b"content-length", b"4097"))
    assert (client.answer, client.asked) == (413, 0)
    client = Client()
    await client.ask("GET", "/login")
    assert (client.answer, client.asked) == (401, 0)


VIEWER = Token(Role.VIEWER, "grafana", b"v")
PROXY = Token(Role.PROXY, "fleet", b"p")
CALLERS = Callers(Tokens("t", VIEWER, PROXY))


def cookie(token: Token) -> tuple[bytes, bytes]:
    return b"cookie", b"slotferry_session=" + CALLERS.sessions.begin(token)[0].encode()


ADA = CALLERS.tokens.all[0]
PAGE = (b"x-slotferry-request", b"1")
HOST = (b"host", b"topom")


@pytest.mark.parametrize(
    ("method", "path", "headers", "answer"),
    [
        ("GET", "/api/v1/status", [(b"authorization", b"Bearer v")], "inside"),
        ("POST", "/api/v1/groups", [(b"authorization", b"Bearer v")], 403),
        ("GET", "/api/v1/status", [(b"authorization", b"Bearer p")], 403),
        ("POST", "/logout", [(b"authorization", b"Bearer p")], 403),
        ("GET", "/api/v1/status", [(b"authorization", b"Bearer t"), (b"authorization", b"Bearer t")], 401),
        ("GET", "/api/v1/status", [cookie(VIEWER)], "inside"),
        ("POST", "/api/v1/groups", [cookie(VIEWER), PAGE, HOST], 403),
        ("POST", "/api/v1/groups", [cookie(ADA)], 403),
        ("POST", "/api/v1/groups", [cookie(ADA), (b"origin", b"http://topom"), HOST], 403),
        ("POST", "/api/v1/groups", [cookie(ADA), PAGE, (b"origin", b"http://evil"), HOST], 403),
        ("POST", "/api/v1/groups", [cookie(ADA), PAGE, (b"sec-fetch-site", b"same-site"), HOST], 403),
        ("DELETE", "/api/v1/groups/1", [cookie(ADA), PAGE, (b"origin", b"http://topom"), HOST], "inside"),
        ("DELETE", "/api/v1/groups/1", [(b"authorization", b"Bearer t"), (b"origin", b"http://evil"), HOST], "inside"),
    ],
)
async def test_who_asks_decides(method: str, path: str, headers: Any, answer: Any) -> None:
    client = Client()
    await client.ask(method, path, *headers, callers=CALLERS)
    assert (client.answer, client.asked) == (answer, 0)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        *(((b"authorization", b"Bearer p"), "inside"), ((b"authorization", b"Bearer t"), "inside")),
        *(((b"authorization", b"Bearer v"), "websocket.close"), (cookie(ADA), "websocket.close")),
    ],
)
async def test_who_may_open_a_stream(header: Any, answer: str) -> None:
    client = Client()
    await client.ask("GET", "/api/v1/control", header, type="websocket", callers=CALLERS)
    assert client.answer == answer


async def test_a_refusal_says_which_role_is_needed() -> None:
    client = Client()
    await client.ask("POST", "/api/v1/groups", (b"authorization", b"Bearer v"), callers=CALLERS)
    assert b"this needs the role operator; the token grafana has the role viewer" in client.answers[1]["body"]


async def test_who_guesses_tokens_is_told_to_stop_and_a_right_token_gets_in_all_the_same() -> None:
    callers = Callers(Tokens("t"))

    async def ask(*headers: tuple[bytes, bytes], path: str = "/api/v1/status", host: str = "10.0.0.1") -> Any:
        client = Client(host=host)
        await client.ask("GET", path, *headers, callers=callers)
        return client.answer

    wrong = (b"authorization", b"Bearer x")
    assert [await ask(wrong) for _ in range(MOST_WRONG + 2)] == [401] * MOST_WRONG + [429] * 2
    assert await ask(TOKEN) == "inside"
    assert await ask(wrong, host="10.0.0.2") == 401
    assert await ask() == 401, "it guesses nothing"
    assert await ask(wrong, path="/readyz") == "inside", "what anybody may read shows nothing of the token"
    client = Client()
    await client.ask("GET", "/api/v1/status", wrong, callers=callers)
    assert dict(client.answers[0]["headers"])[b"retry-after"] == b"60"
    assert b"more than 100 wrong tokens came from your address within 60 s" in client.answers[1]["body"]


async def test_a_body_with_the_token_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(b" " * 600_000, b" " * 600_000)
    await client.ask("POST", "/api/v1/groups", TOKEN)
    assert client.answer == 413
    assert b"the body may have 1048576 bytes at most" in client.answers[1]["body"]
    client = Client()
    await client.ask("POST", "/api/v1/groups", TOKEN, (b"content-length", b"2000000"))
    assert client.answer == 413
    monkeypatch.setattr(door, "PIECE_SECONDS", 0.01)
    client = Client(b"a piece")
    await client.ask("POST", "/api/v1/groups", TOKEN)
    assert client.answer == 408
    assert b"nothing of the body came for 0.01 s" in client.answers[1]["body"]


async def test_a_body_in_many_small_pieces_has_a_limit_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "BODY_SECONDS", -4.0)
    client = Client(*[b" "] * 100_000)
    await client.ask("POST", "/api/v1/groups", TOKEN)
    assert client.answer == 408
    assert client.asked < 100_000


async def test_what_is_made_of_a_refused_body_within_is_not_said() -> None:
    class Converting(Client):
        async def _inside(self, scope: Any, receive: Any, send: Any) -> None:
            try:
                await super()._inside(scope, receive, send)
            except Exception:
                await send({"type": "http.response.start", "status": 400})
                await send({"type": "http.response.body"})

    client = Converting(b" " * 600_000, b" " * 600_000)
    await client.ask("POST", "/api/v1/groups", TOKEN)
    assert [answer.get("status") for answer in client.answers] == [413, None]
