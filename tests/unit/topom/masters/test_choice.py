"""Which server may become a group's master: each rule, for each change that it holds for, and which one is chosen.

If a rule is taken away, the decision has to change: the tests try that for each rule.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster.state import ClusterState, Differs, Joining, Leaving, Noted, Promotion, leaving_servers
from topom.errors import NotReady
from topom.masters import choice
from topom.masters.choice import NotWhole, ServerLeaving, error_of
from topom.masters.choicerules import OF_THE_BEST, RULES, Case, Change, Outage
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import LastCopy, ServerFailed
from topom.servers.readings import Replication
from topom.servers.whole import Refusal, Why, copies_refused

MASTER, FIRST, SECOND = "m:1", "r:1", "r:2"
GROUP = Group(1, (MASTER, FIRST, SECOND))
AHEAD = Replication(True, "stream", 1000)
DOWN = ServerFailed("no answer within 1 s")
LAST = Noted(MASTER, "stream", 1000)

Refused = Mapping[str, Refusal]


def state(group: Group = GROUP, leaving: tuple[str, ...] = (), **stored: Any) -> ClusterState:
    """A state in which these servers leave, with whatever else is stored."""
    table = SlotTable.empty(4).changed(1, groups=[group])
    entries = [Leaving("server", server, "", 1.0) for server in leaving]
    return ClusterState(2, "w", PRODUCT, table, leaving={entry.key: entry for entry in entries}, **stored)


def joins(server: str = FIRST, **more: bool) -> dict[str, Joining]:
    return {server: Joining(server, **more)}


def differs(server: str = FIRST) -> dict[str, Differs]:
    return {server: Differs(server, 1, 7)}


def follower(offset: int = 990, **more: Any) -> Replication:
    """A whole replica that hears from its master."""
    return replace(Replication(False, "stream", offset, ("m", 1), link_up=True), **more)


def orphan(offset: int = 990, **more: Any) -> Replication:
    """A replica whose master is gone."""
    return replace(follower(offset, link_up=False), **more)


def plan(
    first: Replication | ServerFailed | None = None,
    master: Replication | ServerFailed = AHEAD,
    near: int | None = None,
    name: str = "",
    **stored: Any,
) -> Refused:
    said = {MASTER: master, FIRST: first or follower()}
    return choice.planned(
        state(**stored), GROUP, said, near, {FIRST: Reason(Kind.OPERATOR, name) if name else None}
    ).refused


def fail_over(
    first: Replication | ServerFailed | None = None,
    second: Replication | ServerFailed = DOWN,
    last: Noted | None = LAST,
    silence: float | None = 20.0,
    has_failed: bool = True,
    group: Group = GROUP,
    **stored: Any,
) -> choice.Choice:
    said = {FIRST: first or orphan(), SECOND: second}
    return choice.failover(state(**stored), group, said, Outage(last, silence, 5.0, 100), has_failed)


def force(
    first: Replication | ServerFailed | None = None,
    master: Replication | ServerFailed = DOWN,
    group: Group = GROUP,
    **stored: Any,
) -> Refused:
    said = {FIRST: first or orphan(), MASTER: master}
    return choice.forced(state(**stored), group, FIRST, said, [MASTER]).refused


def elect(failed: tuple[str, ...] = (), **stored: Any) -> Refused:
    held = state(**stored)
    return choice.electable(held, GROUP, leaving_servers(held), failed.__contains__)


def depart(first: Replication | ServerFailed | None = None, **stored: Any) -> Refused:
    """The other replica goes."""
    said = {MASTER: DOWN, FIRST: first or orphan(), SECOND: orphan()}
    case = Case(state=state(**stored), group=GROUP, candidates=[FIRST], said=said, leaver=SECOND)
    return choice._judged(Change.DEPARTURE, case)[1]


class Doubt(NamedTuple):
    """A case in which a rule refuses the first replica."""

    change: Change
    rule: str
    why: Why
    refused: Callable[[], Refused]


P, F, A, S, D = Change.PLANNED, Change.FAILOVER, Change.FORCED, Change.SENTINEL, Change.DEPARTURE
STALE = Group(1, ("x:1", FIRST, SECOND))

DOUBTS = [
    Doubt(P, "_leaves", Why.LEAVING, lambda: plan(leaving=(FIRST,))),
    Doubt(P, "_has_two_names", Why.TWO_NAMES, lambda: plan(name="r:1 and x:1 are one server")),
    Doubt(P, "_is_known_bad", Why.ANEW, lambda: plan(joining=joins(wipe=True, anew=True))),
    Doubt(P, "_is_known_bad", Why.DIFFERS, lambda: plan(differing=differs())),
    Doubt(P, "_is_no_whole_copy", Why.SILENT, lambda: plan(DOWN)),
    Doubt(P, "_is_no_whole_copy", Why.IS_MASTER, lambda: plan(AHEAD)),
    Doubt(P, "_is_no_whole_copy", Why.NO_LINK, lambda: plan(orphan())),
    Doubt(P, "_is_no_whole_copy", Why.NO_LINK, lambda: plan(follower(filling=True))),
    Doubt(P, "_is_no_whole_copy", Why.OTHER_STREAM, lambda: plan(follower(stream="other"))),
    Doubt(P, "_is_no_whole_copy", Why.BEHIND, lambda: plan(follower(989), near=10)),
    Doubt(P, "_is_no_whole_copy", Why.MASTER_SILENT, lambda: plan(master=DOWN)),
    Doubt(P, "_is_no_whole_copy", Why.MASTER_FOLLOWS, lambda: plan(master=follower())),
    Doubt(F, "_has_another_master", Why.MASTER_CHANGED, lambda: fail_over(group=STALE).refused),
    Doubt(F, "_has_a_master", Why.MASTER_ANSWERS, lambda: fail_over(has_failed=False).refused),
    Doubt(F, "_is_silent", Why.SILENT, lambda: fail_over(DOWN).refused),
    Doubt(F, "_joins_unseen", Why.JOINING, lambda: fail_over(joining=joins()).refused),
    Doubt(F, "_hears_the_master", Why.MASTER_HEARD, lambda: fail_over(follower(silent_seconds=4)).refused),
    Doubt(F, "_is_known_bad_for_good", Why.DIFFERS, lambda: fail_over(differing=differs()).refused),
    Doubt(
        F,
        "_is_known_bad_for_good",
        Why.ANEW,
        lambda: fail_over(joining=joins(wipe=True, anew=True), silence=None).refused,
    ),
    Doubt(F, "_is_a_master", Why.IS_MASTER, lambda: fail_over(AHEAD).refused),
    Doubt(F, "_may_be_partial", Why.PARTIAL, lambda: fail_over(orphan(filling=True)).refused),
    Doubt(F, "_may_be_partial", Why.PARTIAL, lambda: fail_over(orphan(1), last=replace(LAST, offset=50)).refused),
    Doubt(F, "_is_in_the_dark", Why.MASTER_UNKNOWN, lambda: fail_over(last=None).refused),
    Doubt(F, "_is_in_another_stream", Why.OTHER_STREAM, lambda: fail_over(orphan(5000, stream="other")).refused),
    Doubt(F, "_is_too_far_behind", Why.BEHIND, lambda: fail_over(orphan(899)).refused),
    Doubt(F, "_lost_its_link", Why.LINK_LOST, lambda: fail_over(orphan(down_seconds=26)).refused),
    Doubt(A, "_was_never_whole", Why.JOINING, lambda: force(joining=joins())),
    Doubt(A, "_has_a_master", Why.MASTER_ANSWERS, lambda: force(master=AHEAD)),
    Doubt(A, "_is_silent", Why.SILENT, lambda: force(DOWN)),
    Doubt(A, "_is_told_again", Why.FILLING, lambda: force(orphan(filling=True))),
    Doubt(A, "_is_told_again", Why.FILLING, lambda: force(joining=joins(again=True))),
    Doubt(S, "_joins", Why.JOINING, lambda: elect(joining=joins())),
    Doubt(S, "_is_known_bad", Why.DIFFERS, lambda: elect(differing=differs())),
    Doubt(S, "", Why.LEAVING, lambda: elect(leaving=(FIRST,))),
    Doubt(D, "_joins", Why.JOINING, lambda: depart(joining=joins())),
    Doubt(D, "_is_known_bad", Why.DIFFERS, lambda: depart(differing=differs())),
    Doubt(D, "_is_silent", Why.SILENT, lambda: depart(DOWN)),
    Doubt(D, "_is_a_master", Why.IS_MASTER, lambda: depart(replace(AHEAD, offset=990))),
    Doubt(D, "_may_be_partial", Why.PARTIAL, lambda: depart(orphan(filling=True))),
    Doubt(D, "_has_other_data", Why.OTHER_STREAM, lambda: depart(orphan(stream="other"))),
    Doubt(D, "_has_less", Why.BEHIND, lambda: depart(orphan(989))),
]


def rules_of(change: Change) -> set[str]:
    return {rule.__name__ for rule in (*RULES[change], *(OF_THE_BEST if change is F else ()))}


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: f"{doubt.change}-{doubt.why}")
def test_who_is_refused(doubt: Doubt, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doubt.refused()[FIRST].kind is doubt.why
    if not doubt.rule:
        return
    # When: there is no such rule.
    left = tuple(rule for rule in RULES[doubt.change] if rule.__name__ != doubt.rule)
    monkeypatch.setitem(RULES, doubt.change, left)  # type: ignore[arg-type]
    monkeypatch.setattr(choice, "OF_THE_BEST", tuple(rule for rule in OF_THE_BEST if rule.__name__ != doubt.rule))
    try:
        found = doubt.refused().get(FIRST)
    except (AssertionError, TypeError):
        return  # what a later rule relies on is not true
    assert found is None or found.kind is not doubt.why


@pytest.mark.parametrize("change", Change)
def test_each_rule_is_tried(change: Change) -> None:
    assert rules_of(change) == {doubt.rule for doubt in DOUBTS if doubt.change is change} - {""}


def test_whom_nothing_speaks_against() -> None:
    for refused in (plan(), plan(follower(0)), plan(follower(990), near=10), force(), elect(), depart()):
        assert refused == {}
    assert fail_over().chosen == FIRST
    # For a planned change a whole server is not joining, whatever is stored; a server that joins again was whole.
    assert plan(joining=joins()) == {}
    assert force(AHEAD, joining=joins(again=True)) == {}, "it was not told to follow since it was started"
    # A failover relies on the link, or on this topom having asked the master itself up to its end.
    assert fail_over(follower(silent_seconds=5), joining=joins()).chosen == FIRST
    assert fail_over(joining=joins(), silence=None).chosen == FIRST
    assert fail_over(orphan(down_seconds=26), silence=None).chosen == FIRST


def test_the_table_says_what_is_decided() -> None:
    """given the table in the docstring of the module, with a note wherever a rule does not hold."""
    text = choice.__doc__ or ""
    head, body = re.split(r"^=[= ]+\n", text, flags=re.MULTILINE)[1:3]
    changes = [Change(name) for name in head.split()[1:]]
    assert changes == list(Change)
    table: dict[tuple[Why, Change], str] = {}
    for line in body.splitlines():
        why, *cells = re.split(r"  +", line)
        table |= {(Why(why), change): cell for change, cell in zip(changes, cells, strict=True)}
    assert {why for why, _ in table} == set(Why) - {Why.LAST_COPY, Why.NOBODY}
    holds = {key for key, cell in table.items() if cell.startswith("yes")}
    assert holds == {(doubt.why, doubt.change) for doubt in DOUBTS}
    notes = set(re.findall(r"^(\d+)\. ", text, flags=re.MULTILINE))
    assert {number for cell in table.values() for number in re.findall(r"\((\d+)\)", cell)} == notes
    assert all(cell == "yes" or re.search(r"\(\d+\)", cell) for cell in table.values())


# -- who is chosen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "leaving", "chosen"),
    [
        (orphan(990), orphan(995), (), SECOND),
        (orphan(995), orphan(995), (), FIRST),
        (orphan(900), DOWN, (), FIRST),
        # Of equals, a server on its way out is not chosen. If it has more, it has what no other server has.
        (orphan(995), orphan(995), (FIRST,), SECOND),
        (orphan(996), orphan(995), (FIRST,), FIRST),
        # A topom that has just begun to lead goes by what was noted before, and by the link.
        (orphan(900, down_seconds=25), DOWN, (), FIRST),
        # A silent link is not a sign of life, and neither is the link of a server whose clock was set back by an hour.
        (follower(999, silent_seconds=5), DOWN, (), FIRST),
        (follower(999, silent_seconds=-3595), DOWN, (), FIRST),
        # It has all but 50 bytes, and the other one was cut off amid a full copy.
        (orphan(1), orphan(950), (), SECOND),
    ],
)
def test_the_replica_with_the_most_data_takes_over(
    first: Replication, second: Replication | ServerFailed, leaving: tuple[str, ...], chosen: str
) -> None:
    found = fail_over(first, second, leaving=leaving)
    assert found.chosen == chosen == found.require()
    assert found.eligible.keys() | found.refused.keys() == {FIRST, SECOND}


def test_where_the_best_will_not_do_a_lesser_one_is_not_taken() -> None:
    found = fail_over(orphan(990, down_seconds=60), orphan(980))
    assert found.chosen is None
    assert found.eligible == {SECOND: 980}
    with pytest.raises(NotReady, match="r:1, the best replica, lost its link 40 s before m:1 fell silent"):
        found.require()


def test_why_the_best_is_refused_is_why_nobody_is_chosen_also_beside_others_that_are() -> None:
    group = Group(1, (MASTER, FIRST, SECOND, "r:3"))
    said = {FIRST: DOWN, SECOND: orphan(990, down_seconds=60), "r:3": orphan(980)}
    found = choice.failover(state(group), group, said, Outage(LAST, 20.0, 5.0, 100), True)
    assert (found.chosen, found.eligible) == (None, {"r:3": 980})
    assert (found.refusal.kind, found.refusal.server) == (Why.LINK_LOST, SECOND)


def test_a_replica_that_differs_is_not_chosen_whatever_it_has_and_is_a_witness() -> None:
    assert fail_over(orphan(990), orphan(980), differing=differs()).chosen == SECOND
    found = fail_over(follower(990), orphan(980), differing=differs())
    assert found.refusal == Refusal(Why.MASTER_HEARD, FIRST, "r:1 still hears from m:1")
    with pytest.raises(NotReady, match="promote one with --force, if that is the best there is"):
        fail_over(orphan(), differing=differs()).require()


def test_a_server_that_hears_another_master_is_no_witness() -> None:
    """It may be new in its group, and wait to be told to follow."""
    foreign = follower(77, stream="foreign", following=("x", 1))
    assert fail_over(orphan(990), foreign).chosen == FIRST
    by_another_name = follower(990, following=("x", 1))
    assert fail_over(orphan(990), by_another_name).refusal.kind is Why.MASTER_HEARD
    assert fail_over(orphan(990), foreign, last=None).refusal.kind is Why.MASTER_HEARD, "its stream is not known"


def test_why_nobody_is_chosen() -> None:
    found = fail_over(DOWN, orphan(5, stream="other")).refusal
    assert (found.kind, found.server) == (Why.NOBODY, MASTER)
    what = "no replica of group 1 can take the place of m:1: no answer within 1 s; r:2 does not hold what m:1 had"
    assert str(found).startswith(what)
    assert str(found).endswith("; promote one with --force")
    alone = Group(1, (MASTER,))
    assert "it has none" in str(choice.failover(state(alone), alone, {}, Outage(LAST, None, 5.0, 100), True).refusal)
    # A reason that all share is said once.
    assert str(fail_over(second=orphan(), last=None).refusal).startswith("no topom knows how far m:1 was")


def test_a_planned_change_takes_the_best_that_stays() -> None:
    said = {MASTER: AHEAD, FIRST: follower(990), SECOND: follower(995)}
    assert choice.planned(state(), GROUP, said).chosen == SECOND
    assert choice.planned(state(leaving=(SECOND,)), GROUP, said).chosen == FIRST
    assert choice.planned(state(), GROUP, {MASTER: AHEAD, FIRST: follower(0)}).chosen == FIRST, "it is named"


def test_who_leaves_is_elected_only_if_nobody_else_could_be() -> None:
    assert elect(leaving=(FIRST, SECOND)) == {}
    assert elect(failed=(SECOND,), leaving=(FIRST,)) == {}
    assert elect(leaving=(FIRST,), differing=differs(SECOND)).keys() == {SECOND}
    assert elect(failed=(FIRST,), leaving=(FIRST,)).keys() == {FIRST}


@pytest.mark.parametrize(
    ("locked", "to_do"), [(False, "promote r:1 without force"), (True, "group 1 is unlocked by itself")]
)
def test_what_to_do_where_a_master_that_was_to_be_gone_answers(locked: bool, to_do: str) -> None:
    (refusal,) = force(master=follower(), group=replace(GROUP, locked=locked)).values()
    assert refusal.server == MASTER
    assert to_do in refusal.to_do


def test_a_master_that_somebody_else_has_replaced_is_not_in_the_way_of_its_successor() -> None:
    assert force(AHEAD, master=follower()) == {}
    for first, master, group in (
        (AHEAD, AHEAD, GROUP),
        (follower(), follower(), GROUP),
        (AHEAD, follower(stream="other"), GROUP),
        (AHEAD, follower(filling=True), GROUP),
        (AHEAD, follower(), replace(GROUP, locked=True)),
    ):
        (refusal,) = force(first, master, group).values()
        assert refusal.kind is Why.MASTER_ANSWERS


@pytest.mark.parametrize(
    ("said", "goes"),
    [
        ({MASTER: AHEAD, FIRST: follower(990), SECOND: DOWN}, True),
        ({FIRST: follower(990), SECOND: DOWN}, False),
        ({FIRST: follower(990), SECOND: follower(990)}, True),
        ({FIRST: follower(990), SECOND: follower(989)}, False),
        ({FIRST: follower(990), SECOND: follower(990, filling=True)}, False),
        ({FIRST: follower(990), SECOND: follower(990, stream="other")}, False),
        ({FIRST: follower(990), SECOND: AHEAD}, False),
        ({MASTER: follower(990), FIRST: follower(990), SECOND: DOWN}, False),
        ({FIRST: DOWN, SECOND: follower(1)}, True),
    ],
)
def test_the_best_copy_of_a_group_without_its_master_stays(
    said: dict[str, Replication | ServerFailed], goes: bool
) -> None:
    said = {MASTER: DOWN, **said}
    refusal = choice.departure(state(), GROUP, FIRST, said)
    assert (refusal is None) is goes
    if refusal is not None:
        with pytest.raises(LastCopy, match="slotferry server remove r:1"):
            raise error_of(refusal)
    # When: the other replica was never whole, or is known to differ.
    for stored in (state(joining=joins(SECOND)), state(differing=differs(SECOND))):
        assert (choice.departure(stored, GROUP, FIRST, said) is None) is (said[MASTER] is AHEAD)


@pytest.mark.parametrize(
    ("successor", "same", "former", "master"),
    [
        (AHEAD, True, None, FIRST),
        (AHEAD, False, None, MASTER),
        (AHEAD, False, AHEAD, MASTER),
        (follower(), True, None, MASTER),
        (None, False, follower(), MASTER),
        (None, False, None, ""),
    ],
)
def test_who_is_the_master_of_a_locked_group(
    successor: Replication | None, same: bool, former: Replication | None, master: str
) -> None:
    assert choice.master_of_locked(Promotion(FIRST, MASTER), same, successor, former) == master


# -- what is said ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "error", "told"),
    [
        (lambda: plan(leaving=(FIRST,)), ServerLeaving, "slotferry server drain r:1 --cancel"),
        (lambda: force(joining=joins()), NotWhole, "take the group's slots offline"),
        (
            lambda: plan(differing=differs()),
            NotReady,
            "differs from its master in 7 keys, as a digest check found; find",
        ),
        (lambda: plan(joining=joins(anew=True)), NotReady, "filled anew by its master; promote it when it is"),
        (lambda: fail_over(joining=joins(anew=True), silence=None).refused, NotReady, "anew.*; bring the master back"),
    ],
)
def test_as_what_a_refusal_is_raised(refused: Callable[[], Refused], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        raise error_of(refused()[FIRST])


def test_the_master_itself_may_not_be_kept_by_plan_while_it_leaves() -> None:
    assert choice.staying(state(), MASTER) is None
    refusal = choice.staying(state(leaving=(MASTER,)), MASTER)
    assert refusal is not None
    assert refusal.kind is Why.LEAVING


def test_which_copies_of_a_group_are_whole() -> None:
    said = {MASTER: AHEAD, FIRST: follower(980), SECOND: DOWN}
    found = copies_refused(state(), GROUP, said, near=10)
    assert {server: refusal and refusal.kind for server, refusal in found.items()} == {
        MASTER: None,
        FIRST: Why.BEHIND,
        SECOND: Why.SILENT,
    }
    assert copies_refused(state(), GROUP, said)[FIRST] is None
    bad = copies_refused(state(differing=differs()), GROUP, said)[FIRST]
    assert bad is not None
    assert bad.kind is Why.DIFFERS
    assert str(found[SECOND]) == "no answer within 1 s", "nothing is to be done but to wait"
    for master, why in ((DOWN, Why.MASTER_SILENT), (follower(), Why.MASTER_FOLLOWS)):
        kinds = {
            refusal and refusal.kind
            for refusal in copies_refused(state(differing=differs()), GROUP, {**said, MASTER: master}).values()
        }
        assert kinds == {why}, "nobody knows what a whole copy would have to hold"
