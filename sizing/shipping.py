"""Sends our code to executors that do not have it.

Executors need the packages ``slots``, ``rdb`` and ``sizing``. Some of their modules are compiled, and Python cannot
import those from a zip file, so ``--py-files`` does not work. The packages go as an archive. Spark unpacks it in each
executor's folder, and they are imported from there. Executors need the driver's version of Python and its kind of
machine, and their own pyarrow, redis, hiredis and structlog.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGES = ("slots", "rdb", "sizing")
NAME = "slotferry-shipped"
"""The archive's folder within an executor's folder. It is not ``slotferry``, because that is the name of our
package."""
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
