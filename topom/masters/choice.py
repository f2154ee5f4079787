"""Which server may become, or stay, the master of a group: the one decision, from what servers say and what is stored.

Every change of a master asks here. A *planned* change is an operator's promotion, a promotion of a placement, or the
one by which a leaving master hands over (:mod:`topom.leaving.servers`). A *failover* is topom's own. An operator orders
a *forced* change, for a group whose master is gone, or whose change of masters waits for servers that are gone.
*Sentinels* are kept from electing a replica by its priority, which is set long before its master fails. In a
*departure* a replica leaves a group while the master is away: another replica has to be as good.

Which refusals (:class:`topom.servers.whole.Why`) hold for which change:

================ ========= ========== ========= ========== ===========
refusal          planned   failover   forced    sentinel   departure
================ ========= ========== ========= ========== ===========
leaving          yes       no (1)     no (2)    yes (1)    no (3)
two names        yes       no (4)     no (4)    no (4)     no (4)
anew             yes       yes        no (5)    no (5)     no (5)
differs          yes       yes        no (2)    yes        yes
joining          no (6)    yes (7)    yes       yes        yes
filling          no (8)    no (8)     yes       no (8)     no (8)
silent           yes       yes        yes       no (9)     yes
is master        yes       yes        no (10)   no (9)     yes
no link          yes       no (11)    no (11)   no (9)     no (11)
partial          no (8)    yes        no (12)   no (9)     yes
other stream     yes       yes        no (2)    no (9)     yes
behind           yes       yes        no (2)    no (9)     yes
link lost        no (11)   yes        no (2)    no (9)     no (3)
master silent    yes       no (13)    no (13)   no (9)     no (13)
master follows   yes       no (13)    no (13)   no (9)     no (13)
master answers   no (11)   yes        yes (15)  no (9)     no (3)
master heard     no (11)   yes        no (2)    no (9)     no (3)
master unknown   no (11)   yes        no (2)    no (9)     no (3)
master changed   no (14)   yes        no (14)   no (9)     no (3)
================ ========= ========== ========= ========== ===========

1. It may have what no other server has. A failover chooses it if it has more than all others, and Sentinels may elect
   it if they could elect no other replica. Then it hands over to another server by itself.
2. The operator says that the master is gone, and names the best server that is left.
3. A departure makes no server a master, and the master may come back. A leaving server stays while the master is away.
4. It has the copy, whatever its names, and a group without a master is worse. The very process that was asked is
   promoted (**run-id**).
5. Such a server is joining, too, and that rule is asked first.
6. Whole means that the link is up, in the master's stream. A joining server that is whole now is seen whole at that
   moment.
7. Except if its link is up, or this topom has asked the master itself up to its end. Then its stream is known to be the
   master's, and that is what whole means.
8. Covered by the rules on its link or its copy.
9. It is not known when the master will fail, so nothing that servers say now counts. The Sentinels ask them when it
   does.
10. A replica that was restarted without a configuration file says that it is a master, and may hold the best data left.
11. A planned change asks the master itself, which is there. If the master is gone, no replica has a link to it.
12. A replica with an append-only file that was restarted while its master was away says the same, and has everything.
13. There is a change because the master is gone.
14. Asked when the lock is stored, by the state of that moment.
15. Except for a master by the table that is a replica now, in the stream of the server that is named, and that one is a
    master: somebody else has changed them, and the named one has all that the other has.

Of the servers that are not refused, a failover and a planned change choose the one that has most. Of equals they choose
one that is not leaving, and then the first of the group. A failover applies *behind* and *link lost* only to the one
that has most: if the best is not good enough, it takes no lesser one.

The rules themselves are in :mod:`topom.masters.choicerules`. Besides, proxies must have let go of the former master
(:mod:`topom.masters.promotions`). A server that Sentinels have elected already is refused only if it is empty
(:mod:`topom.masters.sentinels.following`). Pure: the callers collect what servers say. **last-copy**, **run-id**.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from slots.group import Group
from topom.cluster.state import ClusterState, Promotion, leaving_servers
from topom.errors import Conflict, NotReady, TopomError
from topom.masters.choicerules import OF_THE_BEST, RULES, Case, Change, Outage, Rule, answer, leaves
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import LastCopy, ServerFailed
from topom.servers.readings import Replication
from topom.servers.whole import Refusal, Said, Why, together


class ServerLeaving(Conflict):
    """The server is leaving, and is not made the master of any group."""

    kind = Kind.OPERATOR


class NotWhole(Conflict):
    """The server was never seen to hold a whole copy of its group's data."""

    kind = Kind.DATA


