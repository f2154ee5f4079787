"""``slotferry slot`` and ``slotferry plan``."""

import json
import zlib
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from slotferry.main import app

runner = CliRunner()
DOCUMENT = {
    "groups": [{"id": 1, "servers": ["h:1"]}, {"id": 2, "servers": ["h:2"]}],
    "slots": [{"id": number, "group_id": 1, "action": {}} for number in range(3)] + [{"id": 3, "group_id": 0}],
}


def test_slots_of_keys_by_every_function() -> None:
    result = runner.invoke(app, ["slot", "of", "user:{42}:name", "plain", "-o", "json"])
    assert result.exit_code == 0
    found = {(entry["key"], entry["function"]): (entry["tag"], entry["slot"]) for entry in json.loads(result.stdout)}
    assert len(found) == 8
    assert found["user:{42}:name", "crc32"] == ("42", zlib.crc32(b"42") % 1024)
    assert found["plain", "crc32"] == ("plain", zlib.crc32(b"plain") % 1024)


def test_slots_as_a_table_of_another_number_of_slots() -> None:
    result = runner.invoke(app, ["slot", "of", "plain", "--slots", "16384"])
    assert result.exit_code == 0
    assert str(zlib.crc32(b"plain") % 16384) in result.stdout


def test_a_number_of_slots_that_is_none() -> None:
    result = runner.invoke(app, ["slot", "of", "plain", "--slots", "1000"])
    assert result.exit_code == 2
    assert "power of two" in result.stderr


