"""The stored fences: which proxies they turn away, and at which servers they are known to be up.

Fences are numbered as they are stored, and a server is given all that it lacks together. So one number for each server
says which fences are up there. It is kept together with the process (run id) that has them: a server that was started
anew may have forgotten them, and counts as having none. What is stored grows with servers and with unfinished fences,
but not with their product (**bounded**). A fence that is up at every server is forgotten. That is safe: a proxy that
says it was registered before, and is not a member, is refused (:mod:`topom.proxies.members`). Until that refusal it
uses no server that may have forgotten its mark (**final-fence**, :mod:`proxy.supervisor.standdown.evidence`).

The same numbers say which servers a fenced proxy that stands down may not have in its table. A server *came* at a
number: the fences up to it were stored already, or not every proxy had acknowledged the server then.

Pure functions of the state.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from topom.cluster.state import ClusterState, Fenced, Marked, ProxyRecord
from topom.cluster.topology import all_servers


def added(state: ClusterState, records: Iterable[ProxyRecord]) -> ClusterState:
    """The state in which these proxies are fenced. In this state they are still members."""
    fenced, number = dict(state.fenced), state.last_fence
    for record in records:
        number += 1
        fenced[record.instance] = Fenced(record.instance, record.id, number, record.stand_down)
    # In a group without replicas there is nobody for a proxy to ask. So it is not known to watch the servers there.
    unsure = {server for group in state.table.groups.values() if not group.replicas for server in group.servers}
    came = {**state.came, **dict.fromkeys(unsure | state.unwatched, number)}
    return replace(state, fenced=fenced, last_fence=number, came=came)


def lacking(state: ClusterState, server: str, process: str | None = None) -> list[Fenced]:
    """Fences that a server is not known to have.

    Args:
        process: the run id by which the server was seen last; None if that is not known.
    """
    marked = state.marked.get(server)
    if marked is None or (process and marked.process != process):
        return list(state.fenced.values())
    if marked.number >= state.last_fence:
        return []
    return [entry for entry in state.fenced.values() if entry.number > marked.number]


def cut_off(state: ClusterState, entry: Fenced) -> frozenset[str]:
    """Servers at which a fence is known to be up."""
    return frozenset(server for server, marked in state.marked.items() if marked.number >= entry.number)


def watches(state: ClusterState, entry: Fenced, server: str) -> bool:
    """Whether a fenced proxy that stands down surely has a server in its table, as one of the server's group."""
    return entry.stand_down is not None and state.came.get(server, 0) < entry.number


def set_at(state: ClusterState, done: Mapping[str, Marked]) -> ClusterState:
    """The state in which servers have these fences, without those that are up everywhere."""
    marked = dict(state.marked)
    for server, now in done.items():
        before = marked.get(server)
        if before is None or before.process != now.process or before.number < now.number:
            marked[server] = now
    return _without_finished(replace(state, marked=marked) if marked != state.marked else state)


def _without_finished(state: ClusterState) -> ClusterState:
    servers = all_servers(state.table)
    least = min((state.marked[server].number if server in state.marked else 0 for server in servers), default=0)
    fenced = {instance: entry for instance, entry in state.fenced.items() if entry.number > least}
    if not fenced:
        if not (state.fenced or state.marked or state.came):
            return state
        return replace(state, fenced={}, marked={}, came={})
    kept: Collection[str] = set(servers)
    marked = {server: one for server, one in state.marked.items() if server in kept}
    came = {server: number for server, number in state.came.items() if server in kept}
    if (len(fenced), len(marked), len(came)) == (len(state.fenced), len(state.marked), len(state.came)):
        return state
    return replace(state, fenced=fenced, marked=marked, came=came)


def emptied(state: ClusterState, server: str) -> ClusterState:
    """The state in which a server has no fences."""
    if server not in state.marked:
        return state
    return replace(state, marked={name: one for name, one in state.marked.items() if name != server})
