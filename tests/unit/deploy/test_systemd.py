"""The units under ``deploy/systemd`` are right, and give their processes few rights, by systemd's own judgement."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/slotferry/bin/slotferry"
MOST_EXPOSED = 3.0
EACH = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze; no systemd has to run.

    The test is passed over where it is missing, unless ``SLOTFERRY_REQUIRE_SYSTEMD=1`` says that it has to be there.
    """
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_SYSTEMD") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_SYSTEMD=1, but systemd-analyze is not on PATH; install systemd")
        pytest.skip("systemd-analyze is not on PATH (on Debian and Ubuntu: apt-get install systemd)")
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def security(unit: Path) -> subprocess.CompletedProcess[str]:
    """Have systemd judge how exposed a unit is; it fails above the bound."""
    return analyze("security", "--offline=true", f"--threshold={10 * MOST_EXPOSED:.0f}", unit)


def verify(unit: Path, folder: Path) -> str:
    """What systemd finds wrong with a unit, whose program is one that is there."""
    copied = folder / unit.name
    copied.write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, sys.executable), encoding="utf-8")
    done = analyze("verify", copied)
    return done.stdout + done.stderr


def changed(unit: Path, folder: Path, old: str, new: str) -> Path:
    text = unit.read_text(encoding="utf-8")
    assert old in text
    (folder / "changed").mkdir()
    path = folder / "changed" / unit.name
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_there_are_units() -> None:
    assert len(UNITS) == 3


@EACH
def test_it_is_little_exposed(unit: Path) -> None:
    done = security(unit)
    [exposure] = re.findall(rf"Overall exposure level for {unit.name}: ([\d.]+)", done.stdout)
    assert float(exposure) <= MOST_EXPOSED, done.stdout
    assert done.returncode == 0, done.stderr


def test_one_that_is_exposed_is_found(tmp_path: Path) -> None:
    names = r"^(Protect|Private|Restrict|System|Capability|Memory)\w+=.*$"
    text = re.sub(names, "", UNITS[0].read_text(encoding="utf-8"), flags=re.M)
    (tmp_path / UNITS[0].name).write_text(text, encoding="utf-8")
    assert security(tmp_path / UNITS[0].name).returncode != 0


@EACH
def test_it_is_right(unit: Path, tmp_path: Path) -> None:
    assert verify(unit, tmp_path) == ""


@pytest.mark.parametrize(
    ("old", "new"), [("RestartSec=", "RestartSecs="), ("@system-service", "@system-servant"), ("TimeoutStopSec=", "=")]
)
def test_one_that_is_wrong_is_found(old: str, new: str, tmp_path: Path) -> None:
    assert verify(changed(UNITS[0], tmp_path, old, new), tmp_path) != ""


@EACH
def test_it_has_no_right_of_root(unit: Path) -> None:
    lines = unit.read_text(encoding="utf-8").splitlines()
    assert {"User=slotferry", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict"} <= set(lines)
    assert [line for line in lines if line.startswith(("AmbientCapabilities=", "ReadWritePaths="))] == []
