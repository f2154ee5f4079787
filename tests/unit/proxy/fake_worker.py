"""A worker process without an engine: it does what a test tells it over a Unix socket (see proxy_fakes.Director).

    fake_worker.py SOCKET --channel FD

What the supervisor sends is passed on to the test; the test has it send messages, open named connections to
Redis servers, or exit. It ends when its channel does, as a real worker.
"""

import asyncio
import json
import os
import socket
import sys

from proxy.channel import Channel
from slots.messages.channel import Counters, parse_supervisor
from slots.messages.message import encode


async def main() -> None:
    director_path, _, descriptor = sys.argv[1:]
    channel = await Channel.open(socket.socket(fileno=int(descriptor)), parse_supervisor)
    reader, writer = await asyncio.open_unix_connection(director_path, limit=1 << 26)
    chattering = []

    def report(message: object) -> None:
        writer.write(json.dumps(message).encode() + b"\n")

    async def obey() -> None:
        while line := await reader.readline():
            order = json.loads(line)
            match order["do"]:
                case "say":
                    # It may be a message that no worker sends.
                    channel._writer.write(json.dumps(order["message"]).encode() + b"\n")
                case "exit":
                    os._exit(order["status"])
                case "chatter":
                    chattering.append(asyncio.create_task(chatter()))

    async def chatter() -> None:
        while True:
            channel.send(Counters(counters={"requests": 1}))
            await asyncio.sleep(0.02)

    report({"type": "hello", "pid": os.getpid()})
    obeying = asyncio.create_task(obey())
    while (message := await channel.receive()) is not None:
        report(json.loads(encode(message)))
    obeying.cancel()
    os._exit(0)


asyncio.run(main())
