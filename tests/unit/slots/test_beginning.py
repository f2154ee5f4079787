"""Which copy of a key on both servers counts: the table in :mod:`slots.beginning`."""

import pytest

from slots import permits
from slots.beginning import UNKNOWN, Beginning
from slots.slot import Action
from slots.states import Course, SlotState

S, T, OTHER = "s" * 40, "t" * 40, "f" * 40
GOING = Action(SlotState.MIGRATING, 2, source_run_id=S, target_run_id=T).beginning
BACK = Action(SlotState.MIGRATING, 1, Course.BACK, source_run_id=T, target_run_id=S).beginning


@pytest.mark.parametrize(
    ("at_s", "at_t", "going", "back"),
    [(S, T, "S", "T"), (S, OTHER, "S", "S"), (OTHER, T, "T", "T"), (OTHER, OTHER, "T", "T"), (OTHER, "", "T", "T")],
)
def test_whose_copy_counts(at_s: str, at_t: str, going: str, back: str) -> None:
    assert GOING.keeps_target(at_s, at_t) is (going == "T")
    assert BACK.keeps_target(at_t, at_s) is (back == "S")


def test_what_is_not_known_is_no_evidence() -> None:
    """given a group that has had another master, its run id is unknown. It matches no process, not even one that names
    no run id."""
    for now in ("", S):
        assert UNKNOWN.keeps_target(now, T)
        assert Beginning("", S, back=True).keeps_target(now, S)
        assert not Beginning(T, "", back=True).keeps_target(T, now)
        assert not Beginning("", "", back=True).keeps_target(now, now)


def test_a_permit_names_both_processes() -> None:
    assert permits.processes_of(f"{S} {T} {'0' * 16}") == (S, T)
    assert permits.processes_of("") == ("", "")
    assert GOING.keeps_target(*permits.processes_of("")), "without a permit nothing moves"


@pytest.mark.parametrize("said", [{"run_id": S}, b"# Server\r\nredis_version:7.0.15\r\nrun_id:" + S.encode() + b"\r\n"])
def test_who_a_server_says_it_is(said: object) -> None:
    assert permits.run_id_of(said) == S
    for nonsense in (b"", b"-ERR no", 7, None, []):
        assert permits.run_id_of(nonsense) == ""
