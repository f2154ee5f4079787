"""topom as a process: takes its data folder, listens, serves, and ends on SIGTERM or SIGINT.

With a store of its own, topom serves once it has read it. With a shared store it serves at once: it follows until it is
elected. While the store is cut off, it says so.
"""

import asyncio
import fcntl
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

from slots import garbage, logs
from slots.openfiles import raise_limit
from slots.reloading import Taker, on_hangup
from slots.settings import SettingsError
from slots.tls import TlsError
from topom import api
from topom.api import control
from topom.api.callers import Callers
from topom.api.entrance import HEAD_SECONDS, MOST_FILES, Entrance
from topom.api.handshake import TlsListener
from topom.api.serving import Serving
from topom.api.wire import Wire
from topom.errors import TopomError
from topom.term import certificates
from topom.term.announcing import Announcing
from topom.term.features import OwnMigrator
from topom.term.loadkeeping import LoadKeeping
from topom.term.node import Node, StuckTerm, alone
from topom.term.reloading import InForce
from topom.term.settings import TopomSettings, split_listen
from topom.term.stores import open_store
from topom.term.tokens import TOPOM, Role, Token, Tokens, kept_token

log = structlog.get_logger(__name__)

ADDRESS_FILE = "address"
"""The file in the data folder with the ``host:port`` on which topom listens, and a newline."""
TOKEN_FILE = "token"
LOCK_FILE = "lock"
BACKLOG = 1024
GRACE_SECONDS = 2
"""How long topom waits for requests under way when it stops."""


class StartError(Exception):
    """topom cannot start. The message says why and what to do."""


def run(settings: TopomSettings, file: Path | None = None, newest: bool = False) -> int:
    """Run topom until SIGTERM or SIGINT. SIGHUP makes it read its settings anew.

    Args:
        file: where the settings stand; None if they come from the environment alone.
        newest: whether an operator says that the store is the newest (:mod:`topom.proxies.newest`).

    Returns:
        The exit status: 0, or 1 if topom could not start or lost its store to another topom. The log says why.
    """
    logs.configure(settings.log_level)
    try:
        with _data_folder(settings.data):
            return uvloop.run(serve(settings, file, newest))
    except (StartError, TopomError, TlsError) as error:
        log.error("topom_failed", reason=str(error))
        return 1


async def serve(settings: TopomSettings, file: Path | None = None, newest: bool = False) -> int:
    """The body of :func:`run`, once the data folder is locked."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    store = open_store(settings)
    secret = secrets.token_hex(16)
    callers = Callers(_tokens(settings, store.shared, secret, make=True), settings.product)
    listening = _listen(settings.listen)
    host, port = listening.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    served = certificates.served(settings)
    scheme = "http" if served is None else "https"
    own_migrator = OwnMigrator(_url(scheme, _dialled(host), port), secret)
    url = settings.url or _url(scheme, host, port)
    node = Node(settings, store, url, own_migrator=own_migrator, newest=newest)
    streams_show = settings.tls_client_certificates != "none"
    entrance = Entrance(raise_limit(MOST_FILES), callers, streams_show)
    in_force = InForce(node, file, callers.tokens)
    in_force.reloading.takers += [
        partial(certificates.look_at_served, served),
        node.look,
        _take_log_level,
        _take_tokens(callers.tokens, store.shared, secret),
    ]
    on_hangup(in_force.reload)
    server = Serving(
        _config(api.build(node, callers, in_force), entrance),
        None if served is None else TlsListener(entrance, served),
    )
    running = asyncio.create_task(node.run())
    stopping = asyncio.create_task(stop.wait())
    tasks: list[asyncio.Task[Any]] = [running, stopping]
    try:
        if not store.shared:
            led = asyncio.create_task(node.led.wait())
            tasks.append(led)
            await asyncio.wait((running, stopping, led), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        loops = (Announcing(node, callers.tokens), LoadKeeping(node, callers.tokens))
        following = [asyncio.create_task(node.tending.keep(loop.name, loop.run)) for loop in loops]
        tasks += [serving, *following]
        garbage.spare_what_is_here()
        _write_address(settings.data / ADDRESS_FILE, address)
        log.info("topom_listening", address=address, url=node.url, data=str(settings.data), pid=os.getpid())
        await asyncio.wait((running, serving, stopping, *following), return_when=asyncio.FIRST_COMPLETED)
        orderly = stop.is_set()
        node.release()
        server.should_exit = True
        for task in (running, stopping, *following):
            task.cancel()
        for outcome in await asyncio.gather(running, serving, *following, return_exceptions=True):
            if isinstance(outcome, Exception):
                _report(outcome)
                orderly = False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()
        await node.close()
    log.info("topom_stopped")
    return 0 if orderly else 1


def _config(app: FastAPI, entrance: Entrance) -> uvicorn.Config:
    """How the API is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        # Longer than followers and the command line keep one: a request never meets topom's end of a connection.
        timeout_keep_alive=int(HEAD_SECONDS),
        http=entrance.protocol(),
        ws=Wire,
        ws_max_size=control.MAXIMUM_FRAME_BYTES,
        ws_per_message_deflate=False,
    )


