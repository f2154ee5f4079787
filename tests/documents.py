"""Which pages of the documents have command blocks, and how many of their commands are run."""

PAGES = {
    "README.md": 6,
    "docs/README.md": 10,
    "docs/automatic-rebalancing.md": 5,
    "docs/backup.md": 38,
    "docs/client-connections.md": 2,
    "docs/client-limits.md": 1,
    "docs/client-prefixes.md": 1,
    "docs/client-rights.md": 1,
    "docs/client-users.md": 5,
    "docs/client-worker-share.md": 1,
    "docs/deploy.md": 30,
    "docs/digest.md": 18,
    "docs/doctor.md": 10,
    "docs/failover.md": 14,
    "docs/failures-moves.md": 11,
    "docs/failures-servers.md": 10,
    "docs/from-one-redis.md": 24,
    "docs/high-availability.md": 11,
    "docs/hot-keys.md": 1,
    "docs/joining.md": 6,
    "docs/kept-users.md": 13,
    "docs/leaving-codis.md": 9,
    "docs/leaving-proxies.md": 5,
    "docs/leaving.md": 13,
    "docs/operations.md": 16,
    "docs/pacing.md": 5,
    "docs/placement-planning.md": 4,
    "docs/placement.md": 16,
    "docs/planning.md": 5,
    "docs/rebalancing.md": 17,
    "docs/replica-reads.md": 9,
    "docs/sentinel-changes.md": 3,
    "docs/sentinel.md": 23,
    "docs/servers-odd.md": 5,
    "docs/security.md": 1,
    "docs/server-access.md": 13,
    "docs/shedding.md": 1,
    "docs/sizing-rdb.md": 6,
    "docs/sizing-source.md": 8,
    "docs/sizing.md": 13,
    "docs/start.md": 20,
    "docs/stores.md": 2,
    "docs/three-machines.md": 16,
    "docs/tokens.md": 2,
    "docs/topom-tls.md": 11,
    "docs/when-a-move-stops.md": 9,
}
"""The pages that are run, and how many commands are at least found on each."""
NOT_RUN = ("docs/containers.md", "docs/placement-internals.md", "docs/sizing-running.md")
"""Pages whose blocks all say why they are not run."""
SPARK = ("docs/sizing.md", "docs/sizing-rdb.md", "docs/sizing-source.md")
SPARK_SECONDS = 300.0
"""For a command that starts Spark, on a machine that has much else to do."""
JUDGED = (*PAGES, *NOT_RUN)
SECTIONS = ("Start", "Guides")
"""Of the site: each command block of their pages is run, or says why not."""
