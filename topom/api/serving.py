"""The server of topom's API: uvicorn's, which leaves signals alone, and TLS to :mod:`topom.api.handshake`."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn

from topom.api.entrance import Connection
from topom.api.handshake import Handshake, TlsListener


class Serving(uvicorn.Server):
    """Serves at one socket.

    Signals are left to the process. Uvicorn itself would end it by the signal instead of with a status.

    Args:
        config: of uvicorn, with the entrance's protocol.
        listener: takes connections by TLS; None to serve in the clear.
    """

    def __init__(self, config: uvicorn.Config, listener: TlsListener | None = None) -> None:
        super().__init__(config)
        self._listener = listener

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listener is None:
            await super().startup(sockets)
            return
        assert sockets is not None, "topom listens itself"
        (listening,) = sockets
        await super().startup([])
        self._listener.listen(listening, self._connection)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listener is not None:
            self._listener.close()
        await super().shutdown(sockets)

    def _connection(self, handshake: Handshake) -> asyncio.Protocol:
        make = self.config.http_protocol_class
        made = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]
        connection = cast("Connection", made)
        connection.handshake = handshake
        return connection
