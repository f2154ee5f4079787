"""Compiles Cython modules into a folder: ``python -m tests.fuzz.compile FOLDER FLAGS SOURCE ...``.

The flags are for the code under test, not for the tests' own code: the checks need no sanitizer.
"""

import shlex
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext


def main() -> None:
    folder, text, *sources = sys.argv[1:]
    flags = shlex.split(text)
    modules = []
    for source in sources:
        own = [] if source.startswith("tests/") else flags
        name = ".".join(Path(source).with_suffix("").parts)
        modules.append(Extension(name, [source], extra_compile_args=["-O1", "-g1", *own], extra_link_args=own))
    compiled = cythonize(
        modules,
        build_dir=f"{folder}/c",
        # As in setup.py: the code that is tried is the code that is run.
        compiler_directives={
            "language_level": "3",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": False,
        },
        quiet=True,
    )
    command = build_ext(Distribution({"ext_modules": compiled}))
    command.build_lib = folder
    command.build_temp = f"{folder}/objects"
    command.parallel = 2
    command.finalize_options()
    command.run()


if __name__ == "__main__":
    main()
