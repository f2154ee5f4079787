"""The results' folder: four tables as Parquet, the summary, and the records for going on with a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sizing import aggregation
from sizing.folder import Folder
from sizing.locking import LOCK
from sizing.outcome import JobError, JobRequest
from sizing.reading import KEYS
from slots.formats import SIZING, WRITER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("slots", "prefixes", "biggest", "histograms")
SUMMARY, PICTURE = "summary.json", "summary.png"
_WORK, _RUN, _RESULTS = "work", "work/run.json", "work/results"
_OURS = (*TABLES, SUMMARY, PICTURE, KEYS, _WORK)


class Results:
    """One run's folder.

    Raises:
        FolderError: as every method, when the file system refuses.
    """

    def __init__(self, spark: SparkSession, folder: Folder, request: JobRequest) -> None:
        self._spark = spark
        self._request = request
        self.folder = folder

    def open(self) -> None:
        """Begin a run, or go on with the one that is here.

        Raises:
            JobError: the folder has a run with other options, one of another format, or foreign files.
        """
        folder, request = self.folder, self._request
        if request.fresh:
            for name in _OURS:
                folder.remove(name)
        noted = folder.read(_RUN)
        if noted is None:
            found = [name for name in folder.names() if name != LOCK]
            if found:
                raise JobError(
                    f"{folder.path} has other files ({', '.join(found[:3])}); give an empty or a new folder as --into"
                )
            folder.make()
            folder.write(_RUN, json.dumps({"format": SIZING.number, "options": request.of_keys}).encode())
            return
        run: dict[str, Any] = json.loads(noted)
        if not SIZING.reads(run.get("format")):
            raise JobError(
                f"{SIZING.refusal(folder.path, run.get('format'))}; {WRITER}, another folder as --into, or --fresh to "
                "start again"
            )
        before: dict[str, Any] = run["options"]
        differing = [
            f"{name} was {before.get(name)!r} and is {request.of_keys.get(name)!r}"
            for name in sorted({*before, *request.of_keys})
            if before.get(name) != request.of_keys.get(name)
        ]
        if differing:
            raise JobError(
                f"{folder.path} has a run with other options: {'; '.join(differing)}. Give the same ones to go on with "
                "it, another --into, or --fresh to start again"
            )

    def summary(self) -> dict[str, Any] | None:
        """The summary of an earlier run here; None if no run has ended."""
        found = self.folder.read(SUMMARY)
        return None if found is None else json.loads(found)

    def publish(self, keys: DataFrame) -> None:
        """Make the tables of the keys; each replaces the earlier one when it is whole."""
        request, fraction = self._request, self._request.fraction
        made = {
            "slots": aggregation.slots(keys, fraction),
            "prefixes": aggregation.prefixes(keys, fraction, request.separator, request.depth, request.prefixes),
            "biggest": aggregation.biggest(keys, request.biggest, request.biggest_per_slot),
            "histograms": aggregation.histograms(keys, fraction),
        }
        for name in TABLES:
            self._spark.sparkContext.setJobDescription(f"table of {name}")
            made[name].coalesce(1).write.mode("overwrite").parquet(self.folder.at(f"{_RESULTS}/{name}"))
        for name in TABLES:
            self.folder.replace(name, f"{_RESULTS}/{name}")

    def table(self, name: str) -> DataFrame:
        """One of :data:`TABLES`, as it was published."""
        return self._spark.read.parquet(self.folder.at(name))

    def keys(self, paths: Sequence[str]) -> DataFrame:
        """The keys that were read, from the place where they were written."""
        kind = aggregation.ddl(aggregation.key_columns(self._request.details))
        if not paths:
            return self._spark.createDataFrame([], kind)
        return self._spark.read.schema(kind).parquet(*paths)

    def has_keys(self) -> bool:
        """Whether keys that were read are still here."""
        return self.folder.exists(KEYS)

    def remove_keys(self) -> None:
        """Remove the keys that were read; the tables stay."""
        self.folder.remove(KEYS)
