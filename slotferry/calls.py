"""Calls topom's HTTP API: it chooses one of several topoms, tries again where that is safe, and explains each failure.

Each failure is a :class:`TopomError`. Its text tells an operator what happened and what to do next; the token is never
part of it.
"""

import getpass
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from slots import bearer
from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY, Files, Remedies, from_environment

if TYPE_CHECKING:
    import ssl

REQUEST_SECONDS = 30.0
"""Limit of one request. It is longer than topom's own waits, so that topom's reason arrives."""
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 2.0
"""How long each of several topoms may take to answer whether it is well."""
READ_SECONDS = 8.0
"""How long one of several topoms may take to answer a read, before another one is asked; a read of many servers has
:data:`REQUEST_SECONDS`."""
NOT_LEADING = "NotLeading"
"""The API's name for the refusal that no leading topom can be reached from this one. Nothing was done."""
USER_HEADER = "X-Slotferry-User"
"""Tells topom who asks; it appears in events."""
REMEDIES = Remedies(
    f"--tls-ca, {AUTHORITIES} or in the context",
    f"--tls-certificate and --tls-key, {CERTIFICATE} and {KEY} or in the context",
)
"""How the command line calls its certificates."""

Answer = dict[str, Any]


class TopomError(Exception):
    """A request to topom failed; the text is a sentence for the operator."""


class TopomUnreachable(TopomError):
    """No process answered at the address, or not in time."""


class TopomNotAsked(TopomUnreachable):
    """No process could be reached at the address, so nothing was done."""


class TopomUnauthorized(TopomError):
    """topom does not accept the token."""


class TopomRefused(TopomError):
    """topom understood the request and will not do it."""

    def __init__(self, status: int, error: str, message: str) -> None:
        """``status`` is HTTP's, ``error`` the API's name of the reason, ``message`` its sentence."""
        super().__init__(message)
        self.status = status
        self.error = error


class TopomAnswerInvalid(TopomError):
    """The process at the address does not speak topom's API."""


