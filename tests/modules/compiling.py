"""Compiles the modules for Redis servers that are beside it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path


def compiled(name: str, folder: Path) -> str:
    """Path of ``name.c`` of this folder as a module, in ``folder``."""
    path = folder / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    flags = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-shared", "-fPIC", *flags, "-o", str(path), str(source)], check=True)
    return str(path)
