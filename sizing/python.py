"""The Python that Spark's workers run on where they are on this machine.

Spark puts its own zip file of pyspark before all else on their path. What is in it is not compiled: each of the
processes that Spark starts, four before the first key is read, compiles it anew, which took 0.8 s of each instead of
0.2 s. So they are started by a script that leaves the zip files out, and import the pyspark of this environment.
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
    """What to set PYSPARK_PYTHON to: this Python, started by a script where that makes it start sooner."""
    found = find_spec("pyspark")
    home = Path(found.origin).parent if found is not None and found.origin else None
    named = os.environ.get("SPARK_HOME")
    if home is None or (named and Path(named).resolve() != home.resolve()):
        # A Spark of its own: its zip has the pyspark that fits it, this environment may have another.
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
exec {python} "$@"
"""
