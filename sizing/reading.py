"""Reads units into the folder. A unit is a database of a server, or a file. Each is read once, and whole or not at all.

A unit's keys are written under another name and then renamed. Only then is the unit noted as done. So a unit noted as
done is whole, and a run that starts again reads only the others. Units of one place are read one after the other: the
limit on keys a second is for a server, and each unit would use all of it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import groupby
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from sizing.errors import Interrupted
from sizing.folder import Folder, FolderError
from sizing.outcome import Failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = "keys"
"""Folder with the keys that were read: a folder of Parquet for each unit."""
_DONE, _READING = "work/done", "work/reading"
_POLL_SECONDS = 0.5
_MOST_QUERIES = 64
"""How many of Spark's last queries are looked at; fewer are under way at once."""
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Unit:
    """The smallest part of the reading.

    Attributes:
        name: fit for a file's name, and the same in every run.
        place: the server or file, as it is reported.
        expected: the number of keys by the server's count, or the bytes of the file; for the progress bar.
        at: when the file was written, in seconds since 1970; None for a server, whose keys are those of now.
        load: gives the keys, with the columns that are kept.
    """

    name: str
    place: str
    expected: int
    at: float | None
    load: Callable[[], DataFrame]


@dataclass(frozen=True)
class Done:
    """A unit that was read to its end.

    Attributes:
        name, place: of the unit.
        keys: how many were read.
        expected: of the unit.
        began, seconds: when the reading began, in seconds since 1970, and how long it took.
        at: the time of its keys, in seconds since 1970.
    """

    name: str
    place: str
    keys: int
    expected: int
    began: float
    seconds: float
    at: float


class Progress(Protocol):
    """Shows the progress."""

    def begin(self, what: str, total: int, done: int) -> None:
        """The work is ``total`` in all; an earlier run has done ``done`` of it."""

    def update(self, done: int) -> None:
        """So much has been done by now."""

    def end(self) -> None:
        """The reading has ended."""

    def note(self, text: str) -> None:
        """Show a sentence for the operator."""


