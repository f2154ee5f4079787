"""Prometheus's own judgement of what it is told, and of the alerts that it is given."""

import os
import shutil
import subprocess

import pytest

LIMIT_SECONDS = 120


def run(*arguments: str, given: str = "") -> str:
    """Have promtool find no fault; gives what it says.

    The test is passed over where promtool is missing, unless ``SLOTFERRY_REQUIRE_PROMTOOL=1`` says that it has to be
    there.
    """
    if shutil.which("promtool") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_PROMTOOL") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_PROMTOOL=1, but promtool is not on PATH; install prometheus")
        pytest.skip("promtool is not on PATH (on Debian and Ubuntu: apt-get install prometheus)")
    done = subprocess.run(["promtool", *arguments], input=given, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def check(exposition: str) -> None:
    """Have ``promtool check metrics`` say nothing."""
    assert run("check", "metrics", given=exposition) == ""
