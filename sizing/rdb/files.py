"""Finds the files that a path means, and reads their bytes: from a local disk by Python, from elsewhere by pyarrow.

Spark runs a Python data source in Python processes without a JVM, both on the driver and on executors. So they cannot
use Hadoop's file systems. They use those of pyarrow: ``hdfs`` (needs libhdfs and Hadoop's CLASSPATH on each machine),
``s3`` (``s3a`` and ``s3n`` mean the same), ``gs``, ``abfs``. The credentials come from each machine's environment, in
the same form as for these systems' own tools.

A path is a file, a folder (its files, except those whose names begin with ``_`` or ``.``, as in Spark) or a glob with
``*``, ``?``, ``[...]`` and ``{a,b}``. ``path`` may have several, with commas between them.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

WILD = re.compile(r"[*?\[{]")
S3 = ("s3", "s3a", "s3n")
QUERY = re.compile(r"\?(?=\w+=)")
"""The place where options of pyarrow begin in a URI; a glob's question mark never comes before such text."""
SAME = {"s3a": "s3", "s3n": "s3"}
"""Schemes of Hadoop, with pyarrow's names for them."""


class Stream(Protocol):
    """The bytes of an open file."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...
    def close(self) -> None: ...


class RdbPathError(ValueError):
    """A path that means no file, or cannot be looked at."""


@dataclass(frozen=True, slots=True)
class RdbFile:
    """One file. ``shown`` is its name for users, without credentials; ``uri`` opens it."""

    shown: str
    uri: str

    def open(self) -> tuple[Stream, int]:
        """Opens it, unbuffered, and gives its size in bytes, which may have changed since it was found.

        Raises:
            OSError: when it cannot be opened.
            RdbPathError: when this machine knows no such file system.
        """
        if "://" not in self.uri:
            file = FileIO(self.uri)
            return file, os.fstat(file.fileno()).st_size
        system, path = _system(self.uri)
        size: int = system.get_file_info(path).size
        return system.open_input_stream(path), size

    def look(self) -> tuple[int, float]:
        """Its size in bytes, and when it was written, in seconds since 1970; 0 if its file system does not say.

        Raises:
            OSError: when it is gone.
            RdbPathError: when this machine knows no such file system.
        """
        if "://" not in self.uri:
            found = os.stat(self.uri)
            return found.st_size, found.st_mtime
        system, path = _system(self.uri)
        seen = system.get_file_info(path)
        return int(seen.size or 0), float(seen.mtime.timestamp()) if seen.mtime else 0.0


def split(paths: str) -> list[str]:
    """The paths between commas. A comma within braces, or within the name of an existing file, does not separate."""
    if os.path.exists(paths):
        return [paths]
    found, depth, start = [], 0, 0
    for at, letter in enumerate(paths):
        if letter == "," and depth == 0:
            found.append(paths[start:at])
            start = at + 1
        depth += (letter == "{") - (letter == "}" and depth > 0)
    found.append(paths[start:])
    return [path.strip() for path in found if path.strip()]


def alternatives(pattern: str) -> list[str]:
    """The patterns that ``{a,b}`` in a pattern means."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    return [
        found
        for choice in match[1].split(",")
        for found in alternatives(pattern[: match.start()] + choice + pattern[match.end() :])
    ]


def find(paths: list[str], name_filter: str | None = None, recursive: bool = False) -> list[RdbFile]:
    """All files that the paths mean, each once, in the order of their names.

    ``name_filter`` is a glob that names of files have to match; ``recursive`` includes the folders in a folder.

    Raises:
        RdbPathError: when a path means no file, or its file system cannot be asked.
    """
    found: dict[str, RdbFile] = {}
    for path in paths:
        try:
            files = list(_local(path, recursive) if _is_local(path) else _reached(path, recursive))
        except OSError as error:
            raise RdbPathError(f"{_shown(path)} cannot be looked at: {error}") from error
        files = [file for file in files if fnmatch.fnmatchcase(file.shown.rpartition("/")[2], name_filter or "*")]
        if not files:
            raise RdbPathError(f"{_shown(path)} means no file; give a file, a folder, or a glob such as /backup/*.rdb")
        found.update({file.shown: file for file in files})
    return [found[name] for name in sorted(found)]


