"""Prepares the Python for Spark's workers on this machine.

Spark puts its own zip file of pyspark first on their path. The zip's modules are not compiled, so each process that
Spark starts compiles them again. That took 0.8 s of each process instead of 0.2 s, and there are four before the first
key is read. So a script starts them without the zip files, and they import the pyspark of this environment.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path


def worker_python() -> str:
    """The value for PYSPARK_PYTHON: this Python, started by a script if that makes it start sooner."""
    found = find_spec("pyspark")
    home = Path(found.origin).parent if found is not None and found.origin else None
    named = os.environ.get("SPARK_HOME")
    if home is None or (named and Path(named).resolve() != home.resolve()):
        # This is another Spark: its zip has the matching pyspark, and this environment may have another version.
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix="slotferry-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "python"
    script.write_text(
        _SCRIPT.format(python=shlex.quote(sys.executable), zips=shlex.quote(str(home / "python" / "lib")))
    )
    script.chmod(0o755)
    return str(script)


_SCRIPT = """#!/bin/sh
zips={zips}
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
    "$zips"/*.zip) ;;
    *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
unset IFS
exec {python} -P "$@"
"""
