"""Settings of topom: each has its home, its unit, its default and its limits here.

They are read from a TOML file and from the environment (``SLOTFERRY_TOPOM_LISTEN`` for ``listen``); the
environment wins, so that secrets can stay out of files. ``configs/topom.toml`` lists them all.
"""

import os
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from slots import functions
from slots.access import ServerAccess, ServerTls
from slots.address import split
from slots.environment import misspelt, nearest
from slots.moving import MOST_KEYS
from slots.table import DEFAULT_SLOTS, MAXIMUM_SLOTS, MOST_REPLICAS
from topom.cluster.hours import Hours
from topom.cluster.state import MigrationSettings, Product
from topom.cluster.topology import parse_address
from topom.errors import InvalidAddress
from topom.masters.failover import MastersSettings
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.placement.planner import Rules
from topom.placement.stepping import SteppingSettings
from topom.servers.detector import DetectorSettings

SENTINEL_NAME = re.compile(r"[A-Za-z0-9._-]+")
ENVIRONMENT_PREFIX = "SLOTFERRY_TOPOM_"

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SettingsError(ValueError):
    """The settings cannot be used. The message has one sentence a setting: which, and what is wrong."""


class TopomSettings(BaseSettings):
    """What topom is told at its start. Bytes and seconds are in the names; the descriptions say the rest."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    listen: str = Field(
        default="127.0.0.1:8380",
        description="Where the HTTP API and the proxies' control stream are, host:port. Port 0 takes a free one.",
    )
    token: SecretStr = Field(
        default=SecretStr(""),
        description='The bearer token that is asked for. "": made at the first start and kept in the file "token" of '
        "the data folder.",
    )
    token_next: SecretStr = Field(
        default=SecretStr(""),
        description='A second bearer token that is accepted as well, while the token is changed. "": none.',
    )
    data: Path = Field(
        default=Path("slotferry-data"),
        description="Folder of the store; made when missing. One topom uses it at a time.",
    )
    url: str = Field(
        default="",
        max_length=300,
        description='Where the other topoms reach this one\'s API, such as http://topom-1:8380. "": by its name and '
        "the port that it listens on.",
    )
    redis_user: str = Field(
        default="", description='The ACL user as whom topom logs in at the Redis servers. "": their user default.'
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""), description='What topom sends to the Redis servers with AUTH. "": nothing.'
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important events that are logged: debug, info, warning or error."
    )

    redis_tls: bool = Field(default=False, description="Whether topom speaks TLS with the Redis servers.")
    redis_tls_ca: str = Field(
        default="",
        description='File with the certificates of who may vouch for servers, in PEM. "": whom the system trusts.',
    )
    redis_tls_certificate: str = Field(
        default="", description='File with the certificate shown to servers, in PEM. "": none.'
    )
    redis_tls_key: str = Field(default="", description="File with its key, in PEM, without a password.")
    redis_tls_verify_host: bool = Field(
        default=True, description="Whether a server's certificate has to be for the host in the server's address."
    )

    store: Literal["sqlite", "etcd", "zookeeper"] = Field(
        default="sqlite",
        description='Where topom keeps what it has to remember: "sqlite": in a file of the data folder, for one topom; '
        '"etcd" or "zookeeper": there, for several.',
    )
    store_servers: str = Field(
        default="", description="Servers of etcd or ZooKeeper, host:port, with commas between them."
    )
    store_prefix: str = Field(
        default="",
        description='What the names of all topom keeps in etcd or ZooKeeper begin with, such as "/slotferry/shop". '
        '"": "/slotferry/" and the name of the product.',
    )
    store_user: str = Field(default="", description='The user as whom topom logs in at the store. "": none.')
    store_password: SecretStr = Field(default=SecretStr(""), description='Its password. "": none.')
    store_tls: bool = Field(default=False, description="Whether topom speaks TLS with the store.")
    store_tls_ca: str = Field(
        default="",
        description='File with the certificates of who may vouch for the store\'s servers, in PEM. "": whom the system '
        "trusts.",
    )
    store_tls_certificate: str = Field(
        default="", description='File with the certificate shown to the store, in PEM. "": none.'
    )
    store_tls_key: str = Field(default="", description="File with its key, in PEM, without a password.")
    store_tls_verify_host: bool = Field(
        default=True,
        description="Whether a server of the store has to have a certificate for the host in its address.",
    )
    store_timeout_seconds: Seconds = Field(
        default=3.0, description="Seconds that etcd or ZooKeeper may take for one call, with all its tries."
    )
    leader_lease_seconds: Annotated[float, Field(ge=1, le=30, allow_inf_nan=False)] = Field(
        default=5.0,
        description="Seconds after which a topom that leads and does not renew its place at the store has lost it. "
        "Another leads within twice that.",
    )

    product: str = Field(
        default="slotferry", min_length=1, max_length=100, description="Name of the product. Fixed at the first start."
    )
    number_of_slots: int = Field(
        default=DEFAULT_SLOTS, description="Slots, a power of two up to 16384. Fixed at the first start."
    )
    slot_function: str = Field(
        default="crc32", description="How a key's slot is found: crc32, crc16, crc32c or md5. Fixed at the first start."
    )
    databases: int = Field(
        default=16, ge=1, le=10_000, description="Databases that clients may SELECT. Fixed at the first start."
    )

    heartbeat_seconds: Seconds = Field(default=1.0, description="Seconds between two heartbeats of a proxy.")
    proxy_lease_seconds: Seconds = Field(
        default=5.0,
        description="Seconds without a heartbeat after which a proxy is lost: when slots are moved it is fenced off "
        "the servers instead of waited for.",
    )
    proxy_forget_seconds: float = Field(
        default=15.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without a heartbeat after which a lost proxy is fenced off all servers and forgotten, if "
        "none of them has a connection of it and all of them answer. 0: it stays until it is removed or slots move.",
    )
    barrier_seconds: Seconds = Field(
        default=2.0,
        description="Seconds that slots may be locked until every proxy has acknowledged; then they are unlocked, "
        "and locked again later.",
    )
    promotion_seconds: Seconds = Field(
        default=2.0,
        description="Seconds that a group may be locked for a replica to become its master; then the master stays. As "
        "long, at the most, the replica is waited for before.",
    )
    server_probe_seconds: Seconds = Field(
        default=0.5, description="Seconds between two questions of topom to a Redis server whether it answers."
    )
    server_suspect_seconds: Seconds = Field(
        default=2.0, description="Seconds without an answer to topom or a proxy after which a server is suspected."
    )
    server_fail_seconds: Seconds = Field(
        default=5.0,
        description="Seconds without an answer to most of them, topom and proxies, after which a server has failed.",
    )
    server_view_seconds: Seconds = Field(
        default=5.0, description="Seconds for which it counts what a proxy said of the servers."
    )
    protection_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of the members, servers and proxies, beyond which nothing is done by itself if they are "
        "lost at a time.",
    )
    placement_replicas: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Copies of each group that placement sees to, on as many nodes; the master's counts, too.",
    )
    placement_watermark_percent: int = Field(
        default=10,
        ge=0,
        le=100,
        description="Percent by which a node's masters and replicas may be off the even share at rest.",
    )
    placement_leader_changes_max: int = Field(
        default=6, ge=1, description="Masters that placement replaces a round at most, where one is there."
    )
    placement_follower_changes_max: int = Field(
        default=10, ge=1, description="Replicas that placement moves a round at most, where none is missing."
    )
    placement_lag_bytes_max: int = Field(
        default=1_048_576,
        ge=0,
        description="Bytes that a replica may be behind its master to count as whole. 1 MiB.",
    )
    placement_copy_seconds: Seconds = Field(
        default=3600.0, description="Seconds that a new replica may take to be whole, before it is given up."
    )
    placement_settle_seconds: Seconds = Field(
        default=60.0, description="Seconds without any change after which placement does something by itself."
    )
    ha_lag_bytes_max: int = Field(
        default=67_108_864,
        ge=0,
        description='Bytes that a replica may be behind a failed master to take its place, with ha = "topom". 64 MiB.',
    )
    ha_lost_proxies: Literal["stand_down", "wait", "ignore"] = Field(
        default="stand_down",
        description='When a failed master is replaced while a proxy is lost that may still write to it: "stand_down": '
        "once the proxy has surely stood down, which proxies do that hear neither topom nor all replicas of a group; "
        '"wait": once it is back, or fenced; "ignore": at once.',
    )
    stand_down_seconds: Seconds = Field(
        default=5.0,
        description="Seconds for which a proxy serves a group after topom, or all of the group's replicas, have "
        'answered it for the last time, with ha_lost_proxies = "stand_down". At least three heartbeats.',
    )
    redis_timeout_seconds: Seconds = Field(
        default=1.0, description="Seconds that a Redis server may take to answer topom's own questions."
    )

    min_groups: int = Field(
        default=0,
        ge=0,
        le=9999,
        description="Groups with a reachable, empty master that have to be there before topom lays out slots of which "
        "none was ever assigned, evenly, in ranges. 0: it never does so by itself.",
    )
    events_kept: int = Field(
        default=2048, ge=32, le=65_536, description="Events that are kept in the store; the oldest are dropped."
    )
    waiters: int = Field(
        default=256,
        ge=1,
        description="Requests that may wait at a time for news of slots, and streams of events; more are refused.",
    )

    ha: Literal["off", "topom", "sentinel"] = Field(
        default="off",
        description='Who finds another master when one fails: "off": nobody; "topom"; "sentinel": Redis Sentinels.',
    )
    sentinels: Annotated[list[str], NoDecode] = Field(
        default=[],
        description="Sentinels, host:port each, until `slotferry sentinel add` or `remove` changes them. In the "
        "environment: separated by commas.",
    )
    sentinel_quorum: int = Field(
        default=0, ge=0, description="Sentinels that have to find a master down. 0: a majority of them."
    )
    sentinel_down_after_milliseconds: int = Field(
        default=5_000,
        ge=1_500,
        description="Milliseconds without an answer after which a Sentinel finds a server down. It asks each second.",
    )
    sentinel_failover_timeout_milliseconds: int = Field(
        default=60_000,
        ge=1_000,
        description="Milliseconds that a failover may take before it is given up; after twice that it is tried again.",
    )
    sentinel_parallel_syncs: int = Field(
        default=1, ge=1, description="Replicas that are pointed to a new master at a time."
    )
    sentinel_user: str = Field(
        default="", description='The ACL user as whom topom logs in at the Sentinels. "": their user default.'
    )
    sentinel_password: SecretStr = Field(
        default=SecretStr(""), description='What topom sends to the Sentinels with AUTH. "": nothing.'
    )

    migration_parallel_slots: int = Field(
        default=512, ge=1, le=MAXIMUM_SLOTS, description="Slots of one pair of groups that are moved together."
    )
    migration_keys_per_second: int = Field(
        default=0, ge=0, description="Keys that may move in a second, all migrations together. 0: no limit."
    )
    migration_bytes_per_second: int = Field(
        default=0, ge=0, description="Bytes that may move in a second, all migrations together. 0: no limit."
    )
    migration_batch_keys: int = Field(default=500, ge=1, le=MOST_KEYS, description="Most keys in one step.")
    migration_batch_bytes: int = Field(
        default=524_288, ge=1, description="Most bytes in one step, unless a single key is larger. 512 KiB."
    )
    migration_batch_milliseconds: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = Field(
        default=1.5, description="Milliseconds that one step should hold up its source; batches adapt to it."
    )
    migration_big_key_elements: int = Field(
        default=512,
        ge=1,
        description="Elements from above which a key moves in pieces. The same as the proxies' setting.",
    )
    migration_big_key_bytes: int = Field(
        default=65_536,
        ge=1,
        description="Bytes from above which a key moves in pieces. The same as the proxies' setting. 64 KiB.",
    )
    migration_piece_milliseconds: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = Field(
        default=1.0, description="Milliseconds that one piece of a big key should hold up either server."
    )
    migration_latency_goal_milliseconds: Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)] = Field(
        default=10.0,
        description="Milliseconds within which a source or target should answer 99 of 100 requests; moving slows down "
        "to hold it. 0: no goal.",
    )
    migration_hours: str = Field(
        default="",
        description='Hours of the day in which keys move, such as "22:00-06:00" or "0:00-5:30, 12:00-13:00". '
        '"": always.',
    )
    migration_time_zone: str = Field(
        default="", description='Time zone of these hours, such as "Europe/Paris". "": that of topom\'s computer.'
    )
    migration_min_replicas: int = Field(
        default=0,
        ge=0,
        le=MOST_REPLICAS,
        description="Replicas of the target that have to have a key before it is deleted at its source. Proxies go "
        "by the number of when a slot was touched.",
    )
    migration_replica_seconds: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = Field(
        default=2.0, description="Seconds that replicas have to confirm keys."
    )

    sizes_stale_seconds: Seconds = Field(
        default=604_800.0,
        description="Seconds after which sizes of slots are stale, which a plan that uses them says. 7 days.",
    )

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        split_listen(value)
        return value

    @field_validator("sentinels", mode="before")
    @classmethod
    def _split_sentinels(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

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

    @field_validator("number_of_slots")
    @classmethod
    def _check_number_of_slots(cls, value: int) -> int:
        if not 1 <= value <= MAXIMUM_SLOTS or value & (value - 1):
            raise ValueError(f"it has to be a power of two up to {MAXIMUM_SLOTS}, and is {value}")
        return value

    @field_validator("slot_function")
    @classmethod
    def _check_slot_function(cls, value: str) -> str:
        if value not in functions.names():
            raise ValueError(f"{value!r} is not a slot function; known are {', '.join(functions.names())}")
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

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if bool(self.redis_tls_certificate) != bool(self.redis_tls_key):
            raise ValueError("redis_tls_certificate: needs redis_tls_key, and the other way round")
        if self.redis_user and not self.redis_password.get_secret_value():
            raise ValueError("redis_user: needs redis_password")
        if self.sentinel_user and not self.sentinel_password.get_secret_value():
            raise ValueError("sentinel_user: needs sentinel_password")
        if self.server_suspect_seconds > self.server_fail_seconds:
            raise ValueError("server_suspect_seconds: may not be larger than server_fail_seconds")
        if self.ha == "sentinel" and not SENTINEL_NAME.fullmatch(self.product):
            raise ValueError("product: may have letters, digits, dots, hyphens and underscores only for Sentinels")
        if self.stand_down_rule() is not None and self.stand_down_seconds < 3 * self.heartbeat_seconds:
            raise ValueError("stand_down_seconds: has to be three times heartbeat_seconds at least")
        if self.store != "sqlite" and not self.store_servers:
            raise ValueError(f"store_servers: is needed for a store in {self.store}")
        if bool(self.store_user) != bool(self.store_password.get_secret_value()):
            raise ValueError("store_user: needs store_password, and the other way round")
        if bool(self.store_tls_certificate) != bool(self.store_tls_key):
            raise ValueError("store_tls_certificate: needs store_tls_key, and the other way round")
        return self

    @classmethod
    def load(cls, config: Path | None = None, **overrides: Any) -> Self:
        """Settings from ``overrides``, else the environment, else the TOML file ``config``, else the defaults.

        Raises:
            SettingsError: the file cannot be read, or a setting is unknown or not allowed, there or in the environment.
        """
        if sentences := misspelt(ENVIRONMENT_PREFIX, cls.model_fields, os.environ):
            raise SettingsError("\n".join(sentences))
        try:
            in_file = {} if config is None else tomllib.loads(config.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"The settings file {config} cannot be read: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings file {config} is not TOML: {error}.") from error
        try:
            return cls(**{**in_file, **EnvSettingsSource(cls)(), **overrides})
        except ValidationError as error:
            raise SettingsError(_explain(error)) from error

    @cached_property
    def redis_access(self) -> ServerAccess:
        """How to get in at the servers. Raises :class:`slots.tls.TlsError`."""
        tls = ServerTls(self.redis_tls_ca, self.redis_tls_certificate, self.redis_tls_key, self.redis_tls_verify_host)
        return ServerAccess(self.redis_password.get_secret_value(), self.redis_user, tls if self.redis_tls else None)

    @cached_property
    def sentinel_access(self) -> ServerAccess:
        """How to get in at the Sentinels. Raises :class:`slots.tls.TlsError`."""
        tls = ServerTls(self.redis_tls_ca, self.redis_tls_certificate, self.redis_tls_key, self.redis_tls_verify_host)
        return ServerAccess(
            self.sentinel_password.get_secret_value(), self.sentinel_user, tls if self.redis_tls else None
        )

    def sentinel_settings(self) -> SentinelSettings:
        """How Sentinels watch the servers."""
        password = self.redis_password.get_secret_value()
        login = ("auth-pass", password) if password else ()
        return SentinelSettings(
            quorum=self.sentinel_quorum,
            down_after_milliseconds=self.sentinel_down_after_milliseconds,
            failover_timeout_milliseconds=self.sentinel_failover_timeout_milliseconds,
            parallel_syncs=self.sentinel_parallel_syncs,
            login=(*login, "auth-user", self.redis_user) if self.redis_user else login,
        )

    @property
    def store_access_tls(self) -> ServerTls | None:
        """What is trusted and shown in TLS with the store; None for connections in the clear."""
        tls = ServerTls(self.store_tls_ca, self.store_tls_certificate, self.store_tls_key, self.store_tls_verify_host)
        return tls if self.store_tls else None

    @property
    def store_root(self) -> str:
        """The prefix of all names in the store, with a slash before each of its parts."""
        return self.store_prefix or f"/slotferry/{quote(self.product, safe='')}"

    def product_settings(self) -> Product:
        """What proxies have to agree on."""
        return Product(self.product, self.number_of_slots, self.slot_function, self.databases)

    def masters_settings(self) -> MastersSettings:
        """When topom replaces a master by itself."""
        return MastersSettings(
            self.ha == "topom",
            self.ha_lag_bytes_max,
            self.server_fail_seconds,
            self.ha_lost_proxies != "ignore",
            max(self.proxy_lease_seconds / 2, 2 * self.heartbeat_seconds),
        )

    def stand_down_rule(self) -> float | None:
        """The allowance by which proxies are to stand down (:mod:`topom.proxies.standdown`); None if they are not."""
        return self.stand_down_seconds if self.ha == "topom" and self.ha_lost_proxies == "stand_down" else None

    def placement_rules(self) -> Rules:
        """How groups are placed on nodes: as groups are few, by strict watermarks."""
        return Rules(
            self.placement_replicas,
            self.placement_watermark_percent,
            self.placement_leader_changes_max,
            self.placement_follower_changes_max,
            strict=True,
        )

    def stepping_settings(self) -> SteppingSettings:
        """How placement makes copies."""
        return SteppingSettings(self.placement_lag_bytes_max, self.placement_copy_seconds, self.barrier_seconds)

    def detector_settings(self) -> DetectorSettings:
        """When a server counts as suspected and as failed."""
        return DetectorSettings(self.server_suspect_seconds, self.server_fail_seconds, self.server_view_seconds)

    def migration_settings(self) -> MigrationSettings:
        """How migrations run as long as no operator changed it."""
        return MigrationSettings(
            parallel_slots=self.migration_parallel_slots,
            keys_per_second=self.migration_keys_per_second,
            bytes_per_second=self.migration_bytes_per_second,
            batch_keys=self.migration_batch_keys,
            batch_bytes=self.migration_batch_bytes,
            batch_milliseconds=self.migration_batch_milliseconds,
            big_key_elements=self.migration_big_key_elements,
            big_key_bytes=self.migration_big_key_bytes,
            piece_milliseconds=self.migration_piece_milliseconds,
            latency_goal_milliseconds=self.migration_latency_goal_milliseconds,
            hours=self.migration_hours,
            time_zone=self.migration_time_zone,
            min_replicas=self.migration_min_replicas,
            replica_seconds=self.migration_replica_seconds,
        )


def split_listen(text: str) -> tuple[str, int]:
    """Host and port of the address to listen on; port 0 is a free one. Raises :class:`ValueError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not host:port, for example 127.0.0.1:8380")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _explain(error: ValidationError) -> str:
    """One sentence for each thing that is wrong. Values are not shown: they may be secrets."""
    sentences = []
    for entry in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in entry["loc"])
        if entry["type"] == "extra_forbidden":
            near = nearest(name, TopomSettings.model_fields)
            hint = (
                f"; did you mean {near}?" if near else f". The settings are: {', '.join(TopomSettings.model_fields)}."
            )
            sentences.append(f"There is no setting {name}{hint}")
        else:
            message = entry["msg"].removeprefix("Value error, ")
            if not name:  # the message of a check over several settings begins with the name of one
                sentences.append(f"Setting {message}.")
                continue
            sentences.append(f"Setting {name} (or {ENVIRONMENT_PREFIX}{name.upper()} in the environment): {message}.")
    return "\n".join(sentences)
