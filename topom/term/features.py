"""Which settings each part of topom gets: one function for each part, from the values to the part's own record."""

from dataclasses import dataclass, field
from typing import Any

from slots.messages.message import Product
from topom.cluster.state import MigrationSettings
from topom.masters.failover import MastersSettings
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.placement.planner import Rules
from topom.placement.stepping import SteppingSettings
from topom.servers.detector import DetectorSettings
from topom.term import certificates
from topom.term.settings import TopomSettings


def product(settings: TopomSettings) -> Product:
    """What all proxies must have in common."""
    return Product(
        name=settings.product,
        number_of_slots=settings.number_of_slots,
        slot_function=settings.slot_function,
        databases=settings.databases,
    )


def detector(settings: TopomSettings) -> DetectorSettings:
    """When a server counts as suspected and as failed."""
    return DetectorSettings(settings.server_suspect_seconds, settings.server_fail_seconds, settings.server_view_seconds)


def masters(settings: TopomSettings) -> MastersSettings:
    """When topom replaces a master by itself."""
    return MastersSettings(
        settings.ha == "topom",
        settings.ha_lag_bytes_max,
        settings.server_fail_seconds,
        settings.ha_lost_proxies != "ignore",
        max(settings.proxy_lease_seconds / 2, 2 * settings.heartbeat_seconds),
    )


def stand_down_seconds(settings: TopomSettings) -> float | None:
    """The allowance by which proxies stand down (:mod:`topom.proxies.standdown`); None if they need not."""
    return settings.stand_down_seconds if settings.proxies_stand_down else None


def sentinels(settings: TopomSettings) -> SentinelSettings:
    """How Sentinels watch the servers."""
    password = settings.redis_password.get_secret_value()
    login = ("auth-pass", password) if password else ()
    return SentinelSettings(
        quorum=settings.sentinel_quorum,
        down_after_milliseconds=settings.sentinel_down_after_milliseconds,
        failover_timeout_milliseconds=settings.sentinel_failover_timeout_milliseconds,
        parallel_syncs=settings.sentinel_parallel_syncs,
        login=(*login, "auth-user", settings.redis_user) if settings.redis_user else login,
    )


def migration(settings: TopomSettings) -> MigrationSettings:
    """How migrations run as long as no operator changes it."""
    return MigrationSettings(
        parallel_slots=settings.migration_parallel_slots,
        keys_per_second=settings.migration_keys_per_second,
        bytes_per_second=settings.migration_bytes_per_second,
        latency_goal_milliseconds=settings.migration_latency_goal_milliseconds,
        hours=settings.migration_hours,
        time_zone=settings.migration_time_zone,
        min_replicas=settings.migration_min_replicas,
        way=settings.migration_way,
    )


@dataclass(frozen=True, slots=True)
class OwnMigrator:
    """How the migrator that a topom starts itself reaches it.

    Attributes:
        url: of this process, on this machine. Its certificate need not name that.
        token: a secret of the role migrator.
    """

    url: str
    token: str = field(repr=False)


def migrator(settings: TopomSettings, own: OwnMigrator) -> dict[str, Any]:
    """The settings of the migrator that this topom starts itself (:mod:`migrator.process.settings`)."""
    return {
        "topom": [own.url],
        "token": own.token,
        **certificates.of_own_migrator(settings),
        "spool": str(settings.data.absolute() / "spool"),
        "node": "",
        "datacenter": "",
        "redis_user": settings.redis_user,
        "redis_password": settings.redis_password.get_secret_value(),
        "redis_tls": settings.redis_tls,
        "redis_tls_ca": settings.redis_tls_ca,
        "redis_tls_certificate": settings.redis_tls_certificate,
        "redis_tls_key": settings.redis_tls_key,
        "redis_tls_verify_host": settings.redis_tls_verify_host,
        "log_level": settings.log_level,
    }


def placement(settings: TopomSettings) -> Rules:
    """How groups are placed on nodes: by strict watermarks, because groups are few."""
    return Rules(
        settings.placement_replicas,
        settings.placement_watermark_percent,
        settings.placement_leader_changes_max,
        settings.placement_follower_changes_max,
        strict=True,
    )


def stepping(settings: TopomSettings) -> SteppingSettings:
    """How placement makes copies."""
    return SteppingSettings(settings.placement_lag_bytes_max, settings.placement_copy_seconds)
