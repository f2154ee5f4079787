"""Whether a replica may be the best copy of its group that there is, because the master is not there."""

from collections.abc import Callable, Collection, Mapping

from slots.table import Group
from topom.errors import Conflict
from topom.replication import Replication, ServerFailed


class LastCopy(Conflict):
    """The master of the server's group is not there, and no other server is known to have as much."""


def require_copy(
    group: Group,
    address: str,
    said: Mapping[str, Replication | ServerFailed],
    joining: Collection[str],
    problem_of: Callable[[str], str | None],
) -> None:
    """Raises LastCopy if the group may lose data with this replica: only while its master does not say that it is one.

    Of a replica that does not answer itself nobody knows what it has: then any other whole one will do.

    Args:
        group: with that replica.
        said: by each of the group's servers.
        joining: servers that were never seen whole.
        problem_of: why a replica's copy is not to be relied on; None if nothing is known against it.
    """
    ahead, mine = said[group.servers[0]], said[address]
    if not isinstance(ahead, ServerFailed) and ahead.is_master:
        return
    for server in group.replicas:
        other = said[server]
        if server == address or server in joining or problem_of(server) or isinstance(other, ServerFailed):
            continue
        has_all = isinstance(mine, ServerFailed) or (other.stream == mine.stream and other.offset >= mine.offset)
        if has_all and not other.is_master and not other.filling:
            return
    raise LastCopy(
        f"{group.master}, the master of group {group.id}, does not answer or is none, and no other replica is known to "
        f"have all that {address} has: bring the master back, or promote a replica first. If this copy may be lost: "
        f"slotferry server remove {group.id} {address}"
    )