class TopomCalls:
    """A topom, or several that share a store, and the token. An asynchronous context manager; else :meth:`close` it.

    Of several addresses, the first topom that says that it accepts changes is used. If that cannot be reached any more,
    another one is used. A request that may have been carried out is never made twice.

    Attributes:
        url: the address in use.
    """

    def __init__(
        self,
        url: str,
        token: str,
        transport: httpx.AsyncBaseTransport | None = None,
        tls: Files | None = None,
    ) -> None:
        """
        Args:
            url: one, or several, separated by commas.
            transport: replaces the network in tests.
            tls: certificates for ``https``; those of the environment when None.
        """
        self._urls = [part.strip().rstrip("/") for part in url.split(",") if part.strip()] or [url]
        self._chosen = len(self._urls) == 1
        self.url = self._urls[0]
        self._silent = False
        """Whether none of the addresses answered when they were last tried."""
        self._shows_token = bool(token)
        try:
            shown = bearer.header(token)
        except bearer.TokenError as error:
            to_do = "give another one by --token, SLOTFERRY_TOKEN or slotferry context set"
            raise TopomError(f"{error}; {to_do}") from None
        try:
            for one in self._urls:
                httpx.URL(one)
            self._http = httpx.AsyncClient(
                # Without a token, topom itself says what is missing. An empty token would be an invalid HTTP header.
                headers={USER_HEADER: _user(), **shown},
                timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
                transport=transport,
                trust_env=False,
                # What certificates are checked with takes 20 ms to read.
                verify=any(httpx.URL(one).scheme == "https" for one in self._urls) and _context(tls),
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise TopomError(f"{url!r} makes no HTTP request: {error}; check --topom") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether topom answers that it is ready."""
        try:
            await self._choose()
            return (await self._http.get(f"{self.url}/readyz")).status_code == httpx.codes.OK
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            return False

    async def _choose(self) -> None:
        """Of several addresses, take the first topom that is well. Else take one that answers at all, because it says a
        reason."""
        if self._chosen:
            return
        answering = ""
        for url in self._urls:
            try:
                answer = await self._http.get(f"{url}/readyz", timeout=PROBE_SECONDS)
            except (httpx.HTTPError, httpx.InvalidURL, OSError):
                continue
            if answer.status_code == httpx.codes.OK:
                self.url = url
                self._chosen = True
                self._silent = False
                return
            answering = answering or url
        self.url = answering or self._urls[0]
        self._silent = not answering

    @property
    def _where(self) -> str:
        """The place at which topom does not answer, in words."""
        if not self._silent:
            return self.url
        return f"any of {', '.join(self._urls)}"

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        read_seconds: float = READ_SECONDS,
        **query: str | Sequence[str] | None,
    ) -> dict[str, Any] | list[Any]:
        """Call one topom after the other, while none of them can have changed anything.

        Args:
            read_seconds: how long one of several topoms may take to answer a read.
        """
        reads = method == "GET"
        for left in reversed(range(len(self._urls))):
            await self._choose()
            try:
                return await self._call_one(method, path, body, self._limit(method, read_seconds), query)
            except TopomUnreachable as error:
                if not left or not (reads or isinstance(error, TopomNotAsked)):
                    raise
            except TopomRefused as error:
                if not left or error.error != NOT_LEADING:
                    raise
            self._chosen = False
        raise AssertionError("there is at least one address")

    async def _call_one(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        limit: Mapping[str, Any],
        query: Mapping[str, str | Sequence[str] | None],
    ) -> dict[str, Any] | list[Any]:
        parameters = {name: value for name, value in query.items() if value is not None}
        try:
            url = f"{self.url}/api/v1{path}"
            response = await self._http.request(method, url, json=body, params=parameters, **limit)
        except httpx.ConnectTimeout:
            raise TopomNotAsked(
                f"topom does not answer at {self._where} (no connection within {CONNECT_SECONDS:g} s); check that it "
                "runs, and the address in --topom, SLOTFERRY_TOPOM or the context"
            ) from None
        except httpx.TimeoutException:
            raise TopomUnreachable(
                f"topom at {self.url} did not answer in time; it may be busy or cut off. "
                "Look at its log; whether the request was carried out is not known"
            ) from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as error:
            to_do = "check --topom"
            if ":" in self.url and "://" not in self.url and not self.url.endswith(":"):
                to_do = f"write http://{self.url} in --topom, SLOTFERRY_TOPOM or the context"
            raise TopomError(f"no request can be made of {self.url!r}: {str(error).rstrip('.')}; {to_do}") from None
        except httpx.RemoteProtocolError as error:
            raise TopomUnreachable(
                f"what answers at {self._where} speaks no HTTP ({str(error).rstrip('.')}); is it a proxy or a Redis "
                "server? topom's port is another one, 8380 by default. If topom was there, it has just ended; "
                f"{REMEDIES.unanswered(self.url)}"
            ) from None
        except (httpx.HTTPError, OSError) as error:  # httpx lets some errors of TLS through
            reason = _reason(error)
            kind = TopomNotAsked if isinstance(error, httpx.ConnectError) else TopomUnreachable
            if why := REMEDIES.why(error):
                raise kind(f"no TLS with topom at {self._where}: {why} ({reason})") from None
            if isinstance(error, httpx.ReadError | httpx.WriteError):
                reason = f"{reason}; {REMEDIES.unanswered(self.url)}"
            raise kind(
                f"topom does not answer at {self._where} ({reason}); check that it runs, "
                "and the address in --topom, SLOTFERRY_TOPOM or the context"
            ) from None
        return self._read(response)

    def _limit(self, method: str, read_seconds: float) -> dict[str, Any]:
        if method != "GET" or len(self._urls) == 1:
            return {}
        return {"timeout": httpx.Timeout(read_seconds, connect=PROBE_SECONDS)}

    def _read(self, response: httpx.Response) -> dict[str, Any] | list[Any]:
        try:
            answer = response.json() if response.content else {}
        except ValueError:
            answer = None
        if response.status_code == httpx.codes.UNAUTHORIZED:
            what = "does not accept the token; give it" if self._shows_token else "wants a token; give one"
            raise TopomUnauthorized(
                f"topom at {self.url} {what} by --token, SLOTFERRY_TOKEN or "
                "slotferry context set (topom keeps the one it made in the file named token in its data folder)"
            )
        if response.is_error:
            fields = answer if isinstance(answer, dict) else {}
            message = str(
                fields.get("message") or f"topom at {self.url} answered with HTTP status {response.status_code}"
            )
            raise TopomRefused(response.status_code, str(fields.get("error") or "error"), message)
        if not response.is_success or not isinstance(answer, dict | list):
            raise TopomAnswerInvalid(
                f"what answers at {self.url} is not topom; check the address in --topom, SLOTFERRY_TOPOM or the context"
            )
        return answer

    async def _object(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        read_seconds: float = READ_SECONDS,
        **query: str | Sequence[str] | None,
    ) -> Answer:
        answer = await self._call(method, path, body, read_seconds=read_seconds, **query)
        if not isinstance(answer, dict):
            raise TopomAnswerInvalid(
                f"topom at {self.url} answered {path} with a list; its version may be another than ours"
            )
        return answer

    async def _list(self, path: str, member: str, method: str = "GET") -> list[Answer]:
        """A list of objects, bare or as the ``member`` of an object."""
        answer = await self._call(method, path)
        found = answer.get(member) if isinstance(answer, dict) else answer
        if not isinstance(found, list):
            raise TopomAnswerInvalid(
                f"topom at {self.url} answered {path} without {member}; its version may be another than ours"
            )
        return found


def _context(tls: Files | None) -> "ssl.SSLContext":
    from slots.tls import TlsError

    try:
        return (from_environment() if tls is None else tls).context()
    except TlsError as error:
        raise TopomError(
            f"topom cannot be asked by TLS: {error}; mend that, or name other files as --tls-ca, --tls-certificate and "
            f"--tls-key, {AUTHORITIES}, {CERTIFICATE} and {KEY} or in the context (slotferry context show says which)"
        ) from None


def _user() -> str:
    """The user and the host of this process, in ASCII; without the name if the system has none."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return f"{name}@{socket.gethostname()}".encode("ascii", "replace").decode()


def _reason(error: BaseException) -> str:
    """What the system said, where the error itself says no more than that no attempt was any good."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
