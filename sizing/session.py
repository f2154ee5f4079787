"""The Spark session of a run: one that ``spark-submit`` has prepared, or one of our own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sizing import archive, interrupting
from sizing.java import JavaNotFound, find_java_home
from sizing.outcome import JobError
from sizing.python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = "pip install 'slotferry[sizing]'"
OWN = {
    "spark.app.name": "slotferry sizing",
    "spark.ui.showConsoleProgress": "false",
    # In all, a failing server is tried so many times before it is reported; the data source makes the pauses.
    "spark.task.maxFailures": "2",
    # How often executors report how much they have read, for the progress bar.
    "spark.executor.heartbeatInterval": "2s",
}
"""Settings that hold unless the user sets them."""
LOCAL = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Further settings when everything runs in this process: nothing listens to others."""
LEAVE_SECONDS = 5.0
"""How long Java may take to end after an interruption, before it is killed."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
"""Failures are reported in words; for a failed task Spark would print its whole Java stack."""


def open_session(master: str, options: Mapping[str, str], warm: Path | None = None) -> SparkSession:
    """Open a session with these options, which win over ours.

    Args:
        master: Spark's address of a cluster, or ``local[*]``; "" for what ``spark-submit`` says, else ``local[*]``.
        options: Spark's own settings.
        warm: where Java has to write its classes when it ends, for :func:`close`; None if it need not.

    Raises:
        JobError: PySpark or a Java for it is missing, or Spark cannot start; with what to do.
    """
    try:
        import matplotlib  # noqa: F401
        import pyarrow  # noqa: F401
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise JobError(f"{error.name or error} is missing, which sizing needs: {INSTALL}") from None
    try:
        java = find_java_home()
    except JavaNotFound as error:
        raise JobError(str(error)) from None
    os.environ["JAVA_HOME"] = str(java)
    _show_ourselves_to_workers()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Under spark-submit a Java already runs, with its own settings; SparkConf has them only in that case.
        SparkContext._ensure_initialized()
    configuration = SparkConf()
    chosen = master or str(configuration.get("spark.master", "local[*]"))
    is_local = chosen.startswith("local")
    # Otherwise Spark takes the python3 on PATH, which may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python() if is_local else sys.executable)
    own = {**OWN, **(LOCAL if is_local else {})}
    for name, value in own.items():
        configuration.setIfMissing(name, value)
    configuration.setMaster(chosen)
    for name, value in options.items():
        configuration.set(name, value)
    starting = archive.dump_options(warm) if warm is not None else archive.options(java)
    if SparkContext._gateway is None:
        # A Java that already runs has its options.
        words = (_QUIET, starting, configuration.get(_JAVA_OPTIONS, ""))
        configuration.set(_JAVA_OPTIONS, " ".join(filter(None, words)))
    try:
        with interrupting.beginning():
            session = SparkSession.builder.config(conf=configuration).getOrCreate()
    except Exception as error:
        # Errors of Java, of py4j, of PySpark: anything that keeps Spark from starting.
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise JobError(f"Spark does not start on {chosen}: {reason}") from None
    return session


def close(session: SparkSession, warm: Path | None = None) -> None:
    """End a session. With ``warm``, also end its Java, which then leaves its classes for later sessions.

    Raises:
        JobError: Java has not left them.
    """
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if warm is None or gateway is None:
        return
    java = gateway.proc
    gateway.shutdown()
    # This keeps it running.
    java.stdin.close()
    archive.keep(warm, java, archive.path(find_java_home()))


def leave() -> None:
    """End Java after an interruption, and with it every call to it; Spark cleans up as it ends.

    **bounded**: a session that is stopped in order may wait for a call that does not end.
    """
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        # spark-submit started it, and ends it.
        return
    # Both would print the stack of what Java breaks off.
    logging.disable()
    if (server := getattr(SparkContext._active_spark_context, "_accumulatorServer", None)) is not None:
        server.shutdown()
    java.terminate()
    try:
        java.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        java.kill()


def prepare(session: SparkSession, rdb: bool) -> None:
    """Set the session's options for our reads, and register our data source: of RDB files, or of live servers."""
    if rdb:
        from sizing.rdb.source import RdbDataSource

        session.dataSource.register(RdbDataSource)
    else:
        from sizing.source import SlotferryDataSource

        session.dataSource.register(SlotferryDataSource)


def _show_ourselves_to_workers() -> None:
    """Have Spark's Python workers on this machine import our packages from the same place as this process, even from a
    checkout."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *paths])
