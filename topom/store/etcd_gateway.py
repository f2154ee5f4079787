"""etcd's API over HTTP and JSON, at any of several servers, with one time limit for each call.

If a server fails, a request that changes nothing, or may be made twice, goes to the next server. A request that changes
something is sent once. It is tried again only if there was no connection, or if the server refused our identity.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx

from slots.access import ServerTls
from slots.tls import Certificates, client_context
from topom.store import StoreError

_UNAUTHENTICATED = 16
_LOGINS = 2
"""How often a call logs in at most: the server may have forgotten us."""


class NotFound(StoreError):
    """etcd knows no such lease."""


class Compacted(StoreError):
    """etcd has forgotten the data of that revision."""


class EtcdGateway:
    """A client of the servers at ``urls``.

    Args:
        urls: ``http://host:port`` or ``https://host:port`` of each server.
        user, password: "" for none.
        tls: the authorities and certificate to use; None for connections in the clear.
        seconds: how long a call may take with all its tries.

    Raises:
        TlsError: the files cannot be used.
    """

    def __init__(self, urls: Sequence[str], user: str, password: str, tls: ServerTls | None, seconds: float) -> None:
        self._urls = list(urls)
        self._user = user
        self._password = password
        self._seconds = seconds
        self._token = ""
        self._at = 0  # the server to ask first
        self._certificates: Certificates | None = None
        if tls is not None:
            files = tls.authorities, tls.certificate, tls.key
            self._certificates = Certificates(files, lambda: client_context(*files, tls.verify_host))
        self._client: httpx.AsyncClient | None = None
        self._context: ssl.SSLContext | None = None
        self._old: list[httpx.AsyncClient] = []

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call that may be made twice. Raises :class:`StoreError`."""
        return await self._call(path, body, repeatable=True)

    async def change(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call that must be made once. Raises :class:`StoreError`: its outcome is unknown."""
        return await self._call(path, body, repeatable=False)

    async def events(self, key: bytes, revision: int) -> AsyncGenerator[None]:
        """Yields each time ``key`` was changed, from ``revision`` on; ends when the server tells nothing more."""
        request = {"create_request": {"key": encode(key), "start_revision": str(revision)}}
        at = self._at
        try:
            async with self._opened().stream(
                "POST", f"{self._urls[at]}/v3/watch", json=request, headers=self._headers()
            ) as response:
                async for line in response.aiter_lines():
                    result = json.loads(line).get("result", {}) if line else {}
                    if result.get("canceled"):
                        return
                    if result.get("events"):
                        yield
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError):
            self._pass_over(at)

    async def wait(self, key: bytes, revision: int, seconds: float) -> None:
        """Wait until ``key`` may have been changed, from ``revision`` on; at most ``seconds``. Never raises."""
        try:
            async with asyncio.timeout(seconds), aclosing(self.events(key, revision)) as events:
                async for _ in events:
                    return
        except TimeoutError:
            return

    async def close(self) -> None:
        """Close the connections. Never raises."""
        clients, self._client, self._old = [*self._old, self._client], None, []
        for client in clients:
            if client is not None:
                await client.aclose()

    def _opened(self) -> httpx.AsyncClient:
        context = self._certificates.context if self._certificates is not None else None
        if self._client is None or context is not self._context:
            if self._client is not None:
                # Calls that it still has end by themselves. bounded: certificates are renewed seldom.
                self._old.append(self._client)
            # trust_env: no variable of the environment says how to reach etcd.
            self._client = httpx.AsyncClient(
                verify=context if context is not None else False,
                trust_env=False,
                # Only for the connection: if there was none, nothing was sent, and the call may go to another server.
                timeout=httpx.Timeout(None, connect=self._seconds / (len(self._urls) + 1)),
            )
            self._context = context
        return self._client

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    def _pass_over(self, at: int) -> None:
        """Let the next call begin with another server than this one."""
        if self._at == at:
            self._at = (at + 1) % len(self._urls)

    async def _call(self, path: str, body: Mapping[str, Any], repeatable: bool) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        failures: list[str] = []
        for left in range(len(self._urls), 0, -1):
            at = self._at
            try:
                # A server that hangs leaves some of the time to the others, if they may be asked.
                share = (end - loop.time()) / (left if repeatable else 1)
                async with asyncio.timeout(max(0.0, share)):
                    return await self._authenticated(self._urls[at], path, body)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.append(f"{self._urls[at]}: no connection ({self._explained(error)})")
                self._pass_over(at)
            except (httpx.HTTPError, OSError, _Failed) as error:  # httpx lets some errors of TLS through
                failures.append(f"{self._urls[at]}: {str(error) or 'no answer in time'}")
                self._pass_over(at)
                if not repeatable:
                    break
        raise StoreError(
            f"etcd did not do what was asked: {'; '.join(failures)}. Look whether most of its servers are up, and "
            "reach each other"
        )

    def _explained(self, error: Exception) -> str:
        text = str(error) or "it ended at once"
        # A server that answers in the clear, or hangs up on a greeting in TLS, does not say why.
        in_the_clear = not str(error) or "WRONG_VERSION_NUMBER" in text or "record layer" in text.lower()
        if self._certificates is None or isinstance(error, httpx.ConnectTimeout) or not in_the_clear:
            return text
        return f"{text}: it does not seem to speak TLS there; set store_tls = false, or its client URLs to https"

    async def _authenticated(self, url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        for _ in range(_LOGINS):
            if self._user and not self._token:
                answer = await self._post(url, "auth/authenticate", {"name": self._user, "password": self._password})
                self._token = str(answer.get("token", ""))
            try:
                return await self._post(url, path, body)
            except _Unauthenticated:
                self._token = ""
        raise StoreError(f"etcd at {url} does not know who we are, just after it let us in")

    async def _post(self, url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response = await self._opened().post(f"{url}/v3/{path}", json=body, headers=self._headers())
        try:
            # A streaming call of etcd ends here with its one answer.
            answer = json.loads(response.text.partition("\n")[0])
        except ValueError:
            text = response.text.strip()
            if "CommonName" in text:
                raise StoreError(
                    f"etcd at {url} takes no certificate with a common name beside a user and password; set "
                    "store_tls_certificate to one whose subject is empty"
                ) from None
            raise _Failed(f"it answered with status {response.status_code}: {text[:200]}") from None
        if not isinstance(answer, dict):
            raise _Failed(f"it answered with status {response.status_code}")
        answer = answer.get("result", answer)
        if response.status_code == httpx.codes.OK and "error" not in answer:
            return answer  # type: ignore[no-any-return]
        raise self._error(url, answer)

    def _error(self, url: str, answer: Mapping[str, Any]) -> Exception:
        error = answer.get("error")
        if isinstance(error, dict):  # the error of a streaming call
            answer = error
        message = str(answer.get("message") or error or "no reason given")
        code = answer.get("code", answer.get("grpc_code"))
        if code == _UNAUTHENTICATED or "auth store is old" in message:
            return _Unauthenticated(message)
        if "lease not found" in message:
            return NotFound("etcd has ended the lease")
        if "compacted" in message:
            return Compacted("etcd was compacted meanwhile")
        if "user name is empty" in message:
            return StoreError(f"etcd at {url} asks for a user: set store_user and store_password")
        if "authentication is not enabled" in message:
            return StoreError(f"etcd at {url} knows no users: unset store_user, or enable authentication there")
        if "invalid user ID or password" in message:
            return StoreError(f"etcd at {url} does not let us in: correct store_user or store_password")
        if "permission denied" in message:
            return StoreError(f"etcd at {url} refused: the user {self._user} may not read and write store_prefix")
        return _Failed(message)


class _Failed(Exception):
    """A server did not do the call; another one might."""


class _Unauthenticated(Exception):
    """The server refused the token."""


def encode(value: bytes) -> str:
    """Bytes as text for JSON."""
    return base64.b64encode(value).decode()


def decode(value: str) -> bytes:
    """The bytes that :func:`encode` took."""
    return base64.b64decode(value)
