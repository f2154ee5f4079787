"""Asks servers over connections that sessions share, and waits for their answers.

**bounded**: a connection answers within ``backend_reply_seconds``, or it is closed, which gives an error as answer.
"""

from collections.abc import Callable, Iterable

from proxy.engine.backend import Backend
from proxy.engine.outcomes import Reply

Heard = Callable[[Backend, bytes], None]
"""Called with a reply as it comes, while its connection is still open."""


async def ask(backend: Backend, payload: bytes, heard: Heard | None = None) -> bytes:
    """The reply to a request, or an error that names the server."""
    if heard is None:
        return await backend.ask(payload)
    return (await ask_each([backend], payload, heard))[backend.address]


async def ask_each(backends: Iterable[Backend], payload: bytes, heard: Heard | None = None) -> dict[str, bytes]:
    """The replies of several servers to one request, by address, in the order of ``backends``."""
    if heard is None:
        asked = {backend.address: backend.ask(payload) for backend in backends}
    else:
        asked = {backend.address: _ask_and_tell(backend, payload, heard) for backend in backends}
    return {address: await reply for address, reply in asked.items()}


def _ask_and_tell(backend: Backend, payload: bytes, heard: Heard) -> Reply[bytes]:
    answered: Reply[bytes] = Reply()

    def take(reply: bytes) -> None:
        answered.give(reply)
        heard(backend, reply)

    backend.call(payload, take)
    return answered


def unheard(address: str, reply: bytes) -> bool:
    """Whether a reply is the proxy's own error, because the server gave no answer."""
    return reply.startswith(b"-ERR server %b " % address.encode())


def is_of_no_server(reply: bytes) -> bool:
    """The same for a reply to a request that may have gone to any server."""
    return reply.startswith(b"-ERR server ")


def first_error(said: dict[str, bytes]) -> bytes | None:
    """The error that stands for all: a server's own error comes before one about a server that gave no answer."""
    errors = [(address, reply) for address, reply in said.items() if reply.startswith(b"-")]
    own = [reply for address, reply in errors if not unheard(address, reply)]
    return own[0] if own else errors[0][1] if errors else None


def words(error: bytes) -> str:
    """The text of an error, without the end of its line."""
    return error[1:].decode(errors="replace").rstrip()
