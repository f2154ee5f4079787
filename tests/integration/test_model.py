"""The model of the protocol in ``docs/model`` holds, and fails without any one of the mechanisms it consists of."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "model"
LIMIT_SECONDS = 900
"""Against hanging only: it takes about a minute on an idle machine."""


@pytest.fixture
def spin() -> None:
    """Skips the test where Spin is missing, unless ``SLOTFERRY_REQUIRE_SPIN=1`` says that it has to be there."""
    if shutil.which("spin") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_SPIN") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_SPIN=1, but spin is not on PATH; install it")
        pytest.skip("the model is not checked: spin is not on PATH (on Debian and Ubuntu: apt-get install spin)")


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """What ``scripts/model`` says, and how it ends."""
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.usefixtures("spin")
def test_the_model_holds_and_every_variant_fails() -> None:
    done = check("--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines), done.stdout


@pytest.mark.usefixtures("spin")
def test_an_assertion_that_is_not_violated_is_reported(tmp_path: Path) -> None:
    """A variant that turns out to be as good as the protocol makes the script fail."""
    (tmp_path / "scripts").mkdir()
    shutil.copytree(ROOT / "docs" / "model", tmp_path / "docs" / "model")
    script = tmp_path / "scripts" / "model"
    script.write_text(SCRIPT.read_text().replace("-DNO_ABSENT_FIRST", "-DNOT_A_VARIANT"))
    script.chmod(0o755)
    done = subprocess.run([script, "NOT_A_VARIANT"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 1
    assert done.stdout.startswith("WRONG  holds ")