def _report(outcome: Exception) -> None:
    """Log why topom ends: a sentence for an error of ours, and the traceback for any other."""
    error = alone(outcome)
    if isinstance(error, TopomError | StuckTerm):
        log.error("topom_failed", reason=str(error))
    else:
        log.error("topom_broke", exc_info=error)


def _dialled(host: str) -> str:
    """Where this machine reaches a listener on that address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _url(scheme: str, host: str, port: int) -> str:
    """The URL where others reach a listener on that address, as far as this process can tell."""
    if host in ("0.0.0.0", "::"):
        host = socket.getfqdn()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _take_log_level(settings: TopomSettings) -> Callable[[], None]:
    return partial(logs.set_level, settings.log_level)


def _take_tokens(tokens: Tokens, shared: bool, own_migrator: str) -> Taker[TopomSettings]:
    def look(settings: TopomSettings) -> Callable[[], None]:
        try:
            new = _tokens(settings, shared, own_migrator, make=False)
        except StartError as error:
            raise SettingsError(str(error)) from error
        return partial(tokens.replace, new)

    return look


def _tokens(settings: TopomSettings, shared: bool, own_migrator: str, make: bool) -> Tokens:
    own = _own_token(settings, shared, make)
    try:
        return Tokens(own, *settings.more_tokens(own), Token(Role.MIGRATOR, TOPOM, own_migrator.encode()))
    except ValueError as error:
        raise StartError(f"the setting tokens cannot be used with this token: {error}") from error


def _own_token(settings: TopomSettings, shared: bool, make: bool) -> str:
    configured = settings.token.get_secret_value()
    if configured:
        return configured
    if shared:
        raise StartError(
            "topoms that share a store pass requests on to each other, so all need the same token: set it, for "
            "instance in a file that SLOTFERRY_TOPOM_TOKEN_FILE names"
        )
    try:
        return kept_token(settings.data / TOKEN_FILE, make)
    except OSError as error:
        why = error.strerror or error
        raise StartError(f"the token {settings.data / TOKEN_FILE} cannot be read or made: {why}") from error
    except ValueError as error:
        raise StartError(f"the token {settings.data / TOKEN_FILE} cannot be used: {error}") from error


def _listen(text: str) -> socket.socket:
    """A listening socket. It is there, with its port, before anything is announced."""
    host, port = split_listen(text)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
        )
    except OSError as error:
        raise StartError(f"topom cannot listen on {text}: {error.strerror or error}; set another address") from error


@contextmanager
def _data_folder(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock, so that two topoms do not share one store by mistake."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"the data folder {folder} cannot be used: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartError(f"another topom uses the data folder {folder}; stop it, or use another folder") from error
        yield
    finally:
        os.close(lock)


def _write_address(path: Path, address: str) -> None:
    draft = path.with_name(path.name + ".new")
    try:
        draft.write_text(address + "\n", encoding="ascii")
        draft.replace(path)
    except OSError as error:
        log.warning("address_not_written", file=str(path), reason=str(error))
