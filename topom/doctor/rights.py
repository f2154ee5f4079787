"""Whether servers let topom's user do what topom and the migrator do there.

Proxies may log in as another user: topom does not know which, so nothing is said about that.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from migrator.followable import may
from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

ADMIN = frozenset({"all", "admin", "slow", "dangerous"})
_SCRIPTS = frozenset({"all", "scripting", "slow"})


class Right(NamedTuple):
    """A command that is needed.

    Attributes:
        name: as an ACL has it.
        categories: those of the command, in every version.
        tried: the command with arguments, for ``ACL DRYRUN``.
    """

    name: str
    categories: frozenset[str]
    tried: tuple[str, ...]


FENCING = (
    Right("acl|getuser", ADMIN, ("ACL", "GETUSER", "x")),
    Right("acl|setuser", ADMIN, ("ACL", "SETUSER", "x")),
    Right("client|list", ADMIN | {"connection"}, ("CLIENT", "LIST")),
    Right("client|kill", ADMIN | {"connection"}, ("CLIENT", "KILL", "ID", "1")),
)
WORKING = (
    Right("info", frozenset({"all", "slow", "dangerous"}), ("INFO",)),
    Right("config|get", ADMIN, ("CONFIG", "GET", "save")),
    Right("config|rewrite", ADMIN, ("CONFIG", "REWRITE")),
    Right("slaveof", ADMIN, ("SLAVEOF", "NO", "ONE")),
    Right("eval", _SCRIPTS, ("EVAL", "return 0", "0")),
    Right("evalsha", _SCRIPTS, ("EVALSHA", "0" * 40, "0")),
    Right("scan", frozenset({"all", "keyspace", "read", "slow"}), ("SCAN", "0")),
    Right("dump", frozenset({"all", "keyspace", "read", "slow"}), ("DUMP", "x")),
    Right("restore", frozenset({"all", "keyspace", "write", "slow", "dangerous"}), ("RESTORE", "x", "0", "x")),
)
STREAM = (
    Right("psync", ADMIN, ("PSYNC", "?", "-1")),
    Right("replconf", ADMIN, ("REPLCONF", "ACK", "0")),
)
TIDYING = (
    Right("acl|users", ADMIN, ("ACL", "USERS")),
    Right("acl|deluser", ADMIN, ("ACL", "DELUSER", "x")),
)
RIGHTS = (*FENCING, *WORKING, *STREAM, *TIDYING)
ALL_KEYS, ALL_CHANNELS = "~*", "&*"

COMMANDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("info", "config", "client", "slaveof", "psync", "replconf", "select"), (3, 0)),
    **dict.fromkeys(("multi", "exec", "eval", "evalsha", "script", "scan", "dump", "restore", "exists"), (3, 0)),
    "acl": (6, 0),
    "hello": (6, 0),
}
"""What topom, the migrator and the proxies use and cannot do without, and the first version that has it."""

_REMEDY = "{command} ACL SETUSER {user} {rules}, and ACL SAVE or the line of its users.acl; see docs/server-access.md"
NO_FENCE = Rule(
    "rights-to-fence",
    Severity.CRITICAL,
    "topom's user lacks {rules}",
    "a proxy that was lost cannot be cut off there, and could write where slots no longer are",
    _REMEDY,
)
NO_WORK = Rule(
    "rights-to-work",
    Severity.CRITICAL,
    "topom's user lacks {rules}",
    "topom cannot look at the server, replace its master, or move keys from it and to it",
    _REMEDY,
)
NO_STREAM = Rule(
    "rights-to-follow",
    Severity.NOTE,
    "topom's user lacks {rules}",
    "slots move from it key by key only, and replicas that log in as this user cannot follow it",
    _REMEDY,
)
NO_TIDYING = Rule(
    "rights-to-tidy",
    Severity.NOTE,
    "topom's user lacks {rules}",
    "marks of proxies that are long gone stay there for ever",
    _REMEDY,
)
RENAMED = Rule(
    "command-renamed",
    Severity.CRITICAL,
    "it does not know {commands}: renamed or switched off",
    "what topom, the migrator and the proxies do by these fails there; without HELLO it counts as an old server, "
    "and all clients get RESP2",
    "take the lines rename-command out of its redis.conf and restart it; an ACL can forbid them to others",
)
RULES = (NO_FENCE, NO_WORK, RENAMED, NO_STREAM, NO_TIDYING)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Rights that lack, and commands that are gone."""
    for server in cluster.answering:
        for rule, rights in ((NO_FENCE, FENCING), (NO_WORK, WORKING), (NO_STREAM, STREAM), (NO_TIDYING, TIDYING)):
            names = {f"+{right.name}" for right in rights} | ({ALL_KEYS, ALL_CHANNELS} if rule is NO_WORK else set())
            if rules := [name for name in server.lacking if name in names]:
                yield rule.of(server.subject, rules=" ".join(rules), user=server.user, command=server.command)
        if server.missing:
            yield RENAMED.of(server.subject, commands=", ".join(name.upper() for name in server.missing))


def lacking(rules: str, keys: str, channels: str, dry_runs: Mapping[str, bool]) -> tuple[str, ...]:
    """What a user lacks, as an ACL would give it.

    Args:
        rules, keys, channels: as the server tells them of the user.
        dry_runs: by the name of a right, what the server itself says of it; empty where it says nothing.
    """
    found = [
        f"+{right.name}" for right in RIGHTS if not dry_runs.get(right.name, may(rules, right.name, right.categories))
    ]
    found += [ALL_KEYS] if not {ALL_KEYS, "allkeys"} & set(keys.split()) else []
    return (*found, *([ALL_CHANNELS] if not {ALL_CHANNELS, "allchannels"} & set(channels.split()) else []))


def missing(known: Mapping[str, bool], version: tuple[int, ...] | None) -> tuple[str, ...]:
    """The commands of :data:`COMMANDS` that a server of this version has, and does not know."""
    if version is None:
        return ()
    return tuple(name for name, since in COMMANDS.items() if version >= since and known.get(name) is False)
