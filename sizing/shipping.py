"""Sends our code along to executors that do not have it.

What executors run is the packages ``slots`` and ``sizing``. Some of it is compiled, and Python cannot import that from
within a zip file, so ``--py-files`` would not do: the packages go as an archive, which Spark unpacks in each executor's
folder, and from there they are imported. Executors need the driver's version of Python and its kind of machine, and
themselves have pyarrow, redis, hiredis and structlog.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGES = ("slots", "sizing")
NAME = "slotferry-shipped"
"""The archive's folder in that of an executor. It is not ``slotferry``: that is the name of our package."""
_SHIPPED = (".py", ".so", ".tsv", ".lua")


def pack(folder: Path) -> Path:
    """Write an archive of this installation's packages into a folder, and give its path."""
    home = Path(__file__).resolve().parents[1]
    path = folder / f"{NAME}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((home / package).rglob("*")):
                if file.suffix in _SHIPPED:
                    archive.write(file, file.relative_to(home))
    return path


def options(archive: Path) -> dict[str, str]:
    """Spark's settings that have executors unpack it and find it."""
    return {"spark.archives": f"{archive}#{NAME}", "spark.executorEnv.PYTHONPATH": NAME}
