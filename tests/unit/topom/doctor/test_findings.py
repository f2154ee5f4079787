import re
from pathlib import Path

from topom.doctor.examining import RULES
from topom.doctor.findings import Finding, Rule, Severity

RULE = Rule("no-disk", Severity.WARNING, "{free} left of {most_bytes}", "all stops", "df -h {folder}")


def test_a_finding_has_what_differs() -> None:
    found = RULE.of("topom", free="{x}", most_bytes=3, folder="/a")
    assert found == Finding("no-disk", Severity.WARNING, "topom", "{x} left of 3", "all stops", "df -h /a")


def test_in_general_what_differs_is_in_capitals() -> None:
    assert RULE.in_general() == ("FREE left of MOST-BYTES", "all stops", "df -h FOLDER")


def test_severities_have_an_order() -> None:
    assert [severity.rank for severity in (Severity.CRITICAL, Severity.WARNING, Severity.NOTE)] == [0, 1, 2]


def test_every_rule_has_a_name_of_its_own_and_says_what_to_do() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.seen and rule.harm and rule.remedy for rule in RULES)
    assert not [text for rule in RULES for text in (rule.seen, rule.harm, rule.remedy) if text.endswith(".")]


def test_every_page_that_a_rule_names_is_there() -> None:
    root = Path(__file__).parents[4]
    named = {page for rule in RULES for page in re.findall(r"docs/[a-z-]+\.md", " ".join(rule.in_general()))}
    assert len(named) > 3
    assert [page for page in named if not (root / page).exists()] == []
