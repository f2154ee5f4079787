"""Prometheus's own judgement of what it is told."""

import os
import shutil
import subprocess

import pytest

LIMIT_SECONDS = 60


def check(exposition: str) -> None:
    """Have ``promtool check metrics`` find nothing. The test is passed over where promtool is missing, unless
    ``SLOTFERRY_REQUIRE_PROMTOOL=1`` says that it has to be there."""
    if shutil.which("promtool") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_PROMTOOL") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_PROMTOOL=1, but promtool is not on PATH; install prometheus")
        pytest.skip("promtool is not on PATH (on Debian and Ubuntu: apt-get install prometheus)")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
