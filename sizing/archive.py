"""Java's archive of Spark's classes, with which Spark starts in half the time.

A JVM that starts Spark loads and checks twenty thousand classes. One that ends can leave them in an archive, as memory
to be mapped (Java's application class-data sharing, JEP 350). ``slotferry sizing warm`` makes one for this Java and
this Spark; a run uses it when it is there. A JVM looks whether its archive fits its class path, and does without one
that does not.
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
"""How long a JVM may take to write an archive; it takes 5 s where nothing else goes on."""
_LONGEST_SCRIPT = 4096
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is no reason to write on a run's output."""


def path(java_home: Path | None) -> Path:
    """Where the archive for a Java and the installed Spark is, whether it has been made or not."""
    java = shutil.which("java", path=str(java_home / "bin") if java_home else None)
    real = Path(java or "java").resolve()
    # What a new version of either changes. Where it is a script of ours, its place is another each time.
    size, changed = (real.stat().st_size, real.stat().st_mtime_ns) if real.exists() else (0, 0)
    which = real.read_text() if java_home is not None and size <= _LONGEST_SCRIPT else f"{real} {changed}"
    told = f"{which} {version('pyspark')}"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "slotferry", f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa")


def options(java_home: Path | None) -> str:
    """What to tell a JVM so that it uses the archive; "" where there is none."""
    with contextlib.suppress(OSError, RuntimeError, ImportError, UnicodeDecodeError):
        archive = path(java_home)
        if archive.is_file() and " " not in str(archive):
            return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"
    return ""


def begin() -> Path:
    """A file beside the archives for one that is being made; the folder is there then.

    Raises:
        JobError: it cannot be made.
    """
    folder = path(None).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"{folder} cannot be made for Java's classes: {error.strerror}") from None
    for left in folder.glob("unfinished-*"):
        # One whose process runs is another run's.
        if not Path("/proc", left.name.removeprefix("unfinished-")).exists():
            left.unlink(missing_ok=True)
    return folder / f"unfinished-{os.getpid()}"


def dump_options(unfinished: Path) -> str:
    """What to tell a JVM so that it writes an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={unfinished} {_QUIET}"


def keep(unfinished: Path, java: subprocess.Popen[bytes], archive: Path) -> None:
    """Wait for a JVM that has been told to end, and put what it has written where runs find it.

    Raises:
        JobError: the JVM does not end in :data:`DUMP_SECONDS`, or has written nothing.
    """
    try:
        java.wait(DUMP_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
        raise JobError(f"Java did not leave its classes within {DUMP_SECONDS:.0f} s; try when less goes on") from None
    if not unfinished.is_file():
        raise JobError("Java has not left its classes; this Java may have been built without that")
    for older in archive.parent.glob("spark-*.jsa"):
        older.unlink()
    unfinished.replace(archive)
