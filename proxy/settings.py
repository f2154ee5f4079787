"""The settings of one proxy, each with its unit, its default and its limits.

:mod:`slots.settings` reads them from a TOML file and from the environment (``SLOTFERRY_PROXY_LISTEN`` for ``listen``).
``configs/proxy.toml`` lists them all.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import pydantic_settings
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from proxy.clusterview import why_not_announced
from proxy.users import check_entries
from slots import address
from slots.access import ServerAccess, ServerTls, of_files
from slots.messages.load import MOST_LIMITED
from slots.reaching import ReachesTopom
from slots.settings import Live, Seconds, SettingsError
from slots.tls import ClientCertificates
from slots.users import DEFAULT, LIMITS, UserSettings

ENVIRONMENT_PREFIX = "SLOTFERRY_PROXY_"

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
SecondsOrOff = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProxySettings(ReachesTopom):
    """The settings of one proxy. Bytes and seconds are in the names; the descriptions say the rest."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX)

    listen: str = Field(
        default="127.0.0.1:6380",
        description='Where clients connect without TLS, host:port. Port 0 takes a free one. "": nowhere.',
    )
    tls_listen: str = Field(default="", description='Where clients connect with TLS, host:port. "": nowhere.')
    unix_socket: str = Field(
        default="", description='Path of a Unix socket that clients of this machine connect to. "": none.'
    )
    unix_socket_permissions: str = Field(
        default="700",
        pattern="^[0-7]{3}$",
        description="Its permissions: a user who may write to it may connect.",
    )
    proxy_protocol: bool = Field(
        default=False,
        description="Whether connections to the two addresses begin with a load balancer's PROXY protocol header."
        " If so, only the load balancer may reach them.",
    )
    token: Live[SecretStr] = Field(
        default=SecretStr(""),
        description="The bearer token for topom. Live.",
    )
    workers: int = Field(
        default=0, ge=0, le=1024, description="Worker processes. 0: one for each core this process may use."
    )
    batch_scheduling: bool = Field(
        default=True,
        description="Whether workers wait for their turn on a busy processor (SCHED_BATCH): less CPU a request, "
        "more p99 beside busy programs.",
    )
    password: Live[SecretStr] = Field(
        default=SecretStr(""),
        description='The password that clients send with AUTH or HELLO. "": none. Live.',
    )
    users: Live[list[UserSettings]] = Field(
        default=[],
        description="More users that clients may log in as. In the environment: as JSON, [{...}, ...]. Live.",
    )
    redis_user: str = Field(
        default="",
        description='The ACL user by which the proxy logs in at the Redis servers. "": their user default.',
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""),
        description='The proxy\'s password at the Redis servers. "": none.',
    )
    metrics: str = Field(
        default="127.0.0.1:6381", description='Where /metrics, /livez and /readyz are served, host:port. "": nowhere.'
    )
    log_level: Live[Literal["debug", "info", "warning", "error"]] = Field(
        default="info", description="The least important events that are logged: debug, info, warning or error. Live."
    )

    tls_certificate: Live[str] = Field(
        default="",
        description="File with the certificate shown to clients, in PEM, with the certificates between it and the"
        " authority's. Live.",
    )
    tls_key: Live[str] = Field(default="", description="File with its key, in PEM, without a password. Live.")
    tls_client_certificates: ClientCertificates = Field(
        default="none",
        description="Whether clients have to show a certificate: none (they are not asked), optional or required.",
    )
    tls_client_ca: Live[str] = Field(
        default="",
        description="File with the certificates of the authorities for clients, in PEM. Live.",
    )
    redis_tls: bool = Field(default=False, description="Whether the proxy speaks TLS with the Redis servers.")
    redis_tls_ca: Live[str] = Field(
        default="",
        description='File with the certificates of the authorities for servers, in PEM. "": those that the system'
        " trusts. Live.",
    )
    redis_tls_certificate: Live[str] = Field(
        default="", description='File with the certificate shown to servers, in PEM. "": none. Live.'
    )
    redis_tls_key: Live[str] = Field(default="", description="File with its key, in PEM, without a password. Live.")
    redis_tls_verify_host: bool = Field(
        default=True,
        description="Whether a server's certificate has to name the host in the server's address.",
    )

    slow_log_microseconds: Live[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default=10_000.0,
        description="Microseconds after which a request is slow: kept in the slow log, and told to topom. 0: none is. "
        "Live.",
    )
    hash_hot_keys: bool = Field(
        default=False,
        description="Whether hot keys and those of notable requests are told as hashes: 16 hex digits of SHA-256.",
    )

    max_clients: Live[Count] = Field(
        default=10_000,
        description="Clients that a worker serves at once; one more is refused. There are fewer if the system "
        "allows few open files. Live.",
    )
    handshake_seconds: Live[Seconds] = Field(
        default=5.0, description="Seconds that TLS and the PROXY header of a new connection may take. Live."
    )
    session_max_request_bytes: Annotated[Bytes, Field(lt=2**32)] = Field(
        default=537_919_488,
        description="Bytes of one request; a longer one ends its session. 512 MiB and 1 MiB; less than 4 GiB.",
    )
    session_max_pipeline: Count = Field(
        default=1024,
        description="Replies that may be owed to a session; with more, reading from it stops until some are sent.",
    )
    session_output_pause_bytes: Bytes = Field(
        default=1_048_576, description="Bytes of unsent replies above which reading from a session stops. 1 MiB."
    )
    session_output_limit_bytes: Bytes = Field(
        default=1_073_741_824, description="Bytes of unsent replies above which a session is closed. 1 GiB."
    )
    sessions_limit_bytes: Live[Bytes] = Field(
        default=1_073_741_824,
        description="Bytes of memory for the unsent replies and the waiting requests of all sessions of a worker,"
        " including requests that wait for a server. Above it, the largest sessions are closed. Above"
        " half of it, sessions are paused early, and large requests wait for earlier ones. 1 GiB. Live.",
    )
    session_stall_seconds: Live[Seconds] = Field(
        default=60.0,
        description="Seconds after which a client that takes none of its replies is closed. Live.",
    )
    session_idle_seconds: Live[SecondsOrOff] = Field(
        default=0.0, description="Seconds without a request after which a session is closed. 0: never. Live."
    )
    session_max_subscriptions: Count = Field(
        default=100_000,
        description="Channels and patterns a session may be subscribed to. A name counts once more for each KiB.",
    )
    max_subscriptions: Count = Field(
        default=1_000_000,
        description="Subscriptions of all sessions of a worker together, counted the same way.",
    )

    backend_connections: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Connections of a worker to each server, database and RESP version it uses; as many more for "
        "large replies.",
    )
    backend_queue_pause_bytes: Bytes = Field(
        default=4_194_304,
        description="Unsent bytes to a server above which the sessions that use it are not read. 4 MiB.",
    )
    backend_connect_seconds: Seconds = Field(
        default=1.0, description="Seconds a connection to a server, with its handshake, may take."
    )
    backend_reply_seconds: Seconds = Field(
        default=5.0, description="Seconds a server may take for a reply before its requests get an error."
    )
    backend_retry_seconds_min: Seconds = Field(
        default=0.05,
        description="Seconds before the next attempt to connect to a server; doubled at each failure, with jitter.",
    )
    backend_retry_seconds_max: Seconds = Field(
        default=2.0, description="The most seconds between two attempts to connect to a server."
    )

    own_connections: Count = Field(
        default=2000,
        description="Connections of a worker for clients that block or watch keys. Each such client needs one; "
        "one more client is refused.",
    )

    publish_counts_clients: bool = Field(
        default=False,
        description="Whether PUBLISH and SPUBLISH answer how many clients of all proxies get the message; each then "
        "costs its server several times as much. If false, a worker counts as one, however many its clients.",
    )

    cluster_mode: bool = Field(
        default=False,
        description="Whether clients see a Redis Cluster whose nodes are all proxies with this setting.",
    )
    cluster_announce_host: str = Field(
        default="",
        max_length=255,
        description='Host name or address by which cluster clients reach this proxy. "": that of listen.',
    )
    cluster_announce_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0,
        description="Port by which cluster clients reach it. 0: the port of listen.",
    )
    cluster_announce_tls_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0,
        description="Port by which cluster clients reach it with TLS. 0: the port of tls_listen.",
    )

    replica_reads: bool = Field(
        default=False,
        description="Whether sessions read from replicas until they send READWRITE. If false, they do so only "
        "after READONLY.",
    )
    datacenter: str = Field(
        default="",
        max_length=64,
        description='Datacenter of the proxy: replicas there are read first. "": the one of servers without a '
        "datacenter.",
    )
    replica_check_seconds: Seconds = Field(
        default=1.0,
        description="Seconds between two questions to each replica; one that does not answer is not read.",
    )
    replica_lag_bytes_max: Annotated[int, Field(ge=0)] = Field(
        default=4_194_304,
        description="Bytes that a replica may be behind its master and still be read. 4 MiB.",
    )
    replica_lag_seconds_max: Seconds = Field(
        default=20.0,
        description="Seconds since a replica last heard from its master, after which it is not read. Idle masters"
        " speak every 10 s.",
    )

    any_server_commands: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Commands of modules without keys that any server may answer. In the environment: separated "
        "by commas.",
    )

    lock_drain_seconds: Seconds = Field(
        default=0.5,
        description="Seconds that a locked slot may take to drain before the proxy refuses the lock to topom.",
    )
    lock_hold_seconds: Seconds = Field(
        default=5.0,
        description="Seconds for which a request waits for a locked slot, or one that may touch keys it does not name "
        "for its slot to have moved, before it is answered -TRYAGAIN.",
    )
    move_seconds: Seconds = Field(
        default=5.0, description="Seconds that moving a command's keys may take before the command gets an error."
    )
    big_key_seconds: Seconds = Field(
        default=10.0,
        description="Seconds for which a command that may write waits for a key that moves in pieces; then it "
        "gets an error. Reads run at the source meanwhile.",
    )
    table_file: str = Field(
        default="",
        description="File for the last table of this proxy alone. A proxy that starts while topom is away serves "
        'by it. "": none.',
    )
    table_age_limit_seconds: Seconds = Field(
        default=3600.0,
        description="Seconds after the last contact with topom for which that table may be used.",
    )
    drain_seconds: Live[Seconds] = Field(
        default=30.0,
        description="Seconds over which a draining proxy, for example after SIGTERM, spreads the ends of its sessions. "
        "Live.",
    )
    drain_last_seconds: Live[Seconds] = Field(
        default=10.0,
        description="Further seconds for sessions to come between two requests; after that they are cut off. Live.",
    )

    @field_validator("users", mode="before")
    @classmethod
    def _check_entries(cls, value: Any) -> Any:
        check_entries(value, set(cls.model_fields))
        return value

    @field_validator("any_server_commands", mode="before")
    @classmethod
    def _split_commands(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("listen", "tls_listen", "metrics")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value:
            address.split(value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not (self.listen or self.tls_listen or self.unix_socket):
            raise ValueError("listen: may not be empty if tls_listen and unix_socket are; for example 127.0.0.1:6380")
        if self.tls_listen and not (self.tls_certificate and self.tls_key):
            raise ValueError("tls_listen: needs tls_certificate and tls_key, the names of two files")
        if self.tls_client_certificates != "none" and not self.tls_client_ca:
            raise ValueError("tls_client_certificates: needs tls_client_ca, the name of a file")
        if bool(self.redis_tls_certificate) != bool(self.redis_tls_key):
            raise ValueError("redis_tls_certificate: needs redis_tls_key, and the other way round")
        if self.redis_user and not self.redis_password.get_secret_value():
            raise ValueError("redis_user: needs redis_password")
        names = [user.name for user in self.users]
        if len(set(names)) < len(names):
            raise ValueError("users: two of them have the same name")
        if sum(user.has_limits for user in self.users) > MOST_LIMITED:
            raise ValueError(
                f"users: {MOST_LIMITED} at most may have {', '.join(LIMITS[:-1])} or {LIMITS[-1]}; leave some out"
            )
        if sum(user.connections is not None for user in self.users) > MOST_LIMITED:
            raise ValueError(f"users: {MOST_LIMITED} at most may have connections; leave some out")
        if DEFAULT in names and self.password.get_secret_value():
            raise ValueError(f"password: it is that of the user {DEFAULT}, who is among the users too; leave one out")
        if self.cluster_announce_host and not address.is_host(self.cluster_announce_host):
            raise ValueError("cluster_announce_host: has to be a host name or an address, and nothing else")
        if self.cluster_mode and (
            problem := why_not_announced(self.listen or self.tls_listen, self.cluster_announce_host)
        ):
            raise ValueError(problem)
        if self.session_output_pause_bytes > self.session_output_limit_bytes:
            raise ValueError("session_output_pause_bytes: may not be larger than session_output_limit_bytes")
        if self.backend_retry_seconds_min > self.backend_retry_seconds_max:
            raise ValueError("backend_retry_seconds_min: may not be larger than backend_retry_seconds_max")
        return self

    @classmethod
    def environment(cls) -> dict[str, Any]:
        """As :meth:`slots.settings.Settings.environment`, which it raises the errors of."""
        try:
            return super().environment()
        except pydantic_settings.SettingsError:
            variable = f"{ENVIRONMENT_PREFIX}USERS"  # the only one that is read as JSON
            raise SettingsError(
                f"Setting users (or {variable} in the environment): the variable, or its file, is not JSON."
            ) from None

    def bound(self) -> dict[str, object]:
        """Certificates go with whether TLS is spoken, and whether clients are asked for theirs."""
        by_tls = bool(self.tls_listen)
        served = {"tls_certificate": by_tls, "tls_key": by_tls, "tls_client_ca": (by_tls, self.tls_client_certificates)}
        return {**super().bound(), **of_files("redis_tls", self.redis_tls), **served}

    @cached_property
    def redis_access(self) -> ServerAccess:
        """How to log in at the servers. Raises :class:`slots.tls.TlsError`."""
        tls = ServerTls.of(self, "redis_tls")
        return ServerAccess(self.redis_password.get_secret_value(), self.redis_user, tls if self.redis_tls else None)

    @property
    def worker_count(self) -> int:
        """How many worker processes there are: ``workers``, or one for each core this process may use."""
        if self.workers:
            return self.workers
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def to_wire(self) -> dict[str, Any]:
        """All settings as JSON values, **secrets in the clear**: for a worker's channel, never for a log."""
        wire: dict[str, Any] = _plain(self.model_dump())
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`to_wire`. Raises :class:`~slots.settings.SettingsError`."""
        return cls.checked(dict(wire))


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
