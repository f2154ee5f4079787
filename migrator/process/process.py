"""The process: it keeps a stream to topom until it is told to end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

import structlog
import uvloop

from migrator.process.copies import Copies
from migrator.process.settings import MigratorSettings
from migrator.process.stream import Stream
from slots import logs
from slots.messages.copies import MOST_COPIES, RegisterMigrator
from slots.reaching import look_at_certificates
from slots.reloading import Reloading, on_hangup
from slots.tls import TlsError
from slots.version import program_version

THREADS = 2 * MOST_COPIES
"""For what the event loop would wait for. Each copy has one that waits for its snapshot, and then names are still to be
looked up, links to be closed and the disk to be asked. Only as many are started as are needed."""

log = structlog.get_logger()

Follow: TypeAlias = Callable[[Reloading[MigratorSettings]], Awaitable[None]]
"""Has settings taken that another process tells, until that one ends."""


def run(settings: MigratorSettings, follow: Follow | None = None, file: Path | None = None) -> int:
    """Run a migrator until SIGTERM or SIGINT, or until ``follow`` returns. Gives the exit status: 0, or 1 if it could
    not start.

    SIGHUP makes it read its settings anew, from ``file`` if they stand in one. One that topom started has them from
    topom alone: ``follow`` takes those that topom tells it.
    """
    logs.configure(settings.log_level)
    try:
        uvloop.run(serve(settings, follow, file))
    except TlsError as error:
        log.error("migrator_failed", reason=str(error))
        return 1
    return 0


async def serve(settings: MigratorSettings, follow: Follow | None = None, file: Path | None = None) -> None:
    """The body of :func:`run`. Raises :class:`slots.tls.TlsError`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    access, certificates = settings.redis_access(), settings.topom_certificates()
    registration = RegisterMigrator(
        instance=secrets.token_hex(16),
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=program_version(),
        node=settings.node,
        datacenter=settings.datacenter,
    )
    stream = Stream(
        settings.topom,
        settings.token.get_secret_value(),
        certificates,
        registration,
        lambda say: Copies(access, settings.spool, say),
    )
    reloading = Reloading(settings, file)
    reloading.takers += [partial(look_at_certificates, access, certificates), lambda new: partial(_use, stream, new)]
    if follow is None:
        on_hangup(reloading.reload)
    log.info("migrator_started", pid=registration.pid, instance=registration.instance, spool=str(settings.spool))
    tasks: list[asyncio.Future[None]] = [asyncio.ensure_future(stream.run()), asyncio.ensure_future(_until(stop))]
    if follow is not None:
        tasks.append(asyncio.ensure_future(follow(reloading)))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    log.info("migrator_stopped")


def _use(stream: Stream, settings: MigratorSettings) -> None:
    logs.set_level(settings.log_level)
    stream.use_token(settings.token.get_secret_value())


async def _until(event: asyncio.Event) -> None:
    await event.wait()