def _is_local(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) is None or path.startswith("file:")


def _shown(uri: str) -> str:
    """A URI without credentials: no user, no password, no query."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    place, slash, path = _without_query(rest).partition("/")
    user, at, host = place.rpartition("@")
    # In systems other than S3 it may be a container, or an account before its key.
    user = "" if scheme in S3 else user.partition(":")[0]
    return f"{scheme}://{user}{at if user else ''}{host}{slash}{path}"


def _without_query(uri: str) -> str:
    return re.split(QUERY, uri)[0]


def _reason(error: Exception, uri: str) -> str:
    """pyarrow's message, without the URI, which it may repeat with its credentials."""
    return str(error).splitlines()[0].replace(uri, _shown(uri))


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _local(path: str, recursive: bool) -> Iterator[RdbFile]:
    if path.startswith("file:"):
        # file:/a and file:///a, as Hadoop writes them, and a host that can only be this machine.
        match = re.fullmatch(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", path)
        if match is None:
            raise RdbPathError(f"{path} is no path of this machine; give file:///path")
        path = match[1]
    names = [path] if os.path.exists(path) else [name for one in alternatives(path) for name in glob.glob(one)]
    for name in names:
        if os.path.isdir(name):
            for folder, folders, files in os.walk(name):
                folders[:] = [inner for inner in folders if recursive and not _hidden(inner)]
                for file in files:
                    if not _hidden(file):
                        yield _local_file(os.path.join(folder, file))
        else:
            yield _local_file(name)


def _local_file(path: str) -> RdbFile:
    # Executors may have another working directory.
    path = os.path.abspath(path)
    return RdbFile(path, path)


def _system(uri: str) -> tuple[FileSystem, str]:
    """The file system of a URI, and the path in it."""
    try:
        from pyarrow import ArrowInvalid, ArrowNotImplementedError
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise RdbPathError("files that are not local need pyarrow: pip install 'slotferry[sizing]'") from error
    scheme, _, rest = uri.partition("://")
    try:
        system, path = FileSystem.from_uri(f"{SAME.get(scheme, scheme)}://{rest}")
    except (ArrowInvalid, ArrowNotImplementedError, OSError) as error:
        raise RdbPathError(
            f"{_shown(uri)} cannot be reached: {_reason(error, uri)}. Known are local paths, file:, and what pyarrow "
            "can do on this machine of hdfs:, s3:, gs: and abfs:; copy or mount files that are elsewhere"
        ) from None

    return system, path


def _reached(uri: str, recursive: bool) -> list[RdbFile]:
    """The result of :func:`_remote`. Raises OSError even where pyarrow raises another error, as for ``abfs``."""
    try:
        return list(_remote(uri, recursive))
    except OSError:
        raise
    except Exception as error:
        # It may be ArrowException itself, but pyarrow is not imported for local files.
        if type(error).__module__.startswith("pyarrow"):
            raise OSError(_reason(error, uri)) from None
        raise


def _remote(uri: str, recursive: bool) -> Iterator[RdbFile]:
    from pyarrow.fs import FileSelector, FileType

    plain = _without_query(uri)
    query = uri[len(plain) :]
    for one in alternatives(plain):
        # The part before any wildcard is a path; a query may contain no glob.
        fixed = WILD.split(one)[0]
        wild = fixed != one
        base = fixed.rpartition("/")[0] if wild else one
        system, path = _system(base + query)
        if not wild:
            info = system.get_file_info(path)
            if info.type == FileType.File:
                yield RdbFile(_shown(one), one + query)
                continue
        for info in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=wild or recursive)):
            inner = info.path[len(path.rstrip("/")) :].lstrip("/")
            name = f"{base.rstrip('/')}/{inner}"
            # Between slashes, a star matches no slash.
            matches = len(name.split("/")) == len(one.split("/")) and all(
                fnmatch.fnmatchcase(part, pattern)
                for part, pattern in zip(name.split("/"), one.split("/"), strict=True)
            )
            hidden = any(_hidden(part) for part in inner.split("/"))
            if info.type == FileType.File and (matches if wild else not hidden):
                yield RdbFile(_shown(name), name + query)
