"""etcd and ZooKeeper for tests: the ones on this machine, on free ports, with folders of their own.

They write no disk synchronously; nothing that is tested cuts a machine's power.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from slotferry.processes import ManagedProcess, ProcessError, free_ports, until

HOST = "127.0.0.1"
START_SECONDS = 60.0
ATTEMPTS = 3
REQUIRED = "SLOTFERRY_REQUIRE_STORES"
JARS = Path("/usr/share/java/zookeeper.jar")
# The classes that Debian's ZooKeeper forgets to name, and needs for TLS.
MORE_JARS = ("/usr/share/java/netty-codec.jar", "/usr/share/java/netty-resolver.jar")
ETCD = "etcd is not on PATH (on Debian and Ubuntu: apt-get install etcd-server)"
ZOOKEEPER = f"{JARS} or java is not there (on Debian and Ubuntu: apt-get install zookeeper)"


def need_etcd() -> None:
    """Skips where etcd is missing, unless ``SLOTFERRY_REQUIRE_STORES=1`` says that it has to be there."""
    if shutil.which("etcd") is None:
        leave_out(f"the store in etcd is not tested: {ETCD}")


def need_zookeeper() -> None:
    """The same for ZooKeeper."""
    if not JARS.exists() or shutil.which("java") is None:
        leave_out(f"the store in ZooKeeper is not tested: {ZOOKEEPER}")


def need_etcdctl() -> None:
    """The same for backups of etcd."""
    need_etcd()
    if shutil.which("etcdctl") is None:
        leave_out("backups of etcd are not tested: etcdctl is not on PATH (on Debian: apt-get install etcd-client)")


async def etcdctl(*arguments: str) -> None:
    """Run it to its end; it has to succeed."""
    done = await asyncio.to_thread(
        subprocess.run, ["etcdctl", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def restore_etcd(saved: Path, data: Path) -> None:
    """Make the data of the only server of a cluster from a backup."""
    itself = ("--name", "etcd-0", "--initial-cluster", "etcd-0=http://localhost:2380")
    await etcdctl("snapshot", "restore", str(saved), "--data-dir", str(data), *itself)


def leave_out(reason: str) -> None:
    """Skips, unless ``SLOTFERRY_REQUIRE_STORES=1``: then the test fails."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason}; {REQUIRED}=1 asks for it")
    pytest.skip(reason)


class StoreServer(ManagedProcess):
    """A server that can be paused. ``port`` is the one for clients."""

    port: int

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    def pause(self) -> None:
        """It stands still, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)

    async def ready(self) -> None:
        """Wait until it serves; raises :class:`ProcessError`."""
        await until(self._serves, f"{self.name} at {self.address}", START_SECONDS, [self])

    async def _serves(self) -> bool:
        raise NotImplementedError

    async def leads(self) -> bool:
        """Whether it leads the others."""
        raise NotImplementedError

    async def save(self, to: Path) -> None:
        """Take a backup, while it runs."""
        raise NotImplementedError

    async def put_back(self, saved: Path) -> None:
        """Start it anew, at the same port, over what was saved when it was the only server."""
        raise NotImplementedError


@dataclass(frozen=True)
class StoreTls:
    """Files for TLS with clients, who have to show a certificate too."""

    authorities: str
    certificate: str
    key: str

    def for_etcd(self) -> list[str]:
        """As etcd's arguments."""
        return [
            *("--cert-file", self.certificate, "--key-file", self.key),
            *("--trusted-ca-file", self.authorities, "--client-cert-auth"),
        ]

    def for_zookeeper(self, folder: Path, port: int) -> list[str]:
        """As lines of ZooKeeper's settings."""
        both = folder / "both.pem"
        both.write_text(Path(self.key).read_text() + Path(self.certificate).read_text())
        return [
            *(f"secureClientPort={port}", f"secureClientPortAddress={HOST}"),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            *(f"ssl.keyStore.location={both}", "ssl.keyStore.type=PEM"),
            *(f"ssl.trustStore.location={self.authorities}", "ssl.trustStore.type=PEM"),
            *("ssl.clientAuth=need", "ssl.hostnameVerification=false"),
        ]


