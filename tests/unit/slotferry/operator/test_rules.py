"""``slotferry rules``: what it says of a change that topom begins."""

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from slotferry.main import app
from tests.unit.slotferry.played_topom import play_topom

RULE = {"pattern": "bull:(*):*", "database": None, "tag": None}


def state(rules: list[dict[str, Any]], change: dict[str, Any] | None) -> httpx.Response:
    return httpx.Response(200, json={"epoch": 7, "rules": rules, "change": change})


def change(stage: str, dry: bool = False) -> dict[str, Any]:
    counts = {"keys": 10, "misplaced": 0, "named": [], "reason": None}
    return {"rules": [RULE], "dry_run": dry, "stage": stage, "began_at": 5.0, **counts}


@pytest.mark.parametrize(
    ("rules", "dry", "status", "said"),
    [
        ([RULE], False, 0, "bull:(*):*"),
        ([], False, 1, "another topom leads by now, and has let the slot rules be as they were"),
        ([RULE], True, 1, "another topom leads by now"),
    ],
)
def test_another_topom_leads_amid_a_change(
    monkeypatch: pytest.MonkeyPatch, rules: list[dict[str, Any]], dry: bool, status: int, said: str
) -> None:
    """The rules that it has say how the change ended."""
    play_topom(
        monkeypatch,
        lambda request: state([], change("counting", dry)) if request.method == "POST" else state(rules, None),
    )
    arguments = ["rules", "add", "bull:(*):*", *(["--dry-run"] if dry else [])]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, said in " ".join(result.output.split())) == (status, True), result.output
