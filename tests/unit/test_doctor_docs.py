"""docs/findings.md says what the rules say."""

import subprocess
import sys
from pathlib import Path

from topom.doctor.examining import RULES

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    script = ROOT / "scripts" / "doctor-docs"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_every_finding_is_on_the_page() -> None:
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert [rule.name for rule in RULES if page.count(f"| `{rule.name}` |") != 1] == []