def test_a_plan_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    source = tmp_path / "input.json"
    source.write_text(json.dumps(DOCUMENT))
    expected = {"moves": [{"slot": 2, "from": 1, "to": 2}, {"slot": 3, "from": 0, "to": 2}]}
    for arguments, text in ((["--input", str(source)], None), (["--input", "-"], json.dumps(DOCUMENT))):
        result = runner.invoke(app, ["plan", "--policy", "codis", *arguments], input=text)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == expected
        assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "policy", "expected"),
    [
        ("{", "codis", "is not JSON"),
        ("[]", "codis", "groups"),
        ('{"groups":[],"slots":[]}', "codis", "no slots"),
        (json.dumps(DOCUMENT), "best", "best"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(text: str, policy: str, expected: str) -> None:
    result = runner.invoke(app, ["plan", "--policy", policy, "--input", "-"], input=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert expected in result.stderr


def test_a_file_that_is_not_there() -> None:
    result = runner.invoke(app, ["plan", "--input", "/nowhere/input.json"])
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def plan_of(document: object, *arguments: str) -> Result:
    return runner.invoke(app, ["plan", *arguments, "--input", "-"], input=json.dumps(document))


def test_a_plan_by_bytes_is_one_line_with_reasons_and_cost() -> None:
    result = plan_of({**DOCUMENT, "sizes": {"0": 500, "1": 300, "2": 200}}, "--policy", "bytes")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert set(answer) == {"moves", "reasons", "cost", "groups"}
    assert answer["moves"] == [{"slot": 0, "from": 1, "to": 2}, {"slot": 3, "from": 0, "to": 2}]
    assert answer["reasons"] == []
    assert answer["cost"]["total"] == {"slots": 2, "bytes": 500, "keys": None}


def test_what_is_asked_of_a_plan() -> None:
    document = {**DOCUMENT, "sizes": {"0": 500, "1": 300, "2": 200, "3": 1}}

    def moves(*arguments: str) -> list[int]:
        result = plan_of(document, "--policy", "bytes", *arguments)
        assert result.exit_code == 0, result.output
        return [move["slot"] for move in json.loads(result.stdout)["moves"]]

    assert moves("--most-slots", "1") == [3]
    assert moves("--most-bytes", "499") == [3]
    assert moves("--drain", "1") == [0, 1, 2, 3]
    assert moves("--tolerance", "1") == [3]
    for arguments, expected in (
        (("--drain", "7"), "there is no such group"),
        (("--drain", "1", "--drain", "2"), "no group is left"),
        (("--tolerance", "5"), "0.05 is 5%"),
        (("--tolerance", "nan"), "0.05 is 5%"),
    ):
        result = plan_of(document, "--policy", "bytes", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert expected in result.stderr
    assert plan_of(document, "--most-slots", "-1").exit_code == 2


def test_a_plan_by_number_tells_its_reasons_beside_the_answer() -> None:
    result = plan_of(DOCUMENT, "--policy", "codis", "--most-slots", "1")
    assert json.loads(result.stdout) == {"moves": [{"slot": 3, "from": 0, "to": 2}]}
    assert "the limit of 1 slot leaves out 1 move" in result.stderr


PLACEMENT = {"replicas": 2, "nodes": ["n0", "n1", "n2"], "table": [], "slots": 9}


def test_a_placement_starts_afresh_and_is_then_at_rest(tmp_path: Path) -> None:
    source = tmp_path / "input.json"
    source.write_text(json.dumps(PLACEMENT))
    result = runner.invoke(app, ["plan", "--policy", "placement", "--input", str(source)])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert list(answer) == ["table", "rounds", "promotions", "leader_copies", "follower_copies"]
    assert (answer["rounds"], answer["leader_copies"], answer["follower_copies"]) == (1, 9, 9)
    again = runner.invoke(
        app, ["plan", "--policy", "placement", "--input", "-"], input=json.dumps(PLACEMENT | {"table": answer["table"]})
    )
    counts = {"rounds": 0, "promotions": 0, "leader_copies": 0, "follower_copies": 0}
    assert json.loads(again.stdout) == {"table": answer["table"]} | counts


def test_limits_of_a_placement() -> None:
    table = [{"slot": slot, "leader": "n0", "followers": ["n1"]} for slot in range(30)]
    text = json.dumps({"replicas": 2, "nodes": ["n0", "n1", "n2"], "table": table})
    rounds = []
    for options in ([], ["--max-follower-changes", "2"], ["--max-leader-changes", "1"], ["--watermark", "100"]):
        result = runner.invoke(app, ["plan", "--policy", "placement", "--input", "-", *options], input=text)
        assert result.exit_code == 0, result.output
        rounds.append(json.loads(result.stdout)["rounds"])
    usual, few_followers, few_leaders, wide = rounds
    assert few_followers > usual
    assert few_leaders > usual
    assert wide < usual


def test_strict_watermarks_even_few_slots_out() -> None:
    pairs = (("n0", "n1"), ("n0", "n2"), ("n1", "n2"))
    table = [{"slot": slot, "leader": leader, "followers": [other]} for slot, (leader, other) in enumerate(pairs)]
    text = json.dumps({"replicas": 2, "nodes": ["n0", "n1", "n2"], "table": table})
    leaders = []
    for options in ([], ["--strict"]):
        result = runner.invoke(app, ["plan", "--policy", "placement", "--input", "-", *options], input=text)
        leaders.append(sorted(entry["leader"] for entry in json.loads(result.stdout)["table"]))
    assert leaders == [["n0", "n0", "n1"], ["n0", "n1", "n2"]]


def test_a_node_named_twice_in_a_slot_has_one_copy_and_is_said() -> None:
    table = [{"slot": 0, "leader": "n0", "followers": ["n1", "n0"]}]
    text = json.dumps({"replicas": 2, "nodes": ["n0", "n1"], "table": table})
    result = runner.invoke(app, ["plan", "--policy", "placement", "--input", "-"], input=text)
    assert json.loads(result.stdout)["table"] == [{"slot": 0, "leader": "n0", "followers": ["n1"]}]
    assert "slot 0 names node n0 2 times" in result.stderr


@pytest.mark.parametrize(
    ("document", "arguments", "expected"),
    [
        (PLACEMENT | {"nodes": []}, [], "there is no node"),
        (PLACEMENT | {"nodes": ["n0", "n0"]}, [], "more than once"),
        (PLACEMENT, ["--watermark", "-1"], "watermark"),
        (PLACEMENT, ["--drain", "1"], "--drain says nothing to the policy placement"),
        (PLACEMENT, ["--policy", "codis", "--watermark", "5"], "for the policy placement only"),
        (PLACEMENT, ["--policy", "codis", "--strict"], "for the policy placement only"),
    ],
)
def test_a_placement_that_cannot_be_made(document: object, arguments: list[str], expected: str) -> None:
    result = runner.invoke(
        app, ["plan", "--policy", "placement", "--input", "-", *arguments], input=json.dumps(document)
    )
    assert result.exit_code == 1
    assert expected in result.stderr
    assert result.stdout == ""


def test_a_fleet_is_simulated_by_load_and_by_number(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps({"groups": 4, "slots": 64, "hours": 1.5, "largest": 0.2}))
    result = runner.invoke(app, ["plan", "--simulate", str(fleet)])
    assert result.exit_code == 0, result.output
    assert "1.5 hours, 4 groups, 64 slots" in result.output
    assert "by load, by itself" in result.output
    assert "codis" in result.output
    assert "nobody who keeps every group under 1.15 moves fewer than" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--simulate", "{file}"], "has no 'group'"),
        (["--simulate", "{file}", "--input", "{file}"], "--input says nothing to a simulation"),
        ([], "--input FILE, or --simulate FILE"),
    ],
)
def test_what_cannot_be_simulated_is_said(tmp_path: Path, arguments: list[str], says: str) -> None:
    fleet = tmp_path / "fleet.json"
    fleet.write_text('{"group": 1}')
    result = runner.invoke(app, ["plan", *(one.format(file=fleet) for one in arguments)])
    assert result.exit_code == 1
    assert says in result.output