class EtcdServer(StoreServer):
    """One server of etcd; ``peers`` has the ports that the servers use for each other, its own at ``number``."""

    def __init__(
        self, directory: Path, number: int, port: int, metrics_port: int, peers: Sequence[int], tls: StoreTls | None
    ) -> None:
        self.port = port
        self._metrics_port = metrics_port
        self._data = directory / f"etcd-{number}"
        scheme = "https" if tls else "http"
        name = f"etcd-{number}"
        url, peer = f"{scheme}://{HOST}:{port}", f"http://{HOST}:{peers[number]}"
        cluster = ",".join(f"etcd-{at}=http://{HOST}:{peers[at]}" for at in range(len(peers)))
        arguments = [
            *("etcd", "--name", name, "--data-dir", str(directory / name), "--log-level", "warn"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster),
            # Of its health, without TLS.
            *("--listen-metrics-urls", f"http://{HOST}:{self._metrics_port}"),
            *("--unsafe-no-fsync", "--heartbeat-interval", "100", "--election-timeout", "1000"),
            *(tls.for_etcd() if tls else []),
        ]
        super().__init__(name, arguments, directory / f"{name}.log")

    async def _serves(self) -> bool:
        return '"health":"true"' in await asyncio.to_thread(self._get, "health")

    async def leads(self) -> bool:
        return "\netcd_server_is_leader 1" in await asyncio.to_thread(self._get, "metrics")

    async def save(self, to: Path) -> None:
        await etcdctl("--endpoints", self.address, "snapshot", "save", str(to))

    async def put_back(self, saved: Path) -> None:
        await self.kill()
        shutil.rmtree(self._data)
        await restore_etcd(saved, self._data)
        self.start()
        await self.ready()

    def _get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._metrics_port}/{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            return ""


class ZooKeeperServer(StoreServer):
    """One server of ZooKeeper; ``peers`` has two ports of each server for the others, its own at ``number``."""

    def __init__(
        self, directory: Path, number: int, port: int, peers: Sequence[tuple[int, int]], tls: StoreTls | None
    ) -> None:
        self.port = port
        self._secure = tls is not None
        name = f"zookeeper-{number}"
        home = directory / name
        home.mkdir(exist_ok=True)
        self._data = home / "version-2"
        settings = [
            *("tickTime=500", "initLimit=20", "syncLimit=4", f"dataDir={home}", "admin.enableServer=false"),
            *("maxClientCnxns=0", "maxSessionTimeout=60000", "4lw.commands.whitelist=srvr,ruok", "forceSync=no"),
            *(tls.for_zookeeper(home, port) if tls else (f"clientPort={port}", f"clientPortAddress={HOST}")),
        ]
        if len(peers) > 1:
            (home / "myid").write_text(f"{number + 1}\n")
            settings += [f"server.{at + 1}={HOST}:{first}:{second}" for at, (first, second) in enumerate(peers)]
        (home / "zoo.cfg").write_text("\n".join(settings) + "\n")
        arguments = [
            *("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
            *(
                "-cp",
                ":".join((str(JARS), *MORE_JARS)),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(home / "zoo.cfg"),
            ),
        ]
        super().__init__(name, arguments, directory / f"{name}.log")

    async def _serves(self) -> bool:
        if self._secure:
            _, writer = await asyncio.open_connection(HOST, self.port)
            writer.close()
            return True
        return "Mode: " in await self._ask("srvr")

    async def leads(self) -> bool:
        return "Mode: leader" in await self._ask("srvr")

    async def save(self, to: Path) -> None:
        shutil.copytree(self._data, to)

    async def put_back(self, saved: Path) -> None:
        await self.kill()
        shutil.rmtree(self._data)
        shutil.copytree(saved, self._data)
        self.start()
        await self.ready()

    async def _ask(self, word: str) -> str:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(HOST, self.port)
            try:
                writer.write(word.encode())
                return (await reader.read()).decode()
            finally:
                writer.close()


S = TypeVar("S", bound=StoreServer)


async def start_etcd(directory: Path, count: int = 1, tls: StoreTls | None = None) -> list[EtcdServer]:
    """Start a cluster of servers in a folder that exists, and wait until they serve."""

    def make(ports: list[int]) -> list[EtcdServer]:
        peers = ports[count : 2 * count]
        return [EtcdServer(directory, at, ports[at], ports[2 * count + at], peers, tls) for at in range(count)]

    return await _started(make, 3 * count)


async def start_zookeeper(directory: Path, count: int = 1, tls: StoreTls | None = None) -> list[ZooKeeperServer]:
    """The same for ZooKeeper."""

    def make(ports: list[int]) -> list[ZooKeeperServer]:
        peers = [(ports[count + 2 * number], ports[count + 2 * number + 1]) for number in range(count)]
        return [ZooKeeperServer(directory, number, ports[number], peers, tls) for number in range(count)]

    return await _started(make, 3 * count)


async def _started(make: Callable[[list[int]], list[S]], ports: int) -> list[S]:
    """Servers on so many ports. Another process may take a port between our look and the server's."""
    for attempt in range(ATTEMPTS):
        servers = make(free_ports(ports))
        try:
            await _start(servers)
        except ProcessError as error:
            if attempt == ATTEMPTS - 1 or "ended with status" not in str(error):
                raise
        else:
            return servers
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _start(servers: Sequence[StoreServer]) -> None:
    try:
        for server in servers:
            server.start()
        await asyncio.gather(*(server.ready() for server in servers))
    except BaseException:
        await stop(servers)
        raise


async def stop(servers: Sequence[StoreServer]) -> None:
    """End them, paused or not."""
    for server in servers:
        await server.kill()