class Reading:
    """The units of one run.

    Args:
        fraction: share of the keys that is read of each unit, for the progress.
        told_to_end: set once the run is interrupted.
    """

    def __init__(
        self, spark: SparkSession, folder: Folder, units: Sequence[Unit], fraction: float, told_to_end: Event
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._units = list(units)
        self._fraction = fraction
        self._told_to_end = told_to_end
        self._done = {unit.name: found for unit in units if (found := self._noted(unit)) is not None}

    @property
    def done(self) -> list[Done]:
        """Units that were read, in this run or an earlier one, in the order of the units."""
        return [self._done[unit.name] for unit in self._units if unit.name in self._done]

    def paths(self) -> list[str]:
        """The paths of their keys."""
        return [self._folder.at(_place_of(entry.name)) for entry in self.done]

    def forget_others(self) -> None:
        """Remove keys of units that no longer exist: a group that was removed, a database that is empty now."""
        named = {unit.name for unit in self._units}
        for note in self._folder.names(_DONE):
            if (name := note.removesuffix(".json")) not in named:
                self._folder.remove(_place_of(name))
                self._folder.remove(f"{_DONE}/{note}")

    def run(self, what: str, parallel: int, progress: Progress) -> list[Failure]:
        """Read the units that are not done, ``parallel`` places at once, and give the places that failed.

        If it ends early, it has Spark end the jobs; finished units stay done.

        Raises:
            FolderError: results cannot be written, so no other unit could be written either.
            Interrupted: the run was told to end.
        """
        missing = [unit for unit in self._units if unit.name not in self._done]
        places = [list(found) for _, found in groupby(sorted(missing, key=lambda unit: unit.place), _by_place)]
        progress.begin(what, sum(unit.expected for unit in self._units), self._expected_done())
        failures: list[Failure] = []
        with ThreadPoolExecutor(parallel, thread_name_prefix="reading") as pool:
            waiting = {pool.submit(self._read_place, units, progress) for units in places}
            try:
                while waiting:
                    ended, waiting = wait(waiting, timeout=_POLL_SECONDS)
                    if self._told_to_end.is_set():
                        raise Interrupted
                    for work in ended:
                        failures += filter(None, [work.result()])
                    progress.update(self._expected_done() + self._under_way(missing))
            except BaseException:
                self._told_to_end.set()
                pool.shutdown(wait=False, cancel_futures=True)
                self._end_jobs(waiting, missing)
                raise
            finally:
                progress.end()
        return sorted(failures, key=lambda failure: failure.place)

    def _end_jobs(self, waiting: Iterable[Future[Failure | None]], missing: Sequence[Unit]) -> None:
        """Have Spark end the jobs of units until none is left: one that is being prepared has no job yet."""
        left = {work for work in waiting if not work.cancelled()}
        while left:
            for unit in missing:
                self._spark.sparkContext.cancelJobGroup(unit.name)
            _, left = wait(left, timeout=_POLL_SECONDS)

    def _read_place(self, units: Sequence[Unit], progress: Progress) -> Failure | None:
        """Read the units of a place. The first failure ends it, because the others would fail as well."""
        for unit in units:
            if self._told_to_end.is_set():
                return None
            try:
                self._read(unit)
            except FolderError:
                raise
            except Exception as error:
                # Any error of Spark, the data source or the server means that this place failed; the others go on.
                failure = Failure(unit.place, reason_of(error))
                if not self._told_to_end.is_set():
                    progress.note(f"{failure.place} could not be read: {failure.reason}")
                return failure
        return None

    def _read(self, unit: Unit) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        # Set for this thread: by it, the job's stages are found again, and ended.
        self._spark.sparkContext.setJobGroup(unit.name, f"keys of {unit.place}", interruptOnCancel=True)
        counted = Observation()
        began = time.time()
        beside = f"{_READING}/{unit.name}"
        keys = unit.load().observe(counted, f.count(f.lit(1)).alias("keys"))
        keys.write.mode("overwrite").parquet(self._folder.at(beside))
        self._folder.replace(_place_of(unit.name), beside)
        done = Done(
            unit.name,
            unit.place,
            int(counted.get["keys"]),
            unit.expected,
            began,
            time.time() - began,
            began if unit.at is None else unit.at,
        )
        self._folder.write(_note_of(unit.name), json.dumps(asdict(done)).encode())
        self._done[unit.name] = done

    def _noted(self, unit: Unit) -> Done | None:
        note = self._folder.read(_note_of(unit.name))
        # A file that was rewritten since is another one.
        found = Done(**json.loads(note)) if note else None
        return found if found and unit.at in (None, found.at) else None

    def _expected_done(self) -> int:
        """The finished part, in the unit of the expected amounts; a server may have had more or fewer keys in the
        end."""
        return sum(unit.expected for unit in self._units if unit.name in self._done)

    def _under_way(self, units: Sequence[Unit]) -> int:
        """Keys that running jobs have read so far, scaled up from a sample, and at most as many as the unit has."""
        waited_for = {unit.name: unit.expected for unit in units if unit.at is None and unit.name not in self._done}
        rows = rows_under_way(self._spark, list(waited_for))
        return sum(min(waited_for[name], int(count / self._fraction)) for name, count in rows.items())


def _by_place(unit: Unit) -> str:
    return unit.place


def _place_of(name: str) -> str:
    return f"{KEYS}/unit={name}"


def _note_of(name: str) -> str:
    return f"{_DONE}/{name}.json"


def rows_under_way(spark: SparkSession, groups: Sequence[str]) -> dict[str, int]:
    """Rows that the running query of each group of jobs has read, by the last reports of its tasks to Spark.

    Tasks report with each heartbeat. This is Spark's own bookkeeping and not part of its API. If a version keeps it in
    another way, nothing is known, and the progress bar only counts finished units.
    """
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    jobs = {job: group for group in groups for job in tracker.getJobIdsForGroup(group)}
    internal: Any = spark
    found: dict[str, int] = {}
    try:
        store = internal._jsparkSession.sharedState().statusStore()
        count = int(store.executionsCount())
        running = store.executionsList(max(0, count - _MOST_QUERIES), _MOST_QUERIES)
        for index in range(running.size()):
            query = running.apply(index)
            group = next((group for job, group in jobs.items() if query.jobs().contains(job)), None)
            if group is not None and query.completionTime().isEmpty():
                found[group] = _rows_of(store, query)
    except (Py4JError, TypeError):
        return {}
    return found


def _rows_of(store: Any, query: Any) -> int:
    """The most rows that a step of a query has given: the first step gives all; the last step reports when it is
    done."""
    values = store.executionMetrics(query.executionId())
    metrics = query.metrics()
    most = 0
    for index in range(metrics.size()):
        metric = metrics.apply(index)
        value = values.get(metric.accumulatorId())
        if metric.name() == "number of output rows" and value.isDefined():
            most = max(most, int(str(value.get()).replace(",", "")))
    return most


_OURS = re.compile(r"^(?:sizing|slots|rdb)\.[\w.]+: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception): (.+)$", re.MULTILINE)


def reason_of(error: Exception) -> str:
    """The reason in Spark's text about a failed job: our own error in a worker, else any error there, else Spark's."""
    text = str(error)
    raised = _OURS.findall(text) or _RAISED.findall(text)
    reason = raised[-1] if raised else next((line for line in text.splitlines() if line.strip()), "")
    return (reason.strip() or type(error).__name__)[:_LONGEST_REASON]
