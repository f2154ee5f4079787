"""Whether a program that does not answer as a Redis server is one that speaks HTTP, such as topom itself."""

import asyncio

from slots.address import split

SECONDS = 1.0
"""How long it may take to answer."""
_QUESTION = b"GET /livez HTTP/1.0\r\n\r\n"
"""A Redis server that gets this after all takes it for a GET with too many arguments, and does nothing."""


async def speaks_http(address: str) -> bool:
    """Whether what listens at an address answers a request of HTTP."""
    try:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(*split(address, lowest_port=1))
            try:
                writer.write(_QUESTION)
                return (await reader.read(len(b"HTTP/"))).startswith(b"HTTP/")
            finally:
                writer.close()
    except (OSError, RuntimeError, TimeoutError):
        return False
