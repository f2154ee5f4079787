"""Makes the units that a run has to read: a database of a server each, or an RDB file each."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sizing.aggregation import key_columns
from sizing.cluster import Cluster, Server
from sizing.options import ReadOptions
from sizing.outcome import Failure, JobError, JobRequest, read_options
from sizing.reading import Unit
from sizing.topom import Product, ask, get
from slots.rules import rules_to_wire

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sizing.rdb.files import RdbFile

SLOT_OPTIONS = ("function", "number_of_slots", "rules")
"""Options that both data sources have, and that topom knows as well."""


@dataclass(frozen=True)
class Work:
    """All units of a run.

    Attributes:
        source: the place of the keys, in words.
        what: the things that the progress bar counts.
        failures: places whose units could not be found.
        product: name of the cluster; "" where topom was not asked.
        number_of_slots: slots of the product.
        found_at: when they were found, in seconds since 1970.
    """

    source: str
    what: str
    units: tuple[Unit, ...]
    failures: tuple[Failure, ...]
    product: str
    number_of_slots: int
    found_at: float


def find_work(spark: SparkSession, request: JobRequest) -> Work:
    """Ask topom, and look at the servers, or look for the files.

    Raises:
        SizingError: topom does not answer, an option cannot be used, or there is no such file.
    """
    return _files(spark, request) if request.rdb else _servers(spark, request)


def _servers(spark: SparkSession, request: JobRequest) -> Work:
    options = read_options(request)
    if request.servers and request.topom:
        product = ask(request.topom, options.timeout_seconds)
        options = replace(
            options, function=product.function, number_of_slots=product.number_of_slots, rules=product.rules
        )
    found_at = time.time()
    cluster = Cluster.of(replace(options, mode="PERMISSIVE"))
    given = {**request.source, "sample_fraction": str(request.fraction)}
    given.update(_slot_options(cluster))
    units = [
        _unit_of_server(spark, server, database, keys, given, request.details)
        for server in cluster.servers
        for database, keys in sorted(server.keys.items())
    ]
    count = len(cluster.servers) + len(cluster.unreadable)
    return Work(
        source=f"{count} servers" if count != 1 else "1 server",
        what="keys",
        units=tuple(units),
        failures=tuple(Failure(each.address, each.reason) for each in cluster.unreadable),
        product=cluster.product or "",
        number_of_slots=cluster.number_of_slots,
        found_at=found_at,
    )


def _slot_options(found: Cluster | Product) -> dict[str, str]:
    """The :data:`SLOT_OPTIONS` of a product, as Spark has options."""
    return {
        "function": found.function,
        "number_of_slots": str(found.number_of_slots),
        "rules": json.dumps(rules_to_wire(found.rules)),
    }


def _unit_of_server(
    spark: SparkSession, server: Server, database: int, keys: int, given: Mapping[str, str], details: bool
) -> Unit:
    from pyspark.sql import functions as f

    owner = server.address if server.group_id is None else f"group-{server.group_id}"
    columns = key_columns(details)
    # The group is known here. A data source that gets the server does not ask topom again for each unit.
    options = {**given, "servers": server.address, "databases": str(database), "mode": "FAILFAST"}
    options["columns"] = ",".join(name for name in columns if name != "group_id")

    def load() -> DataFrame:
        found = spark.read.format("slotferry").options(**options).load()
        return found.select(*_as_kept(details, {"group_id": f.lit(server.group_id)}))

    return Unit(f"{_safe(owner)}-database-{database}", server.address, keys, None, load)


def _files(spark: SparkSession, request: JobRequest) -> Work:
    from sizing.rdb.files import RdbPathError, find, split

    try:
        files = find(split(request.rdb))
    except RdbPathError as error:
        raise JobError(str(error)) from None
    options = {name: value for name, value in request.source.items() if name in SLOT_OPTIONS}
    name, owners = "", None
    if request.topom:
        seconds = ReadOptions().timeout_seconds
        product = ask(request.topom, seconds)
        name = product.name
        options = _slot_options(product)
        owners = _owners(spark, request.topom, seconds)
    return Work(
        source=f"{len(files)} RDB files" if len(files) != 1 else "1 RDB file",
        what="bytes of RDB files",
        units=tuple(_unit_of_file(spark, file, options, owners, request.details) for file in files),
        failures=(),
        product=name,
        number_of_slots=int(options.get("number_of_slots", ReadOptions().number_of_slots)),
        found_at=time.time(),
    )


def _unit_of_file(
    spark: SparkSession, file: RdbFile, options: Mapping[str, str], owners: DataFrame | None, details: bool
) -> Unit:
    from pyspark.sql import functions as f

    from sizing.rdb.files import RdbPathError

    # As a list, because a path alone may mean several, separated by commas.
    one = {"paths": json.dumps([file.uri])}

    def load() -> DataFrame:
        found = spark.read.format("slotferry-rdb").options(**options, **one, mode="FAILFAST").load()
        if owners is None:
            found = found.withColumn("group_id", f.lit(None))
        else:
            found = found.join(f.broadcast(owners), "slot", "left")
        return found.select(*_as_kept(details, {"server": f.col("file")}))

    # The name alone does not distinguish files of different folders.
    digest = hashlib.sha256(file.shown.encode()).hexdigest()[:12]
    name = f"{_safe(file.shown.rpartition('/')[2])}-{digest}"
    try:
        size, written_at = file.look()
    except (OSError, RdbPathError) as error:
        raise JobError(f"{file.shown} cannot be looked at: {error}") from None
    return Unit(name, file.shown, size, written_at, load)


def _owners(spark: SparkSession, topom: str, seconds: float) -> DataFrame:
    """The group of each slot that has one."""
    slots = get(topom, "/api/v1/slots", seconds)["slots"]
    rows = [(int(slot["id"]), int(slot["group_id"])) for slot in slots if slot["group_id"]]
    return spark.createDataFrame(rows, "slot int, group_id int")


def _as_kept(details: bool, known: Mapping[str, Column]) -> list[Column]:
    """The columns that are kept: from a data source, or already ``known``, in their order and with their types."""
    from pyspark.sql import functions as f

    kinds = key_columns(details)
    return [known.get(name, f.col(name)).cast(kind).alias(name) for name, kind in kinds.items()]


def _safe(name: str) -> str:
    """The text in a form that is allowed in file names of any file system, and in Spark's names of partitions."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")
