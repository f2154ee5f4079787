"""What is known of a cluster when the checks run. What is not known is None, or missing in a mapping."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from migrator import facts
from slots.replies import LARGEST, Info, NotUnderstood
from topom.cluster.topology import is_loopback, parse_address
from topom.reasons import Reason

CONFIG = (
    *("appendfsync", "appendonly", "client-output-buffer-limit", "databases", "disable-thp", "min-replicas-to-write"),
    *("repl-backlog-size", "repl-diskless-sync", "repl-timeout", "replica-ignore-maxmemory", "save", "tcp-backlog"),
)
"""The settings that servers are asked for. None of them is a secret."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Settings of the kernel on which a server runs."""

    overcommit_memory: int | None = None
    huge_pages_always: bool | None = None
    most_connections: int | None = None
    """``net.core.somaxconn``."""


@dataclass(frozen=True)
class ServerFacts:
    """One server.

    Attributes:
        address: ``host:port``.
        group: the group it is in; None for a server of the pool.
        master: whether it is the master of its group.
        silent: why it did not answer; empty if it did.
        info: its INFO.
        config: of :data:`CONFIG`, what it told.
        ahead: seconds that its clock is ahead of topom's, and by how much that may be wrong.
        open: whether anybody who reaches it gets in, without a password.
        user: what topom is called there.
        lacking: what that user lacks, as Redis names it, such as ``+acl|getuser`` or ``~*``.
        missing: commands that its version has and that it does not know.
        kernel: of its machine, if that is topom's own.
    """

    address: str
    group: int | None = 1
    master: bool = True
    silent: str = ""
    info: Info = field(default_factory=Info)
    config: Mapping[str, str] = field(default_factory=dict)
    ahead: tuple[float, float] | None = None
    open: bool | None = None
    user: str = "USER"
    lacking: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    kernel: KernelFacts | None = None

    @property
    def subject(self) -> str:
        """How findings name it."""
        if self.group is None:
            return f"server {self.address} (of the pool)"
        return f"server {self.address} ({'master' if self.master else 'replica'} of group {self.group})"

    @property
    def command(self) -> str:
        """How a shell asks it."""
        host, port = parse_address(self.address)
        return f"redis-cli -h {host} -p {port}"

    @property
    def on_loopback(self) -> bool:
        """Whether only its own machine reaches it by its address."""
        return is_loopback(self.address)

    def told(self, name: str) -> int | None:
        """A number of its INFO; None if it tells none, or one that no server has."""
        value = self.info.get(name)
        return value if type(value) is int and 0 <= value <= LARGEST else None

    def number(self, name: str) -> int | None:
        """A setting that is a number, likewise."""
        value = self.config.get(name, "")
        return int(value) if re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) else None

    @cached_property
    def figures(self) -> facts.Facts | None:
        """What the migrator reads in its INFO; None if that cannot be understood."""
        if self.silent:
            return None
        try:
            return facts.Facts.from_info(self.address, self.info)
        except NotUnderstood:
            return None

    @property
    def version(self) -> tuple[int, ...] | None:
        """The version of Redis whose commands it has."""
        found = re.match(r"(\d{1,4})\.(\d{1,4})", str(self.info.get("redis_version", "")), re.ASCII)
        return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """One proxy.

    Attributes:
        acked: the newest epoch that all its workers apply.
        refuses: why it does not apply the newest table; empty if it said nothing of that kind.
    """

    id: int
    address: str
    hostname: str
    version: str = ""
    lost: bool = False
    draining: bool = False
    acked: int = 0
    refuses: str = ""
    counters: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"proxy {self.id} ({self.address} on {self.hostname})"


@dataclass(frozen=True, slots=True)
class TopomFacts:
    """The topom that leads.

    Attributes:
        listen: where it listens, which is ``public`` if other machines reach it.
        encrypted: whether others reach it by TLS.
        shared: whether others can take over, by a store that is not on its disk alone.
        followers: the versions of the topoms that follow it, by the URL of their API; only those heard of lately.
        clocks: seconds that the clocks of those are ahead of its own, by URL; a second or two may be wrong.
        settings_file: where its settings are, and why that file is ``settings_refused``; empty if it is not.
        restart: settings that have another value there, and need a restart.
        folder: where its data is, and how many bytes are ``free`` there.
        more_tokens: whether there are tokens besides the operator's own.
        server_tls: whether it speaks TLS with servers.
    """

    version: str = ""
    listen: str = "127.0.0.1:8380"
    public: bool = False
    encrypted: bool = False
    shared: bool = False
    followers: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    settings_file: str = ""
    settings_refused: str = ""
    restart: tuple[str, ...] = ()
    folder: str = ""
    free: int | None = None
    more_tokens: bool = True
    ha: str = "off"
    server_tls: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that is known.

    Attributes:
        epoch: of the table when the servers were asked; proxies were looked at after that.
        databases: that clients may SELECT.
        assigned: whether slots have owners.
        not_asked: the servers that there was no time for; no more is known about them.
        waits: what topom waits for, or says is wrong now, and what that is about.
    """

    servers: tuple[ServerFacts, ...] = ()
    proxies: tuple[ProxyFacts, ...] = ()
    topom: TopomFacts = TopomFacts()
    epoch: int = 0
    databases: int = 16
    assigned: bool = True
    not_asked: tuple[ServerFacts, ...] = ()
    waits: tuple[tuple[str, Reason], ...] = ()

    @property
    def answering(self) -> tuple[ServerFacts, ...]:
        """The servers that answered."""
        return tuple(server for server in self.servers if not server.silent)

    @property
    def masters(self) -> tuple[ServerFacts, ...]:
        """Of these, the masters of groups."""
        return tuple(server for server in self.answering if server.master and server.group is not None)

    def groups(self) -> Iterator[tuple[int, tuple[ServerFacts, ...]]]:
        """Each group with its servers, also those that are silent."""
        placed = [(server.group, server) for server in self.servers if server.group is not None]
        for group, servers in groupby(sorted(placed, key=lambda entry: entry[0]), key=lambda entry: entry[0]):
            yield group, tuple(server for _, server in servers)
