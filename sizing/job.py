"""The job: reads keys once, makes the tables and the page of them, and tells topom.

The steps: units are read into the folder (:mod:`sizing.reading`), tables are made of their keys, then the summary, its
page, and at last the report to topom. A run that is started again goes on after the finished steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from sizing import posting, summary
from sizing.folder import Folder
from sizing.locking import held
from sizing.outcome import JobError, JobRequest, SlotBytes, Status, Summary
from sizing.picture import draw
from sizing.posting import PostError
from sizing.reading import Done, Progress, Reading
from sizing.session import prepare
from sizing.tables import PICTURE, SUMMARY, Results
from sizing.units import Work, find_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and its summary; None if nothing could be read."""

    status: Status
    summary: Summary | None


def run(
    spark: SparkSession,
    request: JobRequest,
    progress: Progress,
    shown: Callable[[Summary], None],
    told_to_end: Event | None = None,
) -> Outcome:
    """Do the job, or the rest of it.

    Args:
        shown: called with the summary before topom is told.
        told_to_end: set once the run is interrupted.

    Raises:
        SizingError: it cannot be begun as asked, another run writes into the folder, or the results cannot be written.
    """
    prepare(spark, bool(request.rdb))
    results = Results(spark, Folder(spark, request.output), request)
    with held(results.folder.path, progress.note):
        return _run(spark, results, request, progress, shown, told_to_end or Event())


def _run(
    spark: SparkSession,
    results: Results,
    request: JobRequest,
    progress: Progress,
    shown: Callable[[Summary], None],
    told_to_end: Event,
) -> Outcome:
    results.open()
    found = _earlier(results, request)
    if found is not None:
        progress.note(f"{results.folder.path} is already complete; --fresh sizes again")
        if not request.keep_keys:
            results.remove_keys()
        shown(found)
        return Outcome(_tell(found, results, request, progress), found)
    work = find_work(spark, request)
    reading = Reading(spark, results.folder, work.units, request.fraction, told_to_end)
    reading.forget_others()
    failures = [*work.failures, *reading.run(work.what, request.parallel, progress)]
    if failures and not reading.done:
        return Outcome(Status.FAILED, None)
    keys = results.keys(reading.paths())
    results.publish(keys)
    taken_at, seconds = _times(reading.done, work)
    found = summary.summarize(
        results,
        keys,
        fraction=request.fraction,
        number_of_slots=work.number_of_slots,
        product=work.product,
        source=work.source,
        taken_at=taken_at,
        seconds=seconds,
        missing=failures,
    )
    results.folder.write(PICTURE, draw(found))
    # Last, because it says that the others are whole.
    kept = {**summary.to_json(found), "tables": request.of_tables}
    results.folder.write(SUMMARY, json.dumps(kept, indent=1).encode())
    shown(found)
    status = _tell(found, results, request, progress)
    if found.complete and not request.keep_keys:
        results.remove_keys()
    return Outcome(status, found)


def _earlier(results: Results, request: JobRequest) -> Summary | None:
    """The summary of an earlier run here, if that came to its end; None if there is something left to do.

    Raises:
        JobError: other tables are wanted, and the keys for them are gone.
    """
    kept = results.summary()
    if kept is None or not kept["complete"]:
        return None
    tables = kept.pop("tables")
    if tables != request.of_tables:
        if results.has_keys():
            return None
        differing = ", ".join(name for name, value in request.of_tables.items() if tables.get(name) != value)
        raise JobError(
            f"{results.folder.path} is complete, and its keys were not kept to make other tables of ({differing}); "
            "--fresh sizes again, and --keep-keys keeps the keys"
        )
    rows = results.table("slots").orderBy("slot").collect()
    return summary.from_json(kept, (SlotBytes(row["slot"], row["group_id"], row["bytes"], row["keys"]) for row in rows))


def _times(done: list[Done], work: Work) -> tuple[float, float]:
    """When the oldest key was read, in seconds since 1970, and how many seconds later the last one was."""
    if not done:
        return work.found_at, 0.0
    began = min(entry.began for entry in done)
    return min(entry.at for entry in done), max(entry.began + entry.seconds for entry in done) - began


def _tell(found: Summary, results: Results, request: JobRequest, progress: Progress) -> Status:
    """Report to topom, if wanted, and give the status of the whole run."""
    status = Status.COMPLETE if found.complete else Status.PARTIAL
    if not request.post or not request.topom:
        return status
    try:
        posting.post(request.topom, request.token, posting.body(found, results, bool(request.rdb)))
    except PostError as error:
        progress.note(f"{error}. The results stand in {results.folder.path}; the same command again only reports them")
        return Status.NOT_POSTED
    progress.note(f"topom at {request.topom} has the sizes of {len(found.slots)} slots")
    return status
