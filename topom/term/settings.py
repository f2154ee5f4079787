"""Settings of topom: each has its place, its unit, its default and its limits here.

They hold values and know no other part of topom: :mod:`topom.term.features` makes from them what each part gets.
:mod:`slots.settings` reads them from a TOML file and from the environment (``SLOTFERRY_TOPOM_LISTEN`` for ``listen``).
``configs/topom.toml`` lists them all.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from slots.access import of_files
from slots.address import split
from slots.messages.message import NumberOfSlots, SlotFunction
from slots.probing import ASK_SECONDS
from slots.settings import Live, Seconds, Settings
from slots.slot import MAXIMUM_SLOTS, MOST_REPLICAS
from slots.table import DEFAULT_SLOTS
from topom.cluster.hours import Hours
from topom.cluster.topology import parse_address
from topom.errors import InvalidAddress
from topom.term.tokens import Token, parse_tokens, problem_of

LEAST_SUSPECT_SECONDS = 2 * ASK_SECONDS
"""A healthy server is silent between two questions, and for as long as its answer takes."""
SENTINEL_NAME = re.compile(r"[A-Za-z0-9._-]+")

# These may be set here, and an operator may change them while topom runs (:mod:`topom.api.migration_models`).
ParallelSlots = Annotated[int, Field(ge=1, le=MAXIMUM_SLOTS)]
Rate = Annotated[int, Field(ge=0)]
GoalMilliseconds = Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)]
MinReplicas = Annotated[int, Field(ge=0, le=MOST_REPLICAS)]


class TopomSettings(Settings):
    """What topom is told at its start. Bytes and seconds are in the names, the rest in the descriptions."""

    model_config = SettingsConfigDict(env_prefix="SLOTFERRY_TOPOM_")

    listen: str = Field(
        default="127.0.0.1:8380",
        description="Where the HTTP API and the proxies' control stream listen, host:port. Port 0 takes a free one.",
    )
    token: Live[SecretStr] = Field(
        default=SecretStr(""),
        description='The bearer token of operators, topoms and proxies, 16 characters at least. "": it is made at the '
        'first start and kept in the file "token" of the data folder. Live.',
    )
    tokens: Live[Annotated[list[SecretStr], NoDecode]] = Field(
        default=[],
        description='More bearer tokens, role:name:secret each, such as "viewer:grafana:SECRET". The role is viewer, '
        "operator, proxy or migrator, and events show the name. In the environment: separated by commas. Live.",
    )
    data: Path = Field(
        default=Path("slotferry-data"),
        description="Folder of the store; it is made if it is missing. One topom uses it at a time.",
    )
    url: str = Field(
        default="",
        max_length=300,
        description='URL by which the other topoms reach this one\'s API, such as http://topom-1:8380. "": the '
        "host name and the port that it listens on.",
    )
    tls_certificate: Live[str] = Field(
        default="",
        description="File with the certificate by which the API and the control stream are served, in PEM, its chain "
        'after it. "": without TLS. Live.',
    )
    tls_key: Live[str] = Field(default="", description="File with its key, in PEM, without a password. Live.")
    tls_client_certificates: Literal["none", "streams", "all"] = Field(
        default="none",
        description='Who has to show a certificate, besides a token. "streams": proxies and migrators. "all": whoever '
        "connects, browsers too.",
    )
    tls_client_ca: Live[str] = Field(
        default="", description="File with the certificates of the authorities for those certificates, in PEM. Live."
    )
    tls_ca: Live[str] = Field(
        default="",
        description="File with the certificates of the authorities for the other topoms' certificates, in PEM. "
        '"": those that the system trusts. Live.',
    )
    redis_user: str = Field(
        default="",
        description='The ACL user by which topom logs in at the Redis servers. "": their user default.',
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""),
        description='The password of topom at the Redis servers. "": none.',
    )
    log_level: Live[Literal["debug", "info", "warning", "error"]] = Field(
        default="info", description="The least important events that are logged: debug, info, warning or error. Live."
    )

    redis_tls: bool = Field(default=False, description="Whether topom speaks TLS with the Redis servers.")
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

    store: Literal["sqlite", "etcd", "zookeeper"] = Field(
        default="sqlite",
        description='Where topom keeps its state. "sqlite": in a file of the data folder, for one topom. "etcd" '
        'or "zookeeper": there, for several topoms.',
    )
    store_servers: str = Field(
        default="",
        description="Servers of etcd or ZooKeeper, host:port, separated by commas.",
    )
    store_prefix: str = Field(
        default="",
        description='The prefix of topom\'s names in etcd or ZooKeeper, such as "/slotferry/shop". "": '
        '"/slotferry/" and the name of the product.',
    )
    store_user: str = Field(
        default="",
        description='The user by which topom logs in at the store. "": none.',
    )
    store_password: SecretStr = Field(default=SecretStr(""), description='Its password. "": none.')
    store_tls: bool = Field(default=False, description="Whether topom speaks TLS with the store.")
    store_tls_ca: str = Field(
        default="",
        description='File with the certificates of the authorities for the store\'s servers, in PEM. "": those '
        "that the system trusts.",
    )
    store_tls_certificate: str = Field(
        default="", description='File with the certificate shown to the store, in PEM. "": none.'
    )
    store_tls_key: str = Field(default="", description="File with its key, in PEM, without a password.")
    store_tls_verify_host: bool = Field(
        default=True,
        description="Whether a certificate of the store's servers has to name the host in the server's address.",
    )
    store_timeout_seconds: Seconds = Field(
        default=3.0,
        description="Seconds that one call to etcd or ZooKeeper may take, including all its tries.",
    )
    leader_lease_seconds: Annotated[float, Field(ge=1, le=30, allow_inf_nan=False)] = Field(
        default=5.0,
        description="Seconds after which a leading topom that does not renew its lease at the store has lost it. "
        "Another topom leads within twice that.",
    )

    product: str = Field(
        default="slotferry", min_length=1, max_length=100, description="Name of the product. Fixed at the first start."
    )
    number_of_slots: NumberOfSlots = Field(
        default=DEFAULT_SLOTS, description="Slots, a power of two up to 16384. Fixed at the first start."
    )
    slot_function: SlotFunction = Field(
        default="crc32", description="How a key's slot is found: crc32, crc16, crc32c or md5. Fixed at the first start."
    )
    databases: int = Field(
        default=16, ge=1, le=10_000, description="Databases that clients may SELECT. Fixed at the first start."
    )

    heartbeat_seconds: Seconds = Field(default=1.0, description="Seconds between two heartbeats of a proxy.")
    proxy_lease_seconds: Seconds = Field(
        default=5.0,
        description="Seconds without a heartbeat after which a proxy is lost. When slots move, topom fences a "
        "lost proxy off the servers instead of waiting for it.",
    )
    proxy_forget_seconds: float = Field(
        default=15.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without a heartbeat after which a lost proxy is fenced off all servers and "
        "forgotten. All servers have to answer, and none may have a connection of the proxy. 0: it "
        "stays until it is removed or slots move.",
    )
    barrier_seconds: Seconds = Field(
        default=2.0,
        description="Seconds that slots may be locked while proxies acknowledge. After that they are unlocked, "
        "and locked again later.",
    )
    promotion_seconds: Seconds = Field(
        default=2.0,
        description="Seconds that a group may be locked while a replica becomes its master; after that the master"
        " stays. Before the lock, topom waits at most as long for the replica.",
    )
    server_suspect_seconds: Seconds = Field(
        default=2.0,
        description="Seconds after which a server that does not answer topom or a proxy is suspected; 1.0 at least.",
    )
    server_fail_seconds: Seconds = Field(
        default=5.0,
        description="Seconds without an answer to a majority of topom and proxies, after which a server has failed.",
    )
    server_view_seconds: Seconds = Field(
        default=5.0,
        description="Seconds for which a proxy's report about the servers counts.",
    )
    protection_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of the members (servers and proxies). If more are lost at once, topom does nothing "
        "about it by itself.",
    )
    placement_replicas: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Copies of each group, including the master's, that placement keeps on as many nodes.",
    )
    placement_watermark_percent: int = Field(
        default=10,
        ge=0,
        le=100,
        description="Percent by which a node's numbers of masters and replicas may differ from the even share at rest.",
    )
    placement_leader_changes_max: int = Field(
        default=6,
        ge=1,
        description="The most masters that placement replaces in one round, where a group has one.",
    )
    placement_follower_changes_max: int = Field(
        default=10,
        ge=1,
        description="The most replicas that placement moves in one round, where none is missing.",
    )
    placement_lag_bytes_max: int = Field(
        default=1_048_576,
        ge=0,
        description="Bytes that a replica may be behind its master to count as whole. 1 MiB.",
    )
    placement_copy_seconds: Seconds = Field(
        default=3600.0,
        description="Seconds that a new replica may take to become whole before it is given up.",
    )
    placement_settle_seconds: Seconds = Field(
        default=60.0,
        description="Seconds without any change after which placement acts by itself.",
    )
    ha_lag_bytes_max: int = Field(
        default=67_108_864,
        ge=0,
        description='Bytes that a replica may be behind a failed master to take its place, with ha = "topom". 64 MiB.',
    )
    ha_lost_proxies: Literal["stand_down", "wait", "ignore"] = Field(
        default="stand_down",
        description='When a failed master is replaced while a lost proxy may still write to it. "stand_down": '
        "once the proxy has surely stood down, as a proxy does that hears neither topom nor all "
        'replicas of a group. "wait": once the proxy is back, or fenced. "ignore": at once.',
    )
    stand_down_seconds: Seconds = Field(
        default=5.0,
        description="Seconds for which a proxy serves a group after the last answer of topom, or of all the "
        'group\'s replicas, with ha_lost_proxies = "stand_down". At least three heartbeats.',
    )
    redis_timeout_seconds: Seconds = Field(
        default=1.0, description="Seconds that a Redis server may take to answer topom's own questions."
    )

    min_groups: int = Field(
        default=0,
        ge=0,
        le=9999,
        description="Number of groups with a reachable, empty master for the first layout: with so many, topom "
        "lays all slots out in even ranges, if no slot was ever assigned. 0: it never does so by "
        "itself.",
    )
    events_kept: int = Field(
        default=2048, ge=32, le=65_536, description="Events that are kept in the store; the oldest are dropped."
    )
    waiters: Live[int] = Field(
        default=256,
        ge=1,
        description="Requests that may wait at a time for news of slots; more are refused. Live.",
    )

    ha: Literal["off", "topom", "sentinel"] = Field(
        default="off",
        description='What finds another master when one fails. "off": nothing. "topom": topom. "sentinel": Redis '
        "Sentinels.",
    )
    sentinels: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Sentinels, host:port each, until `slotferry sentinel add` or `remove` changes them. In the "
        "environment: separated by commas.",
    )
    sentinel_quorum: int = Field(
        default=0,
        ge=0,
        description="Number of Sentinels that have to find a master down. 0: a majority of them.",
    )
    sentinel_down_after_milliseconds: int = Field(
        default=5_000,
        ge=1_500,
        description="Milliseconds without an answer after which a Sentinel finds a server down. It asks each second.",
    )
    sentinel_failover_timeout_milliseconds: int = Field(
        default=60_000,
        ge=1_000,
        description="Milliseconds that a failover may take before it is given up. After twice that time it is "
        "tried again.",
    )
    sentinel_parallel_syncs: int = Field(
        default=1,
        ge=1,
        description="Replicas that are pointed to a new master at once.",
    )
    sentinel_user: str = Field(
        default="",
        description='The ACL user by which topom logs in at the Sentinels. "": their user default.',
    )
    sentinel_password: SecretStr = Field(
        default=SecretStr(""),
        description='The password of topom at the Sentinels. "": none.',
    )

    migration_parallel_slots: Live[ParallelSlots] = Field(
        default=512, description="Slots of one pair of groups that are moved together. Live."
    )
    migration_keys_per_second: Live[Rate] = Field(
        default=0, description="Keys that may move in a second, all migrations together. 0: no limit. Live."
    )
    migration_bytes_per_second: Live[Rate] = Field(
        default=0, description="Bytes that may move in a second, all migrations together. 0: no limit. Live."
    )
    migration_latency_goal_milliseconds: Live[GoalMilliseconds] = Field(
        default=10.0,
        description="Milliseconds within which a source or target should answer 99 of 100 requests; moving slows down "
        "to hold it. 0: no goal. Live.",
    )
    migration_hours: Live[str] = Field(
        default="",
        description='Hours of the day in which keys move, such as "22:00-06:00" or "0:00-5:30, 12:00-13:00". '
        '"": always. Live.',
    )
    migration_time_zone: Live[str] = Field(
        default="",
        description='Time zone of these hours, such as "Europe/Paris". "": the one of topom\'s computer. Live.',
    )
    migration_min_replicas: Live[MinReplicas] = Field(
        default=0,
        description="Replicas of the target that have to have a key before it is deleted at its source. Proxies go "
        "by the number of when a slot was touched. Live.",
    )

    migration_way: Live[Literal["keys", "stream", "auto"]] = Field(
        default="auto",
        description='How slots move. "keys": key by key, and a request for a key that has yet to move waits for it. '
        '"stream": by the replication stream of the source, while clients stay there until one short lock. "auto": '
        "each batch in the way that suits it, by a forecast. Live.",
    )

    rebalance: Literal["manual", "auto"] = Field(
        default="manual",
        description='Whether slots move by themselves, by load, when groups are uneven for minutes. "manual": never.',
    )
    rebalance_after_seconds: float = Field(
        default=300.0,
        ge=5,
        allow_inf_nan=False,
        description="Seconds for which a group has to have too much load before slots move by themselves. topom looks "
        "five times in that time, and waits twelve times as long after an operator's act.",
    )
    sizes_stale_seconds: Seconds = Field(
        default=604_800.0,
        description="Seconds after which sizes of slots are stale; a plan that uses stale sizes says so. 7 days.",
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        split_listen(value)
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr) -> SecretStr:
        secret = value.get_secret_value()
        if secret and (problem := problem_of(secret)):
            raise ValueError(problem)
        return value

    @field_validator("sentinels", "tokens", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        # A file of tokens may have one on each line.
        return [part.strip() for part in re.split("[,\n]", value) if part.strip()] if isinstance(value, str) else value

    @field_validator("sentinels")
    @classmethod
    def _check_sentinels(cls, value: list[str]) -> list[str]:
        for address in value:
            try:
                parse_address(address)
            except InvalidAddress as error:
                raise ValueError(str(error)) from None
        if len(set(value)) < len(value):
            raise ValueError("one of them stands there twice")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value and (not value.startswith(("http://", "https://")) or not value.partition("://")[2].strip("/")):
            raise ValueError(f"{value!r} is not a URL such as http://topom-1:8380")
        return value.rstrip("/")

    @field_validator("store_servers")
    @classmethod
    def _check_store_servers(cls, value: str) -> str:
        addresses = [address.strip() for address in value.split(",")] if value else []
        for address in addresses:
            split(address, lowest_port=1)
        return ",".join(addresses)

    @field_validator("store_prefix")
    @classmethod
    def _check_store_prefix(cls, value: str) -> str:
        if value and not re.fullmatch(r"(/[A-Za-z0-9_.~%-]+)+", value):
            raise ValueError("it has to be like /slotferry/shop: a slash before each of its parts, and none at its end")
        return value

    @field_validator("migration_hours")
    @classmethod
    def _check_migration_hours(cls, value: str) -> str:
        Hours.parse(value)
        return value

    @field_validator("migration_time_zone")
    @classmethod
    def _check_migration_time_zone(cls, value: str) -> str:
        Hours.parse("", value)
        return value

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, value: list[SecretStr]) -> list[SecretStr]:
        parse_tokens([entry.get_secret_value() for entry in value])
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        try:
            self.more_tokens(self.token.get_secret_value())
        except ValueError as error:
            raise ValueError(f"tokens: {error}") from None
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate: needs tls_key, and the other way round")
        if self.tls_client_certificates != "none" and not (self.tls_certificate and self.tls_client_ca):
            raise ValueError("tls_client_certificates: needs tls_certificate, tls_key and tls_client_ca, three files")
        if self.tls_client_ca and self.tls_client_certificates == "none":
            raise ValueError("tls_client_ca: needs tls_client_certificates, streams or all")
        if self.tls_certificate and self.url.startswith("http://"):
            raise ValueError("url: has to begin with https://, because there is a tls_certificate")
        if bool(self.redis_tls_certificate) != bool(self.redis_tls_key):
            raise ValueError("redis_tls_certificate: needs redis_tls_key, and the other way round")
        if self.redis_user and not self.redis_password.get_secret_value():
            raise ValueError("redis_user: needs redis_password")
        if self.sentinel_user and not self.sentinel_password.get_secret_value():
            raise ValueError("sentinel_user: needs sentinel_password")
        if self.server_suspect_seconds < LEAST_SUSPECT_SECONDS:
            raise ValueError(
                f"server_suspect_seconds: has to be {LEAST_SUSPECT_SECONDS} at least, because a server is asked every "
                f"{ASK_SECONDS} s and needs time to answer; server_fail_seconds may not be smaller"
            )
        if self.server_suspect_seconds > self.server_fail_seconds:
            raise ValueError("server_suspect_seconds: may not be larger than server_fail_seconds")
        if self.ha == "sentinel" and not SENTINEL_NAME.fullmatch(self.product):
            raise ValueError("product: may have letters, digits, dots, hyphens and underscores only for Sentinels")
        if self.proxies_stand_down and self.stand_down_seconds < 3 * self.heartbeat_seconds:
            raise ValueError("stand_down_seconds: has to be three times heartbeat_seconds at least")
        if self.store != "sqlite" and not self.store_servers:
            raise ValueError(f"store_servers: is needed for a store in {self.store}")
        if bool(self.store_user) != bool(self.store_password.get_secret_value()):
            raise ValueError("store_user: needs store_password, and the other way round")
        if bool(self.store_tls_certificate) != bool(self.store_tls_key):
            raise ValueError("store_tls_certificate: needs store_tls_key, and the other way round")
        return self

    def bound(self) -> dict[str, object]:
        """Certificates go with whether TLS is spoken, and whether clients are asked for theirs."""
        serves = bool(self.tls_certificate)
        return {
            **of_files("tls", serves),
            "tls_client_ca": (serves, self.tls_client_certificates),
            **of_files("redis_tls", self.redis_tls),
        }

    def more_tokens(self, own: str) -> tuple[Token, ...]:
        """The setting ``tokens``. Raises :class:`ValueError` if one of them has the secret ``own``."""
        return parse_tokens([entry.get_secret_value() for entry in self.tokens], own)

    @property
    def proxies_stand_down(self) -> bool:
        """Whether proxies that hear nothing stand down (:mod:`topom.proxies.standdown`)."""
        return self.ha == "topom" and self.ha_lost_proxies == "stand_down"


def split_listen(text: str) -> tuple[str, int]:
    """Host and port of the address to listen on; port 0 takes a free one. Raises :class:`ValueError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port, for example 127.0.0.1:8380")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)
