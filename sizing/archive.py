"""Java's archive of Spark's classes, with which Spark starts in half the time.

A JVM that starts Spark loads and checks twenty thousand classes. When it ends, it can write them to an archive that
later JVMs map into memory (Java's application class-data sharing, JEP 350). ``slotferry sizing warm`` makes one for
this Java and this Spark; a run uses it when it is there. A JVM checks that its archive fits its class path, and
otherwise runs without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from sizing.outcome import JobError

DUMP_SECONDS = 180.0
"""How long a JVM may take to write an archive; on an idle machine it takes 5 s."""
_LONGEST_SCRIPT = 4096
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit must not put a message into a run's output."""


def path(java_home: Path | None) -> Path:
    """The path of the archive for a Java and the installed Spark; it may not exist yet."""
    java = shutil.which("java", path=str(java_home / "bin") if java_home else None)
    real = Path(java or "java").resolve()
    # The name has everything that a new version of either changes. The path of a script of ours is left out, because it
    # differs each time.
    size, changed = (real.stat().st_size, real.stat().st_mtime_ns) if real.exists() else (0, 0)
    which = real.read_text() if java_home is not None and size <= _LONGEST_SCRIPT else f"{real} {changed}"
    told = f"{which} {version('pyspark')}"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "slotferry", f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa")


def options(java_home: Path | None) -> str:
    """The options for a JVM to use the archive; "" if there is none."""
    with contextlib.suppress(OSError, RuntimeError, ImportError, UnicodeDecodeError):
        archive = path(java_home)
        if archive.is_file() and " " not in str(archive):
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"
    return ""


def begin() -> Path:
    """A file beside the archives for a new one; its folder exists then.

    Raises:
        JobError: it cannot be made.
    """
    folder = path(None).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"{folder} cannot be made for Java's classes: {error.strerror}") from None
    for left in folder.glob("unfinished-*"):
        # A file whose process still runs belongs to another run.
        if not Path("/proc", left.name.removeprefix("unfinished-")).exists():
            left.unlink(missing_ok=True)
    return folder / f"unfinished-{os.getpid()}"


def dump_options(unfinished: Path) -> str:
    """The options for a JVM to write an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={unfinished} {_QUIET}"


def keep(unfinished: Path, java: subprocess.Popen[bytes], archive: Path) -> None:
    """Wait for a JVM that was told to end, and put its archive where runs find it.

    Raises:
        JobError: the JVM does not end in :data:`DUMP_SECONDS`, or has written nothing.
    """
    try:
        java.wait(DUMP_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
        raise JobError(
            f"Java did not leave its classes within {DUMP_SECONDS:.0f} s; try again when the machine is less busy"
        ) from None
    if not unfinished.is_file():
        raise JobError("Java has not left its classes; this Java may have been built without that")
    for older in archive.parent.glob("spark-*.jsa"):
        older.unlink()
    unfinished.replace(archive)
