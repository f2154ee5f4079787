"""Whether topom itself, its store and its ways to others are as they should be."""

from collections.abc import Iterator

from migrator.facts import shown
from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

ALMOST_NO_DISK = 256 << 20
LITTLE_DISK = 2 << 30

DISK_FULL = Rule(
    "disk-full",
    Severity.CRITICAL,
    "the disk of its data folder has {free} left",
    "once it is full nothing can be stored: no slot moves and no master is replaced",
    "free some of it: df -h {folder}",
)
DISK = Rule(
    "disk-nearly-full",
    Severity.WARNING,
    "the disk of its data folder has {free} left",
    "moves by the stream find no room for what they keep there, and in the end nothing can be stored",
    "free some of it: df -h {folder}",
)
PLAIN = Rule(
    "topom-in-the-clear",
    Severity.WARNING,
    "it listens on {listen}, in the clear",
    "whoever can listen in that network gets operators' tokens, and with one the whole cluster",
    "have it listen on 127.0.0.1, or be reached by TLS, with an https:// as its setting url; see docs/topom-tls.md",
)
SERVERS_PLAIN = Rule(
    "servers-in-the-clear",
    Severity.NOTE,
    "{count} servers on other machines are spoken to in the clear",
    "whoever can listen in that network gets the password of the servers, and what keys hold",
    "set redis_tls for topom and the proxies, and tls-port at the servers; see docs/server-access.md",
)
ONE_TOKEN = Rule(
    "one-token",
    Severity.NOTE,
    "there is no token besides the operator's",
    "each proxy, and each dashboard, holds a token that may change everything",
    'give them their own: tokens = ["proxy:fleet:SECRET", "viewer:grafana:SECRET"]; see docs/tokens.md',
)
ON_ITS_DISK = Rule(
    "store-on-one-disk",
    Severity.NOTE,
    "its state is in a file on its own machine",
    "while that machine is down no slot moves and no master is replaced; if its disk is lost, so is the slot table",
    "back up {folder}/store.sqlite as docs/backup.md says, or give several topoms a store in etcd or ZooKeeper",
)
ALONE = Rule(
    "no-other-topom",
    Severity.WARNING,
    "it shares a store, but no other topom follows it",
    "if it fails, nobody takes over: no slot moves and no master is replaced",
    "start another topom with the same store on another machine: slotferry topom",
)
NO_FAILOVER = Rule(
    "no-failover",
    Severity.WARNING,
    'groups have replicas, and nothing replaces a master that fails (ha = "off")',
    "the slots of a master that fails are not served until somebody acts",
    'set ha = "topom" in topom.toml and restart topom; by hand: slotferry group promote GROUP REPLICA',
)
VERSIONS = Rule(
    "topom-version-differs",
    Severity.NOTE,
    "it is of version {version}, and the topom that leads of {leader}",
    "after it takes over, what the other could do may be missing; an upgrade that was begun is not finished",
    "upgrade the older one, as docs/upgrading.md says",
)
REFUSED = Rule(
    "settings-refused",
    Severity.WARNING,
    "its settings could not be read anew: {why}",
    "what was changed there does not hold, and it does not start again with that file",
    "slotferry config check {file}, mend it, and have topom read it: kill -HUP, or systemctl reload slotferry-topom",
)
RESTART = Rule(
    "settings-need-restart",
    Severity.NOTE,
    "settings have changed that need a restart: {names}",
    "it goes on with the former values, and the next restart, at whatever moment, changes them",
    "restart it at a quiet moment: systemctl restart slotferry-topom",
)
RULES = (DISK_FULL, DISK, REFUSED, PLAIN, ALONE, NO_FAILOVER, RESTART, SERVERS_PLAIN, ONE_TOKEN, ON_ITS_DISK, VERSIONS)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """What is weak about topom itself."""
    topom = cluster.topom
    if topom.free is not None and topom.free < LITTLE_DISK:
        rule = DISK_FULL if topom.free < ALMOST_NO_DISK else DISK
        yield rule.of("topom", free=shown(topom.free), folder=topom.folder)
    if topom.settings_refused:
        yield REFUSED.of("topom", why=topom.settings_refused, file=topom.settings_file or "FILE")
    if topom.restart:
        yield RESTART.of("topom", names=", ".join(topom.restart))
    if topom.public and not topom.encrypted:
        yield PLAIN.of("topom", listen=topom.listen)
    remote = sum(not server.on_loopback for server in cluster.servers)
    if remote and not topom.server_tls:
        yield SERVERS_PLAIN.of("topom", count=remote)
    if topom.public and not topom.more_tokens:
        yield ONE_TOKEN.of("topom")
    if not topom.shared:
        yield ON_ITS_DISK.of("topom", folder=topom.folder)
    elif not topom.followers:
        yield ALONE.of("topom")
    if topom.ha == "off" and any(len(servers) > 1 for _, servers in cluster.groups()):
        yield NO_FAILOVER.of("topom")
    for url, version in topom.followers.items():
        if version != topom.version:
            yield VERSIONS.of(f"topom {url}", version=version, leader=topom.version)
