"""How far a copy is, by what its server and its master say."""

from dataclasses import replace

import pytest

from topom.copies.deciding import FOREIGN_SECONDS, Decision, Verdict, decide, is_foreign
from topom.copies.wanted import Wanted
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication

COPY = Wanted(server="r:1", master="m:1", group=1, told_as=As.NEW)
MEMBER = replace(COPY, told_as=As.MEMBER, known=True, directly=True)
AHEAD = Reading(Replication(True, "stream", 100), "run of m", 5)
WHOLE = Replication(False, "stream", 90, ("m", 1), link_up=True)
FILLED = Replication(False, "", 0, ("m", 1), filling=True)
ALONE = Replication(True, "own", 7)
ELSEWHERE = Replication(False, "other", 7, ("x", 1), link_up=True)
ALIAS = replace(WHOLE, following=("alias", 1))
SILENT = ServerFailed("r:1 does not answer")


def how_far(copy: Wanted, mine: Replication, seconds: float = 0.0, run_id: str = "run of r") -> Decision:
    return decide(copy, AHEAD, Reading(mine, run_id, 5), seconds)


@pytest.mark.parametrize(
    ("copy", "said", "verdict"),
    [
        (COPY, WHOLE, Verdict.WHOLE),
        (COPY, ALIAS, Verdict.WHOLE),
        (MEMBER, ALIAS, Verdict.TELL),  # the table's name for the master may lead to another server tomorrow
        (COPY, FILLED, Verdict.FILLED),
        (COPY, replace(WHOLE, link_up=False), Verdict.FILLED),
        (replace(COPY, near=10), WHOLE, Verdict.WHOLE),
        (replace(COPY, near=9), WHOLE, Verdict.FILLED),
        (COPY, ALONE, Verdict.TELL),
        (COPY, ELSEWHERE, Verdict.TELL),
        (replace(COPY, patient=True), ELSEWHERE, Verdict.WAITS),
        (replace(COPY, patient=True), replace(FILLED, following=("x", 1)), Verdict.FILLED),
        (replace(COPY, patient=True), ALONE, Verdict.TELL),
        (replace(MEMBER, also_a_master=False), ALONE, Verdict.OTHERS),
        (replace(MEMBER, also_a_master=False), ELSEWHERE, Verdict.TELL),
    ],
)
def test_how_far_a_copy_is(copy: Wanted, said: Replication, verdict: Verdict) -> None:
    decision = how_far(copy, said)
    assert decision.verdict is verdict
    assert (decision.why is not None) is (verdict in (Verdict.FILLED, Verdict.WAITS))


def test_patience_ends() -> None:
    patient = replace(COPY, patient=True)
    assert how_far(patient, ELSEWHERE, FOREIGN_SECONDS - 0.1).verdict is Verdict.WAITS
    assert how_far(patient, ELSEWHERE, FOREIGN_SECONDS).verdict is Verdict.TELL
    assert is_foreign(ELSEWHERE, "m:1")
    assert not any(is_foreign(one, "m:1") for one in (WHOLE, FILLED, ALONE, replace(FILLED, following=("x", 1))))


def test_a_server_that_is_filled_anew_is_whole_only_as_the_process_that_was_told() -> None:
    anew = replace(COPY, anew=True)
    assert how_far(anew, WHOLE).verdict is Verdict.TELL
    assert how_far(replace(anew, told="run of r"), WHOLE).verdict is Verdict.WHOLE
    assert how_far(replace(anew, told="run of r"), WHOLE, run_id="a later one").verdict is Verdict.TELL


def test_nothing_is_decided_of_servers_that_do_not_answer_or_while_the_master_follows() -> None:
    mine = Reading(ALONE, "run of r", 5)
    assert decide(COPY, AHEAD, SILENT, 0.0) == Decision(Verdict.WAITS, SILENT)
    assert decide(COPY, SILENT, mine, 0.0) == Decision(Verdict.WAITS, SILENT)
    follower = replace(AHEAD, replication=WHOLE)
    for copy in (COPY, MEMBER, replace(COPY, anew=True)):
        decision = decide(copy, follower, mine, 99.0)
        assert decision.verdict is Verdict.WAITS
        assert "is a replica itself" in str(decision.why)
