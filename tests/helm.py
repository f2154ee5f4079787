"""Renders a chart with Helm's own library, in a process of its own: the library brings a runtime with threads."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import kubernetes

LIMIT_SECONDS = 120

_PROGRAM = """
import json, sys
import helm_python
chart, values, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
try:
    with helm_python.Chart.load(chart) as loaded:
        rendered = loaded.render(values, name=name, namespace="prod")
    print(json.dumps([rendered, helm_python.lint(chart, values, strict=True)]))
except helm_python.HelmError as error:
    sys.exit(str(error))
"""


class Refused(Exception):
    """Helm renders nothing from these values."""


def render(chart: Path, values: dict[str, Any], name: str = "shop") -> str:
    """The manifests of a release, as one file; the chart's linting finds no fault. Raises :class:`Refused`.

    The test is passed over where the library is missing, unless ``SLOTFERRY_REQUIRE_HELM=1`` says that it has to be
    there.
    """
    if importlib.util.find_spec("helm_python") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_HELM") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_HELM=1, but helm-python-sdk is not installed")
        pytest.skip("helm-python-sdk is not installed; scripts/test does that on Linux on x86-64")
    command = [sys.executable, "-c", _PROGRAM, chart, json.dumps(values), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise Refused(done.stderr)
    rendered, report = json.loads(done.stdout.splitlines()[-1])
    assert report["errors"] == [], report
    return "\n---\n".join(text for path, text in sorted(rendered.items()) if path.endswith(".yaml"))


def objects(chart: Path, values: dict[str, Any], name: str = "shop") -> list[dict[str, Any]]:
    """The objects of a release."""
    return kubernetes.documents(render(chart, values, name))
