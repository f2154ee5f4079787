"""Builds the compiled modules; everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Nobody debugs Cython's C code. Python asks for debug information by default; without it, the build takes three
# quarters of the time.
FLAGS = ["-O3", "-g0", *(["-fno-plt", "-fno-semantic-interposition"] if sys.platform == "linux" else [])]

modules = [
    Extension(".".join(source.with_suffix("").parts), [str(source)], extra_compile_args=FLAGS)
    for folder in ("slots", "slots/requests", "proxy/engine", "rdb", "migrator/stream", "sizing/rdb")
    for source in sorted(Path(folder).glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        modules,
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
