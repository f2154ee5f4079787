"""``slotferry doctor``, with a topom that is played by a function."""

import json
import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from slotferry.calls import TopomUnreachable
from slotferry.client import TopomClient
from slotferry.main import app
from topom.doctor.examining import RULES

SILENT = {"rule": "server-silent", "severity": "critical", "harm": "requests fail"}
ALONE = {"rule": "no-replica", "severity": "warning", "harm": "slots are not served"}
SMALL = {"rule": "backlog-small", "severity": "note", "harm": "it begins anew"}


def finding(of: dict[str, str], number: int) -> dict[str, str]:
    return {**of, "subject": f"server h:{number}", "seen": f"seen [{number}]", "remedy": f"remedy {number}"}


def diagnosis(*findings: dict[str, str], more: int = 0, not_asked: int = 0) -> dict[str, Any]:
    counts = {name: sum(one["severity"] == name for one in findings) for name in ("critical", "warning", "note")}
    return {
        "at": 1.0,
        "servers": 20,
        "not_asked": not_asked,
        "counts": {**counts, "warning": counts["warning"] + more},
        "more": {"no-replica": more} if more else {},
        "findings": list(findings),
    }


def said(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | Exception, *options: str) -> tuple[int, str]:
    async def doctor(_: TopomClient) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(TopomClient, "doctor", doctor)
    result = CliRunner().invoke(app, ["doctor", "--topom", "http://topom", "--token", "secret", *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0),
        ([finding(SMALL, 1)], 0),
        ([finding(ALONE, 1), finding(SMALL, 1)], 1),
        ([finding(SILENT, 1), finding(ALONE, 1)], 2),
    ],
)
def test_the_exit_status_is_that_of_the_worst(
    monkeypatch: pytest.MonkeyPatch, findings: list[dict[str, str]], status: int
) -> None:
    assert said(monkeypatch, diagnosis(*findings))[0] == status
    code, text = said(monkeypatch, diagnosis(*findings), "--output", "json")
    assert (code, json.loads(text)) == (status, diagnosis(*findings))


def test_if_nobody_can_be_asked_it_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = said(monkeypatch, TopomUnreachable("topom does not answer"))
    assert (code, text) == (2, "error: topom does not answer\n")


def test_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = said(monkeypatch, diagnosis())
    assert text == "looked at 20 servers: nothing will hurt, as far as can be seen\n"


def test_each_finding_has_its_remedy_and_each_rule_says_once_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [finding(ALONE, number) for number in range(15)]
    _, text = said(monkeypatch, diagnosis(finding(SILENT, 99), *many, more=30, not_asked=2))
    lines = text.splitlines()
    assert lines[:5] == [
        "CRITICAL server-silent: requests fail",
        "  server h:99: seen [99]",
        "    to do: remedy 99",
        "WARNING no-replica (45): slots are not served",
        "  server h:0: seen [0]",
    ]
    assert lines.count("WARNING no-replica (45): slots are not served") == 1
    assert lines[-2] == f"  and 40 more: {', '.join(f'server h:{number}' for number in range(5, 13))}, …"
    assert lines[-1] == "looked at 18 servers: 1 critical, 45 warnings"


def is_a_command(words: list[str]) -> bool:
    """Whether ``slotferry`` has this verb, with its second word if it needs one."""
    command: Any = typer.main.get_command(app)
    for word in words:
        found = getattr(command, "commands", {}).get(word)
        if found is None:
            return command.name == words[0] and not (hasattr(command, "commands") and command.no_args_is_help)
        command = found
    return not (hasattr(command, "commands") and command.no_args_is_help)


def test_every_command_of_a_remedy_is_one() -> None:
    named = [text for rule in RULES for text in re.findall(r"slotferry ([a-z]+(?: [a-z]+)?)", rule.remedy)]
    assert len(named) > 10
    assert [text for text in named if not is_a_command(text.split())] == []
    assert is_a_command(["rebalance"])
    assert not is_a_command(["digest"])
    assert not is_a_command(["slots", "move"])
