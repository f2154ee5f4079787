"""A session with ZooKeeper: kazoo, whose threads are kept apart from the event loop.

Nothing is sent twice: if a connection breaks, kazoo fails the requests under way, and so does this module.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.security import make_digest_acl

from slots.access import ServerTls
from slots.tls import Certificates, client_context
from topom.store import StoreError

log = structlog.get_logger(__name__)

# This module logs what kazoo would log.
_SILENT = logging.getLogger("slotferry.kazoo")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

REFUSALS: tuple[type[Exception], ...] = (NoNodeError, NodeExistsError)
"""Refusals that callers handle."""
Request = Callable[[KazooClient], Any]
"""Sends a request, and gives kazoo's promise of the answer."""


class ZooKeeperAccess:
    """The servers, and how to log in there.

    Args:
        servers: ``host:port`` of each server.
        user, password: for the scheme ``digest``; "" for none. With a user, only that user has rights to the nodes that
            are made.
        tls: the authorities and certificate to use; None for connections in the clear.
        seconds: how long a call may take.

    Raises:
        TlsError: the files cannot be used.
    """

    def __init__(self, servers: Sequence[str], user: str, password: str, tls: ServerTls | None, seconds: float) -> None:
        self.servers = servers
        self.login = [("digest", f"{user}:{password}")] if user else []
        # Not the scheme ``auth``: that would also give rights to all clients with the same certificate.
        self.rights = [make_digest_acl(user, password, all=True)] if user else None
        self.seconds = seconds
        self.certificates: Certificates | None = None
        if tls is not None:
            files = tls.authorities, tls.certificate, tls.key
            self.certificates = Certificates(files, lambda: client_context(*files, tls.verify_host))


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes connections. kazoo itself would also trust the system's authorities, and wait too long for each server."""

    def __init__(self, access: ZooKeeperAccess) -> None:
        super().__init__()
        self._access = access

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """A connection to a server, over TLS if that is set."""
        limit = self._access.seconds / len(self._access.servers)
        connection = socket.create_connection(address, limit)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._access.certificates is not None:
                return self._access.certificates.context.wrap_socket(connection, server_hostname=hostname)
        except OSError:
            connection.close()
            raise
        return connection


class Bell:
    """Wakes a task that waits on the loop, from kazoo's threads. It is one watch, however often it is set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self, _: WatchedEvent | None = None) -> None:
        """Ring; kazoo calls it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Wait until it has rung since the last wait ended, at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class ZooKeeperSession:
    """One session. It reconnects by itself, and begins anew if ZooKeeper has ended it.

    Args:
        timeout: seconds after which ZooKeeper ends a session that it does not hear.
        lost: called on the loop when the session has ended.
    """

    def __init__(self, access: ZooKeeperAccess, timeout: float, lost: Callable[[], None] = lambda: None) -> None:
        self._access = access
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._connected = asyncio.Event()
        self._stopped = False
        self._client = KazooClient(
            hosts=",".join(access.servers),
            timeout=timeout,
            handler=_Handler(access),
            auth_data=access.login,
            default_acl=access.rights,
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0},
            use_ssl=access.certificates is not None,
            logger=_SILENT,
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    async def call(self, request: Request) -> Any:
        """The answer to a request, which is sent at most once.

        Raises:
            NoNodeError, NodeExistsError: ZooKeeper refused it.
            StoreError: the outcome is unknown.
        """
        return (await self.calls([request]))[0]

    async def calls(self, requests: Sequence[Request]) -> list[Any]:
        """The answers to requests that are sent one after the other, without waiting. Raises as :meth:`call`."""
        try:
            async with asyncio.timeout(self._access.seconds):
                # No request is left in kazoo's queue, which would send it at any later time.
                await self._connected.wait()
                answers = [self._answer(request) for request in requests]
                return await asyncio.gather(*answers)
        except TimeoutError:
            raise StoreError(
                f"ZooKeeper at {','.join(self._access.servers)} did not answer within {self._access.seconds:g} s. Look "
                "whether most of its servers are up, and reach each other"
            ) from None

    async def stop(self) -> None:
        """End the session, and tell ZooKeeper if that is possible, within the time of one call. Never raises."""
        if self._stopped:
            return
        self._stopped = True
        done = Bell()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:
                log.warning("store_not_left", reason=repr(error))
            finally:
                done.ring()

        # kazoo may take longer than this call may, even until the process ends.
        threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()
        await done.wait(self._access.seconds)

    def _answer(self, request: Request) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()

        def take(promise: Any) -> None:
            if future.done():
                return
            try:
                future.set_result(promise.get_nowait())
            except Exception as error:
                future.set_exception(explained(error))

        def taken(promise: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(take, promise)

        request(self._client).rawlink(taken)
        return future

    def _state_changed(self, state: str) -> None:
        # In one of kazoo's threads.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._follow, state)

    def _follow(self, state: str) -> None:
        if self._stopped:
            return
        if state == KazooState.CONNECTED:
            self._connected.set()
            return
        self._connected.clear()
        log.warning("store_connection_lost", servers=",".join(self._access.servers), session=state.lower())
        if state == KazooState.LOST:
            self._lost()


def explained(error: Exception) -> Exception:
    """The refusals in :data:`REFUSALS` as they are, all other errors as :class:`StoreError`."""
    if isinstance(error, NoAuthError):
        return StoreError(
            "ZooKeeper refused: what is under store_prefix is another user's; correct store_user and store_password"
        )
    if isinstance(error, REFUSALS):
        return error
    return StoreError(f"ZooKeeper did not answer: {error!r}")
