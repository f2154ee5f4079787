"""The rules by which :mod:`topom.masters.choice` refuses servers, and for which changes each holds.

The table there says why a rule does not hold for a change. Pure.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from slots.group import Group
from topom.cluster.state import ClusterState, Noted
from topom.reasons import Reason
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Replication
from topom.servers.whole import Refusal, Said, Why, copy_known_bad, copy_refused


class Change(StrEnum):
    """Why a group's master changes, or a replica goes; see the table."""

    PLANNED = "planned"
    FAILOVER = "failover"
    FORCED = "forced"
    SENTINEL = "sentinel"
    DEPARTURE = "departure"


@dataclass(frozen=True, slots=True)
class Outage:
    """What is known of a master that has failed, and what a failover may lose.

    Attributes:
        last: the master's place in its stream when it was last asked; None if no topom knows.
        silence: for how many seconds the master has been silent; None if this topom has asked it until it fell silent.
            If not, nobody noted what it wrote while no topom led, or while this one was cut off from it. Then its
            replica must have had a link to it.
        fail_seconds: a replica must not have heard from its master for so many seconds.
        lag_bytes: how many bytes a replica may be behind what its master had when it was last heard of.
    """

    last: Noted | None
    silence: float | None
    fail_seconds: float
    lag_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a decision is about.

    Attributes:
        state: what is stored.
        group: the group, with its present master.
        candidates: the servers that may be chosen.
        said: what these say, and what the other servers say that the change asks.
        leaving: the servers that are leaving.
        near: how many bytes a replica may be behind its master; None for any number.
        names: for each server that topom has by another name, too: why nothing is done to it.
        answering: servers that should be gone but answer, and what to do then.
        outage: what is known of the failed master, in a failover.
        leaver: the replica that goes, in a departure.
    """

    state: ClusterState
    group: Group
    candidates: Collection[str]
    said: Said = field(default_factory=dict)
    leaving: Collection[str] = ()
    near: int | None = None
    names: Mapping[str, Reason | None] = field(default_factory=dict)
    answering: Mapping[str, str] = field(default_factory=dict)
    outage: Outage | None = None
    leaver: str = ""


Rule = Callable[[Case, str], Refusal | None]
"""Gives why a server is refused; None if it is not."""


def answer(case: Case, server: str) -> Replication:
    """What a server says; only for a server that is known to have answered."""
    said = case.said[server]
    assert isinstance(said, Replication)
    return said


def _outage(case: Case) -> Outage:
    assert case.outage is not None
    return case.outage


def leaves(leaving: Collection[str], server: str) -> Refusal | None:
    """Why a server is not made a master: it is leaving. None if it is not leaving."""
    if server not in leaving:
        return None
    return Refusal(
        Why.LEAVING,
        server,
        f"{server} is on its way out, or its node is, and is made no master",
        f"choose another server, or have it stay: slotferry server drain {server} --cancel, or slotferry node "
        "drain NODE --cancel",
    )


def _leaves(case: Case, server: str) -> Refusal | None:
    return leaves(case.leaving, server)


def _has_two_names(case: Case, server: str) -> Refusal | None:
    """**run-id**: it is not known which role such a server should have."""
    known = case.names.get(server)
    return None if known is None else Refusal(Why.TWO_NAMES, server, known.what, known.to_do)


def _is_known_bad(case: Case, server: str) -> Refusal | None:
    return copy_known_bad(case.state, server)


def _is_known_bad_for_good(case: Case, server: str) -> Refusal | None:
    """As :func:`_is_known_bad`, while there is no master to compare the copy with, or to fill it."""
    refusal = copy_known_bad(case.state, server)
    if refusal is None:
        return None
    force = "promote one with --force, if that is the best there is"
    return replace(refusal, to_do="bring the master back" if refusal.kind is Why.ANEW else force)


def _is_no_whole_copy(case: Case, server: str) -> Refusal | None:
    master = case.group.servers[0]
    return copy_refused(server, master, case.said[master], case.said[server], case.near)


def _has_another_master(case: Case, server: str) -> Refusal | None:
    """**epochs**: what is known of a master says nothing of the next one."""
    group = case.group
    if case.state.table.master_of(group.id) == group.master:
        return None
    return Refusal(
        Why.MASTER_CHANGED, group.servers[0], f"{group.master} is not the master of group {group.id} any more"
    )


def _has_a_master(case: Case, server: str) -> Refusal | None:
    for one, to_do in case.answering.items():
        return Refusal(Why.MASTER_ANSWERS, one, f"{one} answers", to_do)
    return None


def _is_silent(case: Case, server: str) -> Refusal | None:
    said = case.said[server]
    return Refusal(Why.SILENT, server, said.what, said.to_do) if isinstance(said, ServerFailed) else None


def _joins(case: Case, server: str) -> Refusal | None:
    if server not in case.state.joining:
        return None
    return Refusal(
        Why.JOINING,
        server,
        f"{server} joins its group and was not seen whole since, so it may hold nothing, or old data",
        "bring the master back. If it is gone for good and this is to be its successor all the same, take the group's "
        "slots offline and assign them to a new group with this server",
    )


def _joins_unseen(case: Case, server: str) -> Refusal | None:
    """A server that was never seen whole may hold a part, unless its stream was just seen to be the master's."""
    if _outage(case).silence is None or answer(case, server).link_up:
        return None
    return _joins(case, server)


