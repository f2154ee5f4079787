"""A folder in any file system that Spark can write: this machine's disk, HDFS, an object store.

A file under its own name is always whole: it is written under another name and renamed. (An object store that copies
instead of renaming does that file by file, so each file is whole as well.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sizing.errors import SizingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FolderError(SizingError):
    """The folder cannot be read or written. The message names it and says why."""


class Folder:
    """Files below one path, by names relative to it, through the file systems that Spark knows.

    Args:
        path: a local path, or an address such as ``hdfs://host/path`` or ``s3a://bucket/path``.

    Raises:
        FolderError: Spark knows no such file system. Every method raises it when the file system refuses.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        java: Any = spark._jvm
        self._java = java
        context: Any = spark.sparkContext._jsc
        configuration = context.hadoopConfiguration()
        self._root = self._refused(lambda: self._java.org.apache.hadoop.fs.Path(path), path)
        # An object of its own: Spark's shared one has to go on writing its checksums.
        system = self._java.org.apache.hadoop.fs.FileSystem
        self._files = self._refused(
            lambda: system.newInstance(self._root.getFileSystem(configuration).getUri(), configuration), path
        )
        self._files.setWriteChecksum(False)
        self.path = str(self._files.makeQualified(self._root).toString())
        """The whole address, with the file system's name."""

    def at(self, name: str) -> str:
        """The whole address of the file or folder ``name`` in this folder."""
        return f"{self.path.rstrip('/')}/{name}"

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file or folder."""
        return bool(self._refused(lambda: self._files.exists(self._place(name)), name))

    def names(self, name: str = "") -> list[str]:
        """Names of the files and folders in a folder here, sorted; empty for a missing folder."""
        if not self.exists(name):
            return []
        found = self._refused(lambda: self._files.listStatus(self._place(name)), name)
        return sorted(str(entry.getPath().getName()) for entry in found)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        if not self.exists(name):
            return None

        def whole() -> bytes:
            stream = self._files.open(self._place(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return bytes(self._refused(whole, name))

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file."""
        beside = f"{name}.being-written"

        def whole() -> None:
            stream = self._files.create(self._place(beside), True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

        self._refused(whole, name)
        self.replace(name, beside)

    def replace(self, name: str, other: str) -> None:
        """Give ``other``, a file or folder here, the name ``name``; an earlier one of that name is removed."""
        self.remove(name)
        if not self._refused(lambda: self._files.rename(self._place(other), self._place(name)), name):
            raise FolderError(f"{self.at(other)} could not be renamed to {self.at(name)}")

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all its content; nothing happens if there is none."""
        self._refused(lambda: self._files.delete(self._place(name), True), name)

    def make(self) -> None:
        """Make the folder itself."""
        self._refused(lambda: self._files.mkdirs(self._root), self.path)

    def _place(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.at(name)) if name else self._root

    def _refused(self, work: Any, name: str) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return work()
        except Py4JJavaError as error:
            place = self.at(name) if name and hasattr(self, "path") else name
            raise FolderError(f"{place or self.path}: {_message(error)}") from None


def _message(error: Any) -> str:
    """Java's message, on one line."""
    said = error.java_exception.getMessage() or error.java_exception.toString()
    return str(said).splitlines()[0]
