"""A client of topom's HTTP API, for the command line, the demo and whoever writes a script in Python.

Answers are the API's own JSON objects. Whatever goes wrong is a :class:`TopomError` whose text tells an
operator what happened and what to do next; the token is never part of it.
"""

import getpass
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8380"
REQUEST_SECONDS = 30.0
"""Limit of one request. Longer than topom's own waits, so that topom's reason is heard."""
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 2.0
"""How long each of several topoms may take to say whether it is well."""
READ_SECONDS = 8.0
"""How long one of several topoms may take to answer a read, before another one is asked."""
NOT_LEADING = "NotLeading"
"""The API's name for: no topom leads that this one could ask. Nothing was done."""
USER_HEADER = "X-Slotferry-User"
"""Tells topom who asks, for its events."""

Answer = dict[str, Any]


class TopomError(Exception):
    """A request to topom failed; the text is a sentence for the operator."""


class TopomUnreachable(TopomError):
    """Nobody answered at the address, or not in time."""


class TopomNotAsked(TopomUnreachable):
    """Nobody could be reached at the address, so nothing was done."""


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
    """What answered does not speak topom's API."""


class TopomClient:
    """A topom, or several that share a store, and the token. An asynchronous context manager; else :meth:`close` it.

    Of several addresses the first is used at which a topom says that things can be changed through it, and another one
    once it cannot be reached any more. A request that may have been carried out is never made twice.

    Attributes:
        url: the address in use.
    """

    def __init__(self, url: str, token: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """``url`` may be several, separated by commas; ``transport`` stands in for the network in tests."""
        self._urls = [part.strip().rstrip("/") for part in url.split(",") if part.strip()] or [url]
        self._chosen = len(self._urls) == 1
        self.url = self._urls[0]
        try:
            for one in self._urls:
                httpx.URL(one)
            self._http = httpx.AsyncClient(
                # Without a token topom itself says what is missing; an empty one makes no HTTP header.
                headers={USER_HEADER: _user(), **({"Authorization": f"Bearer {token}"} if token else {})},
                timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
                transport=transport,
                trust_env=False,
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise TopomError(
                f"{url!r} with this token makes no HTTP request: {error}; check --topom and --token"
            ) from None

    async def __aenter__(self) -> "TopomClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether topom answers and says that it is well."""
        try:
            await self._choose()
            return (await self._http.get(f"{self.url}/healthz")).status_code == httpx.codes.OK
        except (httpx.HTTPError, httpx.InvalidURL):
            return False

    async def _choose(self) -> None:
        """Of several addresses, take the first whose topom is well; else one that answers at all, for its reason."""
        if self._chosen:
            return
        answering = ""
        for url in self._urls:
            try:
                answer = await self._http.get(f"{url}/healthz", timeout=PROBE_SECONDS)
            except (httpx.HTTPError, httpx.InvalidURL):
                continue
            if answer.status_code == httpx.codes.OK:
                self.url = url
                self._chosen = True
                return
            answering = answering or url
        self.url = answering or self._urls[0]

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | Sequence[str] | None
    ) -> dict[str, Any] | list[Any]:
        """Call one topom after the other, as long as they cannot have changed anything."""
        reads = method == "GET"
        for left in reversed(range(len(self._urls))):
            await self._choose()
            try:
                return await self._call_one(method, path, body, **query)
            except TopomUnreachable as error:
                if not left or not (reads or isinstance(error, TopomNotAsked)):
                    raise
            except TopomRefused as error:
                if not left or error.error != NOT_LEADING:
                    raise
            self._chosen = False
        raise AssertionError("there is at least one address")

    async def _call_one(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | Sequence[str] | None
    ) -> dict[str, Any] | list[Any]:
        parameters = {name: value for name, value in query.items() if value is not None}
        try:
            url = f"{self.url}/api/v1{path}"
            response = await self._http.request(method, url, json=body, params=parameters, **self._limit(method))
        except httpx.ConnectTimeout:
            raise TopomNotAsked(
                f"topom does not answer at {self.url} (no connection within {CONNECT_SECONDS:g} s); check that it "
                "runs, and the address in --topom or SLOTFERRY_TOPOM"
            ) from None
        except httpx.TimeoutException:
            raise TopomUnreachable(
                f"topom at {self.url} did not answer in time; it may be busy or cut off. "
                "Look at its log; whether the request was carried out is not known"
            ) from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as error:
            raise TopomError(f"no request can be made of {self.url!r}: {error}; check --topom and --token") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            kind = TopomNotAsked if isinstance(error, httpx.ConnectError) else TopomUnreachable
            raise kind(
                f"topom does not answer at {self.url} ({reason}); check that it runs, "
                "and the address in --topom or SLOTFERRY_TOPOM"
            ) from None
        return self._read(response)

    def _limit(self, method: str) -> dict[str, Any]:
        if method != "GET" or len(self._urls) == 1:
            return {}
        return {"timeout": httpx.Timeout(READ_SECONDS, connect=PROBE_SECONDS)}

    def _read(self, response: httpx.Response) -> dict[str, Any] | list[Any]:
        try:
            answer = response.json() if response.content else {}
        except ValueError:
            answer = None
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise TopomUnauthorized(
                f"topom at {self.url} does not accept the token; give it by --token or SLOTFERRY_TOKEN "
                "(topom keeps the one it made in the file named token in its data folder)"
            )
        if response.is_error:
            fields = answer if isinstance(answer, dict) else {}
            message = str(
                fields.get("message") or f"topom at {self.url} answered with HTTP status {response.status_code}"
            )
            raise TopomRefused(response.status_code, str(fields.get("error") or "error"), message)
        if not response.is_success or not isinstance(answer, dict | list):
            raise TopomAnswerInvalid(
                f"what answers at {self.url} is not topom; check the address in --topom or SLOTFERRY_TOPOM"
            )
        return answer

    async def _object(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | Sequence[str] | None
    ) -> Answer:
        answer = await self._call(method, path, body, **query)
        if not isinstance(answer, dict):
            raise TopomAnswerInvalid(
                f"topom at {self.url} answered {path} with a list; its version may be another than ours"
            )
        return answer

    async def _list(self, path: str, member: str) -> list[Answer]:
        """A list of objects, whether it comes bare or as the ``member`` of an object."""
        answer = await self._call("GET", path)
        found = answer.get(member) if isinstance(answer, dict) else answer
        if not isinstance(found, list):
            raise TopomAnswerInvalid(
                f"topom at {self.url} answered {path} without {member}; its version may be another than ours"
            )
        return found

    async def status(self) -> Answer:
        """Everything at a glance: product, epoch, groups, proxies, slots, migration."""
        return await self._object("GET", "/status")

    async def events(self, since: int | None = None, limit: int = 100, wait: float = 0) -> Answer:
        """``{"oldest", "newest", "events"}``: the newest events, or those after ``since``.

        If there are none after it yet, they are waited for so many seconds, at most half of :data:`REQUEST_SECONDS`.
        """
        seconds = f"{min(wait, REQUEST_SECONDS / 2):g}"
        known = None if since is None else str(since)
        return await self._object("GET", "/events", since=known, limit=str(limit), wait=seconds)

    async def groups(self) -> list[Answer]:
        """All groups."""
        return await self._list("/groups", "groups")

    async def add_group(
        self, group_id: int, servers: Sequence[str], datacenter: str = "", node: str = "", wipe: bool = False
    ) -> Answer:
        """Make a group of these servers, ``host:port``, the master first, all in one datacenter and on one node.

        ``wipe``: the keys that its replicas hold may be lost.
        """
        named = {**_named(datacenter=datacenter, node=node), **({"wipe": True} if wipe else {})}
        return await self._object("POST", "/groups", {"id": group_id, "servers": list(servers), **named})

    async def remove_group(self, group_id: int) -> Answer:
        """Remove a group that owns no slots."""
        return await self._object("DELETE", f"/groups/{group_id}")

    async def promote(self, group_id: int, address: str, force: bool = False) -> Answer:
        """Make a replica the master of its group; with ``force`` although the master does not answer."""
        return await self._object("POST", f"/groups/{group_id}/promote", {"server": address, "force": force})

    async def start_digest(self, group_id: int, server: str | None, keys_per_second: int) -> Answer:
        """Begin to compare one replica of a group, or all, with its master."""
        body = {"server": server, "keys_per_second": keys_per_second}
        return await self._object("POST", f"/groups/{group_id}/digest", body)

    async def digest(self, group_id: int, slots: bool = False) -> Answer:
        """How the last check of a group's replicas goes or went, with the digests of every slot if ``slots``."""
        return await self._object("GET", f"/groups/{group_id}/digest", slots=str(slots).lower())

    async def cancel_digest(self, group_id: int) -> Answer:
        """End the check of a group's replicas."""
        return await self._object("DELETE", f"/groups/{group_id}/digest")

    async def resync_replica(self, group_id: int, server: str | None) -> Answer:
        """Have a replica, or all that differ, given a whole new copy by their master."""
        return await self._object("POST", f"/groups/{group_id}/digest/resync", {"server": server})

    async def protection(self) -> Answer:
        """Whether so many members are lost that nothing is done by itself."""
        return await self._object("GET", "/protection")

    async def lift_protection(self) -> Answer:
        """Have done by itself what is due although many members are lost."""
        return await self._object("POST", "/protection/lift", {})

    async def add_server(
        self, group_id: int, address: str, datacenter: str = "", node: str = "", wipe: bool = False
    ) -> Answer:
        """Add a server to a group; ``wipe``: the keys that it holds may be lost, if it is to be a replica."""
        named = {**_named(datacenter=datacenter, node=node), **({"wipe": True} if wipe else {})}
        return await self._object("POST", f"/groups/{group_id}/servers", {"address": address, **named})

    async def set_datacenter(self, group_id: int, address: str, datacenter: str) -> Answer:
        """Say in which datacenter a server is; an empty name takes back what was said."""
        return await self.set_place(group_id, address, datacenter=datacenter)

    async def set_place(
        self, group_id: int, address: str, *, datacenter: str | None = None, node: str | None = None
    ) -> Answer:
        """Say in which datacenter and on which node a server is; None leaves it, an empty name takes back what was."""
        path = f"/groups/{group_id}/servers/{quote(address, safe=':')}"
        said = {"datacenter": datacenter, "node": node}
        return await self._object("PATCH", path, {name: value for name, value in said.items() if value is not None})

    async def remove_server(self, group_id: int, address: str) -> Answer:
        """Remove a server from a group."""
        return await self._object("DELETE", f"/groups/{group_id}/servers/{quote(address, safe=':')}")

    async def pool(self) -> Answer:
        """``{"servers": [...]}``: the servers that are in no group, and there to be taken into one."""
        return await self._object("GET", "/pool")

    async def add_to_pool(self, address: str, datacenter: str = "", node: str = "", wipe: bool = False) -> Answer:
        """Register a server that is in no group; ``wipe``: what it holds may be lost. The pool then."""
        named = _named(datacenter=datacenter, node=node)
        return await self._object("POST", "/pool", {"address": address, **named, **({"wipe": True} if wipe else {})})

    async def remove_from_pool(self, address: str) -> Answer:
        """Forget a server that is in no group; the pool then."""
        return await self._object("DELETE", f"/pool/{quote(address, safe=':')}")

    async def placement(self) -> Answer:
        """The table over groups and nodes, what a plan would change, and what is being applied."""
        return await self._object("GET", "/placement")

    async def apply_placement(self) -> Answer:
        """Begin to do what a placement plan says; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/apply", {})

    async def cancel_placement(self) -> Answer:
        """End what is being applied of a placement; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/cancel", {})

    async def set_auto_placement(self, on: bool) -> Answer:
        """Have topom place by itself, or not; answers as :meth:`placement`."""
        return await self._object("POST", "/placement/auto", {"on": on})

    async def sentinels(self) -> Answer:
        """``{"ha", "majority", "sentinels": [...], "groups": [...]}``: what they say of each group."""
        return await self._object("GET", "/sentinels")

    async def add_sentinel(self, address: str) -> Answer:
        """Have one more Sentinel, ``host:port``, watch all groups."""
        return await self._object("POST", "/sentinels", {"address": address})

    async def remove_sentinel(self, address: str) -> Answer:
        """Have a Sentinel watch nothing any more: ``{"failed": {address: reason}}``."""
        return await self._object("DELETE", f"/sentinels/{quote(address, safe=':')}")

    async def resync_sentinels(self) -> Answer:
        """Have all Sentinels watch the groups anew: ``{"failed": {address: reason}}``."""
        return await self._object("POST", "/sentinels/resync")

    async def proxies(self) -> list[Answer]:
        """All proxies that topom knows."""
        return await self._list("/proxies", "proxies")

    async def drain_group(self, group_id: int, why: str = "") -> Answer:
        """Have a group leave once its slots have moved to others; what is on its way out."""
        return await self._object("POST", f"/groups/{group_id}/drain", why=why or None)

    async def keep_group(self, group_id: int) -> Answer:
        """Have a group that was to leave stay; what is on its way out."""
        return await self._object("DELETE", f"/groups/{group_id}/drain")

    async def drain_server(self, group_id: int, address: str, why: str = "") -> Answer:
        """Have a server leave: a replica at once, a master once another server has taken over; the group's servers."""
        path = f"/groups/{group_id}/servers/{quote(address, safe=':')}/drain"
        return await self._object("POST", path, why=why or None)

    async def keep_server(self, group_id: int, address: str) -> Answer:
        """Have a server that was to leave stay; the group's servers."""
        return await self._object("DELETE", f"/groups/{group_id}/servers/{quote(address, safe=':')}/drain")

    async def drain_node(self, node: str, why: str = "", fewer_copies: bool = False) -> Answer:
        """Have all servers of a node leave; what is on its way out."""
        fewer = "true" if fewer_copies else None
        return await self._object("POST", f"/nodes/{quote(node, safe=':')}/drain", why=why or None, fewer_copies=fewer)

    async def keep_node(self, node: str) -> Answer:
        """Have a node that was to leave stay; what is on its way out."""
        return await self._object("DELETE", f"/nodes/{quote(node, safe=':')}/drain")

    async def drain_proxy(self, proxy_id: int) -> Answer:
        """Have a proxy let its clients go and leave; what topom knows of it."""
        return await self._object("POST", f"/proxies/{proxy_id}/drain")

    async def remove_proxy(self, proxy_id: int, force: bool = False) -> Answer:
        """Fence a proxy off the servers and forget it; ``force`` even where a server cannot be reached."""
        return await self._object("DELETE", f"/proxies/{proxy_id}", force="true" if force else None)

    async def slots(self, biggest: int = 0) -> Answer:
        """``{"epoch", "slots": [...]}``, every slot in its wire form, with so many of its ``biggest`` keys at most."""
        return await self._object("GET", "/slots", biggest=str(biggest))

    async def sizes(self) -> Answer:
        """What is known of the sizes of slots: totals by group, their age, and what is stale."""
        return await self._object("GET", "/sizes")

    async def post_sizes(self, measurement: Mapping[str, Any]) -> Answer:
        """Tell topom sizes that were measured, as ``POST /sizes`` describes them; answers as :meth:`sizes`."""
        return await self._object("POST", "/sizes", measurement)

    async def assign_slots(self, slots: str, group_id: int) -> Answer:
        """Give offline slots, written as ranges, to a group, at once."""
        return await self._object("POST", "/slots/assign", {"slots": slots, "group_id": group_id})

    async def move_slots(self, slots: str, group_id: int) -> Answer:
        """Have slots with their keys moved to a group while clients work."""
        return await self._object("POST", "/slots/move", {"slots": slots, "group_id": group_id})

    async def take_slots_offline(self, slots: str) -> Answer:
        """Have no group own these slots; proxies then refuse their commands."""
        return await self._object("POST", "/slots/offline", {"slots": slots})

    async def rebalance(
        self,
        policy: str = "codis",
        dry_run: bool = False,
        *,
        tolerance: float | None = None,
        most_slots: int | None = None,
        most_bytes: int | None = None,
        drain: Sequence[int] = (),
        capacity: Mapping[int, float] | None = None,
    ) -> Answer:
        """Plan moves by a policy and, unless ``dry_run``, begin them.

        ``{"policy", "dry_run", "moves", "reasons", "warnings", "cost"}``; what is left out is as topom has it.
        """
        weights = [f"{group_id}={weight!r}" for group_id, weight in (capacity or {}).items()]
        return await self._object(
            "POST",
            "/rebalance",
            policy=policy,
            dry_run="true" if dry_run else "false",
            tolerance=None if tolerance is None else str(tolerance),
            most_slots=None if most_slots is None else str(most_slots),
            most_bytes=None if most_bytes is None else str(most_bytes),
            drain=[str(group_id) for group_id in drain],
            capacity=weights,
        )

    async def migration(self) -> Answer:
        """How the moving of keys stands."""
        return await self._object("GET", "/migration")

    async def pause_migration(self) -> Answer:
        """Stop moving keys; what has moved stays moved."""
        return await self._object("POST", "/migration/pause")

    async def resume_migration(self) -> Answer:
        """Go on moving keys."""
        return await self._object("POST", "/migration/resume")

    async def cancel_migration(self, slots: str | None = None) -> Answer:
        """Call off the actions of slots, written as ranges, or of all: ``{"ended", "returning", "too_late"}``."""
        return await self._object("POST", "/migration/cancel", {"slots": slots})

    async def skip_slots(self, slots: str) -> Answer:
        """Have slots, written as ranges, step aside until they are retried."""
        return await self._object("POST", "/migration/skip", {"slots": slots})

    async def retry_migration(self, slots: str | None = None) -> Answer:
        """Try at once what failed; skipped slots, these or all, go on too."""
        return await self._object("POST", "/migration/retry", {"slots": slots})

    async def set_migration(self, **settings: int | float | str) -> Answer:
        """Change settings of the migration, which topom remembers."""
        return await self._object("PATCH", "/migration", settings)


def _named(**names: str) -> dict[str, str]:
    """Those that are not empty: topom is only told what was said."""
    return {key: name for key, name in names.items() if name}


def _user() -> str:
    """Who runs this and where, in ASCII; without the name where the system has none."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return f"{name}@{socket.gethostname()}".encode("ascii", "replace").decode()
