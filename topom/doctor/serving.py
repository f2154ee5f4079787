"""Whether servers can serve at all: they answer, are no nodes of a Redis Cluster, have the databases and a password."""

from collections.abc import Iterator

from topom.cluster.topology import parse_address
from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

MOST_CLIENTS_SHARE = 0.8
MOST_OF_A_REASON = 300
DENIED = "DENIED Redis is running in protected mode"
"""How a server begins to refuse a connection that comes from another machine."""
REFUSED_LOGINS = (
    "Authentication required",
    "NOAUTH",
    "WRONGPASS",
    "invalid username-password pair",
    "invalid password",
)
"""What is in a server's words when it refuses a login."""

SILENT = Rule(
    "server-silent",
    Severity.CRITICAL,
    "it does not answer topom: {why}",
    "requests for its slots fail, or no replica is there to take them over; nothing else about it is known here",
    "look at its process, its log and the network: {command} PING",
)
PROTECTED = Rule(
    "protected-mode",
    Severity.CRITICAL,
    "it refuses connections of other machines, because it has no password (protected-mode yes)",
    "topom and proxies cannot use it: requests for its slots fail",
    "on its machine: redis-cli -p {port} CONFIG SET requirepass SECRET, and give topom and the proxies redis_password",
)
LOGIN = Rule(
    "login-refused",
    Severity.CRITICAL,
    "it does not let topom in: {why}",
    "requests for its slots fail if proxies have the same user and password; nothing else about it is known here",
    "look at redis_user and redis_password of topom and of the proxies: {command} ACL LIST",
)
NOT_ASKED = Rule(
    "servers-not-asked",
    Severity.NOTE,
    "it was not asked, or its answer not waited for: there was no time left",
    "nothing is known here about it",
    "ask again: slotferry doctor; servers that were left out come first then",
)
CLUSTER_NODE = Rule(
    "cluster-enabled",
    Severity.CRITICAL,
    "it is a node of a Redis Cluster (cluster-enabled yes)",
    "it answers MOVED or CLUSTERDOWN for keys whose slot, by its own count, is elsewhere, and has one database",
    "set cluster-enabled no in its redis.conf and restart it",
)
DATABASES = Rule(
    "too-few-databases",
    Severity.CRITICAL,
    "it has {has} databases, and clients may use {needed}",
    "requests for the databases that it lacks fail, and keys of those cannot move to it",
    "set databases {needed} in its redis.conf and restart it",
)
OPEN = Rule(
    "no-password",
    Severity.WARNING,
    "it lets in whoever reaches {address}, without a password",
    "anybody in that network can read, change and delete all keys, also behind the back of proxies",
    "give the proxies and topom redis_password, then {command} CONFIG SET requirepass SECRET; "
    "see docs/server-access.md",
)
CLIENTS = Rule(
    "clients-near-limit",
    Severity.WARNING,
    "{clients} of at most {most} clients are connected",
    "at the limit it refuses connections of proxies, and requests for its slots fail",
    "{command} CONFIG SET maxclients {more}, and raise its limit of open files (LimitNOFILE)",
)
RULES = (SILENT, PROTECTED, LOGIN, CLUSTER_NODE, DATABASES, OPEN, CLIENTS, NOT_ASKED)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """What keeps servers from serving."""
    for server in cluster.servers:
        if server.silent.startswith(DENIED):
            yield PROTECTED.of(server.subject, port=parse_address(server.address)[1])
        elif any(said in server.silent for said in REFUSED_LOGINS):
            yield LOGIN.of(server.subject, why=server.silent[:MOST_OF_A_REASON], command=server.command)
        elif server.silent:
            yield SILENT.of(server.subject, why=server.silent[:MOST_OF_A_REASON], command=server.command)
    for server in cluster.answering:
        if server.told("cluster_enabled"):
            yield CLUSTER_NODE.of(server.subject)
        databases = server.number("databases")
        if databases is not None and databases < cluster.databases and not server.told("cluster_enabled"):
            yield DATABASES.of(server.subject, has=databases, needed=cluster.databases)
        if server.open and not server.on_loopback:
            yield OPEN.of(server.subject, address=server.address, command=server.command)
        clients, most = server.told("connected_clients"), server.told("maxclients")
        if clients is not None and most and clients > MOST_CLIENTS_SHARE * most:
            yield CLIENTS.of(server.subject, clients=clients, most=most, more=2 * most, command=server.command)
    for server in cluster.not_asked:
        yield NOT_ASKED.of(server.subject)
