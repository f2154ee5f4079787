"""Who may become, or stay, the master of a group: the one decision, from what servers say and what is stored.

Whoever changes a master asks here. A *planned* change is an operator's promotion, one of a placement, and the one by
which a master hands over that leaves (:mod:`topom.leaving.servers`). A *failover* is topom's own. A *forced* change is
an operator's, of a group whose master is gone, or whose change of masters waits for servers that are gone. *Sentinels*
are kept from electing a replica by its priority, set long before its master fails. A *departure* is that of a replica
from a group whose master is not there: another one has to be as good.

Which refusals (:class:`topom.servers.whole.Why`) hold for which change:

================ ========= ========== ======== ========== ===========
refusal          planned   failover   forced   sentinel   departure
================ ========= ========== ======== ========== ===========
leaving          yes       no (1)     no (2)   yes (1)    no (3)
two names        yes       no (4)     no (4)   no (4)     no (4)
anew             yes       yes        no (5)   no (5)     no (5)
differs          yes       yes        no (2)   yes        yes
joining          no (6)    yes (7)    yes      yes        yes
filling          no (8)    no (8)     yes      no (8)     no (8)
silent           yes       yes        yes      no (9)     yes
is master        yes       yes        no (10)  no (9)     yes
no link          yes       no (11)    no (11)  no (9)     no (11)
partial          no (8)    yes        no (12)  no (9)     yes
other stream     yes       yes        no (2)   no (9)     yes
behind           yes       yes        no (2)   no (9)     yes
link lost        no (11)   yes        no (2)   no (9)     no (3)
master silent    yes       no (13)    no (13)  no (9)     no (13)
master follows   yes       no (13)    no (13)  no (9)     no (13)
master answers   no (11)   yes        yes      no (9)     no (3)
master heard     no (11)   yes        no (2)   no (9)     no (3)
master unknown   no (11)   yes        no (2)   no (9)     no (3)
master changed   no (14)   yes        no (14)  no (9)     no (3)
================ ========= ========== ======== ========== ===========

1. It may have what nobody else has. A failover chooses it if it has more than all others, and Sentinels may elect it if
   no other replica is left that they could; it hands over to another server by itself then.
2. The operator says that the master is gone, and names the best that is left.
3. Nobody becomes a master by it, and the master may come back. A server that leaves stays while no master is there.
4. It has the copy, whatever else it is called, and a group without a master is worse. The promotion is of the very
   process that was asked (**run-id**).
5. It is joining, too, which is asked first.
6. A link that is up, in the master's stream, is what whole means. Whoever joins has that at the same moment.
7. But if its link is up, or this topom has asked the master itself up to its end: then its stream is known to be the
   master's, which is what whole means.
8. Covered by what is asked of its link or of its copy.
9. Nobody knows when the master fails, so nothing that servers say now counts; the Sentinels ask them then.
10. One that was restarted without a configuration file says so, and what it holds may be the best that is left.
11. A planned change asks the master itself, which is there; and where it is gone nobody has a link to it.
12. A replica with an append-only file that was restarted without its master says the same, and has everything.
13. The master is gone, which is why.
14. Asked when the lock is stored, of the state as it is then.

Of those that are not refused, a failover and a planned change choose the one that has most; of equals one that stays,
and then the first of the group. What is asked of how far it is (*behind*, *link lost*) a failover asks of that one
alone: where the best is not good enough, a lesser one is not taken in its place.

The rules themselves are in :mod:`topom.masters.choicerules`. Beside them, proxies must have let go of the former master
(:mod:`topom.masters.promotions`), and whom Sentinels have elected is not refused any more, unless it is empty
(:mod:`topom.masters.sentinels.following`). Pure: what servers say is collected by those who ask. **last-copy**,
**run-id**.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from slots.table import Group
from topom.cluster.state import ClusterState, Promotion, leaving_servers
from topom.errors import Conflict, NotReady, TopomError
from topom.masters.choicerules import OF_THE_BEST, RULES, Case, Change, Outage, Rule, answer, leaves
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import LastCopy, ServerFailed
from topom.servers.readings import Replication
from topom.servers.whole import Refusal, Said, Why, together


class ServerLeaving(Conflict):
    """The server is on its way out and is made the master of nothing."""

    kind = Kind.OPERATOR


class NotWhole(Conflict):
    """The server was never seen to hold a whole copy of its group's data."""

    kind = Kind.DATA


