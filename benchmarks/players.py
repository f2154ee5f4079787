"""Plays the control streams of many proxies, in one process that costs little: what topom does is to be measured.

Each registers, sends a heartbeat each second and a WebSocket ping (as a proxy's does), and acknowledges tables.
"""

import asyncio
import base64
import json
import os
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

HEARTBEAT_SECONDS = 1.0
DIALLING_AT_ONCE = 20
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
COUNTERS = dict.fromkeys(
    (
        *("commands", "commands_split", "commands_held", "commands_retried", "errors", "sessions", "sessions_accepted"),
        *("bytes_in", "bytes_out", "backends", "backend_reconnects", "keys_migrated", "absent_hits", "held_longest_ms"),
    ),
    123456789,
)


class Player(asyncio.Protocol):
    """One proxy."""

    def __init__(self, number: int, host: str, token: str, acked: Callable[[int], None]) -> None:
        self.epoch = 0
        self.registered = asyncio.get_running_loop().create_future()
        self.gone = False
        self._number = number
        self._head: bytes | None = b""
        self._data = bytearray()
        self._acked = acked
        self._beats = 0
        self._stand_down: float | None = None
        self._hello = (
            f"GET /api/v1/control HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        ).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if not self.registered.done():
            self.registered.set_exception(ConnectionError("topom has hung up"))

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._head is not None:
            head, found, rest = bytes(self._data).partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                self.registered.set_exception(ConnectionError(head.decode()))
                return
            self._head, self._data = None, bytearray(rest)
            self._say(self._registration())
        while (frame := self._frame()) is not None:
            self._take(*frame)

    def beat(self) -> None:
        """Send what a proxy sends each second."""
        self._beats += 1
        self._say(
            {
                "type": "heartbeat",
                "epoch": self.epoch,
                "counters": COUNTERS,
                "draining": False,
                "asked": self.epoch,
                "silent": {},
                "unanswered": [],
                "number": self._beats,
                "stands_down": self._stand_down,
            }
        )
        self._send(PING, os.urandom(4))

    def _registration(self) -> dict[str, Any]:
        return {
            "type": "register",
            "instance": secrets.token_hex(16),
            "address": f"10.0.{self._number // 250}.{self._number % 250 + 1}:6380",
            "hostname": f"proxy-{self._number}.cache.example.com",
            "pid": 1 + self._number,
            "workers": 4,
            "version": "0.1.0",
            "epoch": 0,
        }

    def _take(self, opcode: int, content: bytes) -> None:
        if opcode == PING:
            self._send(PONG, content)
        elif opcode == TEXT and content.startswith(b'{"type":"table"'):
            # What it says is not looked at: of a whole table, that would cost more than all that is to be measured.
            at = content.index(b'"epoch":') + 8
            self.epoch = int(content[at : at + 20].split(b",", 1)[0])
            self._send(TEXT, b'{"type":"ack","epoch":%d}' % self.epoch)
            self._acked(self.epoch)
        elif opcode == TEXT and content.startswith(b'{"type":"registered"'):
            self._stand_down = json.loads(content)["stand_down_seconds"]
            self.registered.set_result(None)
        elif opcode == CLOSE:
            self._transport.close()

    def _frame(self) -> tuple[int, bytes] | None:
        data = self._data
        if len(data) < 2:
            return None
        length, at = data[1], 2
        if length == 126:
            if len(data) < 4:
                return None
            (length,), at = struct.unpack_from(">H", data, 2), 4
        elif length == 127:
            if len(data) < 10:
                return None
            (length,), at = struct.unpack_from(">Q", data, 2), 10
        if len(data) < at + length:
            return None
        frame = data[0] & 15, bytes(data[at : at + length])
        del data[: at + length]
        return frame

    def _say(self, frame: dict[str, Any]) -> None:
        self._send(TEXT, json.dumps(frame, separators=(",", ":")).encode())

    def _send(self, opcode: int, content: bytes) -> None:
        length = len(content)
        head = bytes((128 | opcode, 128 | length)) if length < 126 else struct.pack(">BBH", 128 | opcode, 254, length)
        # A mask of zeros is one: content as it is.
        self._transport.write(head + b"\0\0\0\0" + content)


async def play(url: str, token: str, proxies: int) -> None:
    """Be so many proxies until the process is ended. Says on stdout when all have a table, each time: epoch, time."""
    host = urlsplit(url).netloc
    newest = there = 0

    def acked(epoch: int) -> None:
        nonlocal newest, there
        if epoch > newest:
            newest, there = epoch, 0
        there += epoch == newest
        if there == proxies:
            print(epoch, time.monotonic(), flush=True)

    loop = asyncio.get_running_loop()
    turn = asyncio.Semaphore(DIALLING_AT_ONCE)

    async def begin(number: int) -> None:
        name, _, port = host.rpartition(":")
        while True:
            try:
                async with turn:
                    _, player = await loop.create_connection(
                        lambda: Player(number, host, token, acked), name, int(port)
                    )
                    await player.registered
            except OSError:
                await asyncio.sleep(1)
            else:
                break
        await asyncio.sleep(HEARTBEAT_SECONDS * number / proxies)
        while not player.gone:
            player.beat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    await asyncio.gather(*map(begin, range(proxies)))