ERRORS: Mapping[Why, type[TopomError]] = {
    Why.LEAVING: ServerLeaving,
    Why.JOINING: NotWhole,
    Why.LAST_COPY: LastCopy,
}
"""The errors as which refusals are raised; all others are raised as :class:`~topom.errors.NotReady`."""


def error_of(refusal: Refusal) -> TopomError:
    """The error that tells an operator of a refusal."""
    reason = refusal.reason
    return ERRORS.get(refusal.kind, NotReady)(reason.what, reason.to_do, kind=reason.kind)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided about a group.

    Attributes:
        group: the group before the change.
        chosen: the server that becomes master; None if none may, or none was to be chosen.
        eligible: for each server that is not refused, how many bytes of its stream it has run.
        refused: why each other server is refused.
    """

    group: Group
    chosen: str | None
    eligible: Mapping[str, int]
    refused: Mapping[str, Refusal]

    @property
    def refusal(self) -> Refusal:
        """Why no server is chosen: the reason of all if it is the same, or else that of the best, or else of each."""
        found = list(dict.fromkeys(self.refused.values()))
        if len(found) == 1 or self.eligible:
            return found[-1]  # the best is refused last
        group = self.group
        what = f"no replica of group {group.id} can take the place of {group.master}"
        whats, to_do = together(found)
        return Refusal(Why.NOBODY, group.servers[0], f"{what}: {whats}" if whats else f"{what}: it has none", to_do)

    def require(self) -> str:
        """The server that is chosen. Raises what :func:`error_of` gives if none is."""
        if self.chosen is None:
            raise error_of(self.refusal)
        return self.chosen


# -- changes -----------------------------------------------------------------------------------------------


def planned(
    state: ClusterState,
    group: Group,
    said: Said,
    near: int | None = None,
    names: Mapping[str, Reason | None] | None = None,
) -> Choice:
    """Which of a group's replicas takes the place of its master, while the master is there.

    Args:
        said: what the master and those replicas that may be chosen say.
        near: how many bytes a replica may be behind; None for any number, if the caller waits for it later.
        names: for each server that topom has by another name, too: why nothing is done to it.
    """
    candidates = [server for server in group.replicas if server in said]
    leaving = leaving_servers(state)
    case = Case(
        state=state, group=group, candidates=candidates, said=said, leaving=leaving, near=near, names=names or {}
    )
    return _best(Change.PLANNED, case)


def failover(state: ClusterState, group: Group, said: Said, outage: Outage, has_failed: bool) -> Choice:
    """Which of a group's replicas takes the place of its failed master.

    Args:
        said: what each of its replicas says.
        has_failed: whether the master still counts as failed.
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
        eligible = {server: offset for server, offset in choice.eligible.items() if server != chosen}
        return replace(choice, chosen=None, eligible=eligible, refused={**choice.refused, chosen: refusal})
    return choice


def forced(state: ClusterState, group: Group, server: str, said: Said, gone: Collection[str]) -> Choice:
    """Whether an operator may make a server the master, although the servers that are gone may have more.

    Args:
        said: what that server says, and what the servers in ``gone`` say.
        gone: the servers that should be gone: the master, or those for which a locked group's change of masters waits.
    """
    to_do = f"group {group.id} is unlocked by itself; look at it again"
    if not group.locked:
        to_do = f"promote {server} without force, and nothing is lost"
    answering = {one: to_do for one in gone if not isinstance(said[one], ServerFailed)}
    if not group.locked:
        answering = {one: what for one, what in answering.items() if not _succeeded(said, one, server)}
    return _best(Change.FORCED, Case(state=state, group=group, candidates=[server], said=said, answering=answering))