ERRORS: Mapping[Why, type[TopomError]] = {
    Why.LEAVING: ServerLeaving,
    Why.JOINING: NotWhole,
    Why.LAST_COPY: LastCopy,
}
"""As what a refusal is raised; all others as :class:`~topom.errors.NotReady`."""


def error_of(refusal: Refusal) -> TopomError:
    """The error by which an operator is told of a refusal."""
    reason = refusal.reason
    return ERRORS.get(refusal.kind, NotReady)(reason.what, reason.to_do, kind=reason.kind)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided of a group.

    Attributes:
        group: as it was.
        chosen: the server that is to be master; None if nobody may be, or nobody was to be chosen.
        standing: how many bytes of their stream those have run that are not refused, by address.
        refused: why all others are.
    """

    group: Group
    chosen: str | None
    standing: Mapping[str, int]
    refused: Mapping[str, Refusal]

    @property
    def refusal(self) -> Refusal:
        """Why nobody is chosen: what all are refused for, or the best is; else what each is refused for."""
        found = list(dict.fromkeys(self.refused.values()))
        if len(found) == 1 or self.standing:
            return found[-1]  # the best is refused last
        group = self.group
        what = f"no replica of group {group.id} can take the place of {group.master}"
        whats, to_do = together(found)
        return Refusal(Why.NOBODY, group.servers[0], f"{what}: {whats}" if whats else f"{what}: it has none", to_do)

    def require(self) -> str:
        """The server that is chosen. Raises as :func:`error_of` if nobody is."""
        if self.chosen is None:
            raise error_of(self.refusal)
        return self.chosen


# -- who asks ----------------------------------------------------------------------------------------------


def planned(
    state: ClusterState,
    group: Group,
    said: Said,
    near: int | None = None,
    names: Mapping[str, Reason | None] | None = None,
) -> Choice:
    """Which of a group's replicas takes the place of its master, while that is there.

    Args:
        said: by the master, and by those replicas that may be chosen.
        near: how many bytes a replica may be behind; None for any number, where it is waited for later.
        names: by address of servers that topom has by another name, too: why nothing is done to them.
    """
    candidates = [server for server in group.replicas if server in said]
    leaving = leaving_servers(state)
    case = Case(
        state=state, group=group, candidates=candidates, said=said, leaving=leaving, near=near, names=names or {}
    )
    return _best(Change.PLANNED, case)


def failover(state: ClusterState, group: Group, said: Said, outage: Outage, has_failed: bool) -> Choice:
    """Which of a group's replicas takes the place of its master, which has failed.

    Args:
        said: by each of its replicas.
        has_failed: whether the master counts as failed still.
    """
    answering = {} if has_failed else {group.servers[0]: ""}
    case = Case(
        state=state,
        group=group,
        candidates=group.replicas,
        said=said,
        leaving=leaving_servers(state),
        answering=answering,
        outage=outage,
    )
    choice = _best(Change.FAILOVER, case)
    chosen = choice.chosen
    if chosen is not None and (refusal := _first(OF_THE_BEST, case, chosen)) is not None:
        standing = {server: offset for server, offset in choice.standing.items() if server != chosen}
        return replace(choice, chosen=None, standing=standing, refused={**choice.refused, chosen: refusal})
    return choice


def forced(state: ClusterState, group: Group, server: str, said: Said, gone: Collection[str]) -> Choice:
    """Whether a server may become the master as an operator says, whatever only those have that are gone.

    Args:
        said: by that server, and by those that are to be gone.
        gone: the master, or those that the change of masters is about for which a locked group waits.
    """
    to_do = f"group {group.id} is unlocked by itself; look at it again"
    if not group.locked:
        to_do = f"promote {server} without force, and nothing is lost"
    answering = {one: to_do for one in gone if not isinstance(said[one], ServerFailed)}
    return _best(Change.FORCED, Case(state=state, group=group, candidates=[server], said=said, answering=answering))


def electable(
    state: ClusterState, group: Group, leaving: Collection[str], has_failed: Callable[[str], bool]
) -> Mapping[str, Refusal]:
    """Why Sentinels are not to elect a group's replicas, should its master fail; those that they may are not in it.

    Args:
        leaving: servers that are on their way out.
        has_failed: whether a server counts as failed, and could not be elected.
    """
    standing, refused = _judged(Change.SENTINEL, Case(state=state, group=group, candidates=group.replicas))
    if any(not (server in leaving or has_failed(server)) for server in standing):
        refused |= {server: refusal for server in standing if (refusal := leaves(leaving, server)) is not None}
    return refused


def departure(state: ClusterState, group: Group, leaver: str, said: Said) -> Refusal | None:
    """Why the group may lose data with a replica; None if it may go. That is asked only while no master is there.

    Of a replica that does not answer itself nobody knows what it has: then any other whole one will do.

    Args:
        said: by each of the group's servers.
    """
    ahead = said[group.servers[0]]
    if not isinstance(ahead, ServerFailed) and ahead.is_master:
        return None
    others = [server for server in group.replicas if server != leaver]
    standing, _ = _judged(Change.DEPARTURE, Case(state=state, group=group, candidates=others, said=said, leaver=leaver))
    if standing:
        return None
    return Refusal(
        Why.LAST_COPY,
        leaver,
        f"{group.master}, the master of group {group.id}, does not answer or is none, and no other replica is known to "
        f"have all that {leaver} has",
        "bring the master back, or promote a replica first. If this copy may be lost: "
        f"slotferry server remove {group.id} {leaver}",
    )


def staying(state: ClusterState, server: str) -> Refusal | None:
    """Why a server is not to be made, or kept, a master by plan: it is on its way out. None if it is not."""
    return leaves(leaving_servers(state), server)


def master_of_locked(
    promotion: Promotion, same: bool, successor: Replication | None, former: Replication | None
) -> str:
    """Which of the two servers of a change of masters that was broken off is the master; empty if nobody can know.

    Nobody has written to either since the lock, so either has everything; but what the successor was made counts.

    Args:
        same: whether the successor is the process that was chosen. **run-id**, **last-copy**: one that was restarted
            may be a master by itself, with nothing.
        successor, former: what they say; None from one that does not answer.
    """
    if successor is not None and successor.is_master and same:
        return promotion.server
    return "" if successor is None and former is None else promotion.former


# -- how it is decided -------------------------------------------------------------------------------------


def _first(rules: Collection[Rule], case: Case, server: str) -> Refusal | None:
    return next((refusal for rule in rules if (refusal := rule(case, server)) is not None), None)


def _judged(change: Change, case: Case) -> tuple[list[str], dict[str, Refusal]]:
    """Those that are not refused, and why the others are."""
    found = {server: _first(RULES[change], case, server) for server in case.candidates}
    standing = [server for server, refusal in found.items() if refusal is None]
    return standing, {server: refusal for server, refusal in found.items() if refusal is not None}


def _best(change: Change, case: Case) -> Choice:
    standing, refused = _judged(change, case)
    offsets = {server: answer(case, server).offset for server in standing}
    chosen = max(standing, key=lambda server: (offsets[server], server not in case.leaving), default=None)
    return Choice(case.group, chosen, offsets, refused)
