"""Commands about the server, answered for the proxy: INFO and TIME; COMMAND and CONFIG GET are the servers' own."""

import os
import platform
import time
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.engine.session import ANY_SERVER, Session
from proxy.slowpath import replies
from proxy.slowpath.connection import SERVER_VERSION, AskAll, Handler, Outcome

SECTIONS = ("server", "clients", "memory", "stats", "slotferry")


class ServerCommands:
    """The family's handlers.

    Args:
        ask_all: asks every worker of the proxy something and gives their answers.
        describe: gives what INFO's section Slotferry says of the proxy, by name.
        port: where clients connect.
    """

    def __init__(self, ask_all: AskAll, describe: Callable[[], dict[str, Any]], port: int) -> None:
        self._ask_all = ask_all
        self._describe = describe
        self._port = port
        self._started = time.time()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        from_server = [
            "COMMAND",
            "COMMAND|COUNT",
            "COMMAND|DOCS",
            "COMMAND|GETKEYS",
            "COMMAND|GETKEYSANDFLAGS",
            "COMMAND|HELP",
            "COMMAND|INFO",
            "COMMAND|LIST",
            "CONFIG|GET",
        ]
        return {"TIME": self.time, "INFO": self.info, **dict.fromkeys(from_server, self.any_server)}

    def any_server(self, session: Session, argv: list[bytes]) -> Outcome:
        """Something that any of the servers can say as well as another."""
        return ANY_SERVER

    def time(self, session: Session, argv: list[bytes]) -> Outcome:
        """TIME."""
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        return replies.array([replies.bulk(str(seconds)), replies.bulk(str(microseconds))])

    def info(self, session: Session, argv: list[bytes]) -> Coroutine[Any, Any, bytes]:
        """INFO [section ...]: of the proxy, over all its workers; for a server's, ask the server."""
        wanted = {section.decode(errors="replace").lower() for section in argv[1:]}
        if not wanted or wanted & {"all", "default", "everything"}:
            wanted = set(SECTIONS)
        return self._info(session.protocol, wanted)

    async def _info(self, protocol: int, wanted: set[str]) -> bytes:
        counters: dict[str, float] = {}
        for answer in await self._ask_all("counters"):
            for name, value in answer.items():
                counters[name] = counters.get(name, 0) + value
        described = self._describe()
        sections: dict[str, dict[str, Any]] = {
            "Server": {
                "redis_version": SERVER_VERSION,
                "redis_mode": "standalone",
                "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                "process_id": os.getpid(),
                "tcp_port": self._port,
                "uptime_in_seconds": int(time.time() - self._started),
            },
            "Clients": {
                "connected_clients": int(counters.get("clients", 0)),
                "held_requests": int(counters.get("held", 0)),
            },
            "Memory": {"used_memory_rss": int(counters.get("memory_bytes", 0))},
            "Stats": {
                "total_commands_processed": int(counters.get("requests", 0)),
                "total_error_replies": int(counters.get("errors", 0)),
                "total_connections_received": int(counters.get("connections", 0)),
            },
            "Slotferry": described,
        }
        text = ""
        for section, fields in sections.items():
            if section.lower() in wanted:
                text += f"# {section}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in fields.items()) + "\r\n"
        return replies.verbatim(text.removesuffix("\r\n"), protocol)