def _succeeded(said: Said, former: str, server: str) -> bool:
    """Whether a server has taken the former master's place by the word of somebody else."""
    ahead, behind = said[server], said[former]
    if isinstance(ahead, ServerFailed) or isinstance(behind, ServerFailed):
        return False
    return ahead.is_master and not behind.is_master and not behind.may_be_partial and ahead.stream == behind.stream


def electable(
    state: ClusterState, group: Group, leaving: Collection[str], has_failed: Callable[[str], bool]
) -> Mapping[str, Refusal]:
    """Why Sentinels must not elect a group's replicas if its master fails; without the replicas that they may elect.

    Args:
        leaving: the servers that are leaving.
        has_failed: whether a server counts as failed, so that it could not be elected.
    """
    eligible, refused = _judged(Change.SENTINEL, Case(state=state, group=group, candidates=group.replicas))
    if any(not (server in leaving or has_failed(server)) for server in eligible):
        refused |= {server: refusal for server in eligible if (refusal := leaves(leaving, server)) is not None}
    return refused


def departure(state: ClusterState, group: Group, leaver: str, said: Said) -> Refusal | None:
    """Why the group may lose data if a replica goes; None if it may go. That matters only while the master is away.

    If the replica itself does not answer, it is not known what it has. Then any other whole replica will do.

    Args:
        said: what each of the group's servers says.
    """
    ahead = said[group.servers[0]]
    if not isinstance(ahead, ServerFailed) and ahead.is_master:
        return None
    others = [server for server in group.replicas if server != leaver]
    eligible, _ = _judged(Change.DEPARTURE, Case(state=state, group=group, candidates=others, said=said, leaver=leaver))
    if eligible:
        return None
    return Refusal(
        Why.LAST_COPY,
        leaver,
        f"{group.master}, the master of group {group.id}, does not answer or is none, and no other replica is known to "
        f"have all that {leaver} has",
        "bring the master back, or promote a replica first. If this copy may be lost: "
        f"slotferry server remove {leaver}",
    )


def staying(state: ClusterState, server: str) -> Refusal | None:
    """Why a server is not made, or kept, a master by plan: it is leaving. None if it is not."""
    return leaves(leaving_servers(state), server)


def master_of_locked(
    promotion: Promotion, same: bool, successor: Replication | None, former: Replication | None
) -> str:
    """Which of the two servers of a change of masters that was broken off is the master; empty if that cannot be known.

    No proxy has written to either since the lock, so both have everything. It counts whether the successor was made the
    master.

    Args:
        same: whether the successor is the process that was chosen. **run-id**, **last-copy**: a restarted one may be a
            master by itself, with nothing.
        successor, former: what they say; None if one does not answer.
    """
    if successor is not None and successor.is_master and same:
        return promotion.server
    return "" if successor is None and former is None else promotion.former


# -- how it is decided -------------------------------------------------------------------------------------


def _first(rules: Collection[Rule], case: Case, server: str) -> Refusal | None:
    return next((refusal for rule in rules if (refusal := rule(case, server)) is not None), None)


def _judged(change: Change, case: Case) -> tuple[list[str], dict[str, Refusal]]:
    """The servers that are not refused, and why the others are."""
    found = {server: _first(RULES[change], case, server) for server in case.candidates}
    eligible = [server for server, refusal in found.items() if refusal is None]
    return eligible, {server: refusal for server, refusal in found.items() if refusal is not None}


def _best(change: Change, case: Case) -> Choice:
    eligible, refused = _judged(change, case)
    offsets = {server: answer(case, server).offset for server in eligible}
    chosen = max(eligible, key=lambda server: (offsets[server], server not in case.leaving), default=None)
    return Choice(case.group, chosen, offsets, refused)