def _was_never_whole(case: Case, server: str) -> Refusal | None:
    """A server that joins again was whole before."""
    entry = case.state.joining.get(server)
    return None if entry is None or entry.again else _joins(case, server)


def _is_told_again(case: Case, server: str) -> Refusal | None:
    """A server that says that it is a master was not told to follow since its start; it may be told soon."""
    said = answer(case, server)
    if said.is_master or not (said.filling or server in case.state.joining):
        return None
    return Refusal(Why.FILLING, server, f"{server} was told to follow its master again, and was not seen whole since")


def _hears_the_master(case: Case, server: str) -> Refusal | None:
    """Any server that hears the master is a witness, even one that is refused itself.

    A server that follows another master hears that one. If it follows in the master's stream of writes, it may know the
    master by another name, or follow through another replica.
    """
    master, last = case.group.servers[0], _outage(case).last
    for one, said in case.said.items():
        if isinstance(said, ServerFailed) or not said.link_up:
            continue
        if not said.follows(master) and last is not None and said.stream != last.stream:
            continue
        # If a server's clock was set back and it has heard nothing since, it says a number below 0.
        if 0 <= said.silent_seconds < _outage(case).fail_seconds:
            return Refusal(Why.MASTER_HEARD, one, f"{one} still hears from {case.group.master}")
    return None


def _is_a_master(case: Case, server: str) -> Refusal | None:
    if not answer(case, server).is_master:
        return None
    return Refusal(Why.IS_MASTER, server, f"{server} is a master itself, not a replica")


def _may_be_partial(case: Case, server: str) -> Refusal | None:
    if not answer(case, server).may_be_partial:
        return None
    what = f"{server} is being given a copy, or was cut off amid one, so that it may hold a part"
    return Refusal(Why.PARTIAL, server, what)


def _is_in_the_dark(case: Case, server: str) -> Refusal | None:
    if _outage(case).last is not None:
        return None
    master = case.group.servers[0]
    what = f"no topom knows how far {master} was, so nobody knows what its replicas lack"
    return Refusal(Why.MASTER_UNKNOWN, master, what, "promote the best one with --force")


def _is_in_another_stream(case: Case, server: str) -> Refusal | None:
    last = _outage(case).last
    if last is None or answer(case, server).stream == last.stream:
        return None
    what = f"{server} does not hold what {case.group.master} had, for it is in another stream of writes"
    return Refusal(Why.OTHER_STREAM, server, what, "promote one with --force")


def _is_too_far_behind(case: Case, server: str) -> Refusal | None:
    outage = _outage(case)
    behind = (outage.last.offset if outage.last is not None else 0) - answer(case, server).offset
    if behind <= outage.lag_bytes:
        return None
    what = f"{server}, the best replica, is {behind} bytes behind what its master had"
    return Refusal(Why.BEHIND, server, what, "promote it with --force")


def _lost_its_link(case: Case, server: str) -> Refusal | None:
    outage = _outage(case)
    down = answer(case, server).down_seconds
    if outage.silence is None or down <= outage.silence + outage.fail_seconds:
        return None
    return Refusal(
        Why.LINK_LOST,
        server,
        f"{server}, the best replica, lost its link {down - outage.silence:.0f} s before {case.group.master} fell "
        "silent, and no topom saw what that wrote since",
        "promote it with --force",
    )


def _has_other_data(case: Case, server: str) -> Refusal | None:
    mine = case.said[case.leaver]
    if isinstance(mine, ServerFailed) or answer(case, server).stream == mine.stream:
        return None
    return Refusal(Why.OTHER_STREAM, server, f"{server} is in another stream of writes than {case.leaver}")


def _has_less(case: Case, server: str) -> Refusal | None:
    mine = case.said[case.leaver]
    if isinstance(mine, ServerFailed) or answer(case, server).offset >= mine.offset:
        return None
    return Refusal(Why.BEHIND, server, f"{server} has less than {case.leaver}")


RULES: Mapping[Change, tuple[Rule, ...]] = {
    Change.PLANNED: (_leaves, _has_two_names, _is_known_bad, _is_no_whole_copy),
    Change.FAILOVER: (
        _has_another_master,
        _has_a_master,
        _is_silent,
        _joins_unseen,
        _hears_the_master,
        _is_known_bad_for_good,
        _is_a_master,
        _may_be_partial,
        _is_in_the_dark,
        _is_in_another_stream,
    ),
    Change.FORCED: (_was_never_whole, _has_a_master, _is_silent, _is_told_again),
    Change.SENTINEL: (_joins, _is_known_bad),
    Change.DEPARTURE: (_joins, _is_known_bad, _is_silent, _is_a_master, _may_be_partial, _has_other_data, _has_less),
}
"""They are asked in this order; the first one that refuses gives the reason."""
OF_THE_BEST: tuple[Rule, ...] = (_is_too_far_behind, _lost_its_link)
"""A failover asks these of the replica that has most."""
