"""Builds the parser once more beside the ordinary one, with sanitizers in it, and what drives it.

Nothing is built in place: a build is a folder under ``build/fuzz/``, and :func:`use` puts the compiled modules in it
before those of the checkout.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ROOT / "build" / "fuzz"
INSTRUMENTED = ["proxy/engine/resp.pyx", "slots/requests/parsing.pyx", "slots/requests/commandlookup.pyx"]
DEPENDENCIES = [
    *INSTRUMENTED,
    "proxy/engine/resp.pxd",
    "slots/requests/parsing.pxd",
    "slots/requests/commandlookup.pxd",
]
SANITIZE = [
    "-fsanitize=address,signed-integer-overflow,shift,bounds,null,integer-divide-by-zero",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
]
FUZZER_LIBRARY = "libclang_rt.fuzzer_no_main-x86_64.a"


@dataclass(frozen=True)
class Flavour:
    """A way to build: the compiler, its flags, and the libraries to load before anything else."""

    name: str
    compiler: str = ""
    flags: tuple[str, ...] = ()
    preloaded: tuple[str, ...] = ()
    fuzzer: str = ""
    """The path of libFuzzer, which is linked into a separate library."""

    @property
    def folder(self) -> Path:
        return BUILDS / self.name

    @property
    def sanitized(self) -> bool:
        return bool(self.preloaded)


def compilers() -> list[str]:
    """Compilers that there are, the one with libFuzzer first."""
    names = ["clang", *(f"clang-{version}" for version in range(22, 10, -1)), "gcc"]
    return [name for name in names if shutil.which(name)]


def _file_of(compiler: str, name: str) -> str:
    """The path of one of the compiler's own libraries; empty if it has none."""
    result = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    found = Path(result.stdout.strip() or name)
    return str(found.resolve()) if found.is_absolute() and found.is_file() else ""


def flavours() -> list[Flavour]:
    """The builds that are possible here, the best first. The last one needs no more than the ordinary build."""
    found: list[Flavour] = []
    for compiler in compilers() if sys.platform == "linux" else []:
        runtime = _file_of(compiler, "libclang_rt.asan-x86_64.so") or _file_of(compiler, "libasan.so")
        if not runtime:
            continue
        fuzzer = _file_of(compiler, FUZZER_LIBRARY)
        if fuzzer and not any(flavour.fuzzer for flavour in found):
            flags = (*SANITIZE, "-fsanitize=fuzzer-no-link", "-shared-libasan")
            found.append(Flavour("guided", compiler, flags, (str(BUILDS / "guided" / "fuzzer.so"), runtime), fuzzer))
        shared = ("-shared-libasan",) if "clang" in runtime else ()
        found.append(Flavour(f"address-{compiler}", compiler, (*SANITIZE, *shared), (runtime,)))
    return [*found, Flavour("plain")]


def _stamp(flavour: Flavour, sources: list[str]) -> str:
    digest = hashlib.sha256(repr((flavour, sys.version)).encode())
    for name in sorted({*sources, *DEPENDENCIES, "tests/fuzz/build.py", "tests/fuzz/compile.py"}):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def build(flavour: Flavour) -> None:
    """Build a flavour unless it is built already.

    Raises:
        subprocess.CalledProcessError: with the compiler's words on standard error.
    """
    sources = [*(INSTRUMENTED if flavour.sanitized else []), "tests/fuzz/targets.pyx"]
    if flavour.fuzzer:
        sources.append("tests/fuzz/guided.pyx")
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / f"{flavour.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        _build(flavour, sources)


def _build(flavour: Flavour, sources: list[str]) -> None:
    stamp = flavour.folder / "stamp"
    wanted = _stamp(flavour, sources)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(flavour.folder, ignore_errors=True)
    flavour.folder.mkdir(parents=True)
    if flavour.fuzzer:
        archive = ["-Wl,--whole-archive", flavour.fuzzer, "-Wl,--no-whole-archive"]
        command = [flavour.compiler, "-shared", "-fPIC", "-o", flavour.preloaded[0], *archive]
        subprocess.run([*command, "-lstdc++", "-lpthread", "-lm"], check=True)
    environment = dict(os.environ)
    if flavour.compiler:
        environment |= {"CC": flavour.compiler, "LDSHARED": f"{flavour.compiler} -shared"}
    subprocess.run(
        [sys.executable, "-m", "tests.fuzz.compile", str(flavour.folder), shlex.join(flavour.flags), *sources],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    stamp.write_text(wanted)


def use(flavour: Flavour) -> None:
    """Have Python import this flavour's modules, before any of them was imported."""
    import proxy.engine
    import slots.requests
    import tests.fuzz

    for package in (proxy.engine, slots.requests, tests.fuzz):
        package.__path__.insert(0, str(flavour.folder.joinpath(*package.__name__.split("."))))


def environment_of(flavour: Flavour) -> dict[str, str]:
    """The environment of a Python in which a flavour's modules can be imported."""
    environment = dict(os.environ)
    if flavour.sanitized:
        environment |= {
            "LD_PRELOAD": " ".join(flavour.preloaded),
            # What Python leaves to the end of the process is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1",
            # So that bytes objects are watched as well.
            "PYTHONMALLOC": "malloc",
        }
    return environment
