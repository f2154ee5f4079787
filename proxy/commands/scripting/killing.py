"""Asks servers that may be busy with a script or a function: SCRIPT KILL, FUNCTION KILL, FUNCTION STATS.

A busy server answers little else, not even the greeting of a connection. A connection whose script runs answers
nothing. So these commands use connections of their own, opened for the one request. They name no key and change none,
so no invariant of slots depends on them.
"""

import asyncio
from collections.abc import Iterable

import hiredis

from proxy.commands import replies
from proxy.engine.backend import command
from proxy.servers.backends import BackendOptions
from slots import address as addresses

BUSY_SECONDS = 6.0
"""Added to the usual limit: a server looks at other connections only after its busy-reply-threshold, 5 s."""
READ_SIZE = 65536


async def ask_busy(address: str, options: BackendOptions, requests: Iterable[bytes], seconds: float) -> bytes:
    """The reply to the last of ``requests``, the first error reply, or an error that names the server."""
    host, port = addresses.split(address)
    greeting = []
    if options.password:
        greeting.append(command(("AUTH", *([options.user] if options.user else []), options.password)))
    try:
        async with asyncio.timeout(options.connect_seconds):
            reader, writer = await asyncio.open_connection(host, port, ssl=options.tls)
        try:
            async with asyncio.timeout(seconds + BUSY_SECONDS):
                for request in (*greeting, *requests):
                    writer.write(request)
                    reply = await _reply(reader)
                    if reply.startswith(b"-"):
                        return reply
                return reply
        finally:
            writer.close()
    except TimeoutError:
        return replies.error(f"ERR server {address} did not answer in time")
    except OSError as error:
        return replies.error(f"ERR server {address} cannot be asked: {error}")


async def _reply(reader: asyncio.StreamReader) -> bytes:
    """One unchanged reply. The server was asked for no more than that."""
    parser = hiredis.Reader(notEnoughData=reader)
    data = b""
    while parser.gets() is reader:
        part = await reader.read(READ_SIZE)
        if not part:
            raise ConnectionResetError("it closed the connection")
        parser.feed(part)
        data += part
    return data


def verdict(said: dict[str, bytes]) -> bytes:
    """One reply to a KILL at several servers: OK if something was ended anywhere, else why it was not."""
    given = list(said.values())
    if replies.OK in given:
        return replies.OK
    reasons = [reply for reply in given if not reply.startswith(b"-NOTBUSY")]
    # The error of a server that refuses to end a running script tells most.
    reasons.sort(key=lambda reply: reply.startswith(b"-ERR server "))
    return (reasons or given)[0]
