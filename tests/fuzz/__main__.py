"""Fuzzes the parser of requests and replies: ``scripts/fuzz --help``."""

import argparse
import hashlib
import mmap
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import build, mutations

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
"""Inputs to start from; among them are those that once found something."""
SHOWN_SECONDS = 60.0
NAMED = 65536 * 8


def corpus() -> list[bytes]:
    """What is kept."""
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def save(data: bytes) -> Path:
    """Keep an input that found something."""
    path = CORPUS / f"found-{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


def fuzz(arguments: argparse.Namespace) -> int:
    """In the process that has the sanitizer."""
    from tests.fuzz import targets

    if arguments.read_too_far:
        targets.read_too_far()
        return 0
    if arguments.guided:
        from tests.fuzz import guided

        return int(guided.run(arguments.guided))
    kept = corpus()
    current = mmap.mmap(arguments.current, NAMED)
    chance = random.Random(arguments.seed)
    begun = shown = time.monotonic()
    ended = begun + arguments.minutes * 60 if arguments.minutes else float("inf")
    for number in range(arguments.inputs):
        data = kept[number] if number < len(kept) else mutations.one(chance, kept)
        # If the process crashes, the input is found there.
        current[: 8 + len(data)] = len(data).to_bytes(8, "little") + data
        try:
            targets.check(data)
        except targets.Broken as error:
            print(f"input {number}, seed {arguments.seed}: {error}", flush=True)
            return 1
        if number & 1023 == 0 and (now := time.monotonic()) > shown + SHOWN_SECONDS:
            shown = now
            print(f"{number} inputs, {number / (now - begun):.0f} a second", flush=True)
            if now > ended:
                break
    print(f"{number + 1} inputs in {time.monotonic() - begun:.0f} s, seed {arguments.seed}: all held", flush=True)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Build what is needed, fuzz in a process of its own, and keep the input that broke something."""
    flavours = [flavour for flavour in build.flavours() if bool(flavour.fuzzer) == arguments.coverage]
    if arguments.plain:
        flavours = [flavour for flavour in flavours if not flavour.sanitized]
    if not flavours:
        print("guided fuzzing needs clang with its runtime (on Debian: apt-get install clang libclang-rt-14-dev)")
        return 2
    flavour = flavours[0]
    build.build(flavour)
    print(f"fuzzing: {'with' if flavour.sanitized else 'WITHOUT'} AddressSanitizer ({flavour.name})", flush=True)
    forwarded = ["--child", flavour.name, "--seed", str(arguments.seed), "--inputs", str(arguments.inputs)]
    forwarded += ["--minutes", str(arguments.minutes), *(["--read-too-far"] if arguments.read_too_far else [])]
    with tempfile.NamedTemporaryFile() as current, tempfile.TemporaryDirectory() as found:
        current.truncate(NAMED)
        if arguments.coverage:
            seeds = str(CORPUS)
            limit = (
                f"-max_total_time={arguments.minutes * 60:.0f}" if arguments.minutes else f"-runs={arguments.inputs}"
            )
            options = [limit, f"-seed={arguments.seed}", "-max_len=512", "-print_final_stats=1"]
            options += [f"-dict={FOLDER / 'tokens.dict'}", f"-artifact_prefix={CORPUS}/found-"]
            forwarded += ["--", *options, found, seeds]
        status = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--current", str(current.fileno()), *forwarded],
            env=build.environment_of(flavour),
            cwd=build.ROOT,
            pass_fds=[current.fileno()],
            check=False,
        ).returncode
        size = int.from_bytes(current.read(8), "little")
        if status and size:
            print(f"kept as {save(current.read(size))}")
    return 1 if status else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many (1000000)")
    parser.add_argument("--minutes", type=float, default=0, help="end after this time all the same")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same inputs (1)")
    parser.add_argument("--coverage", action="store_true", help="guided by coverage, with libFuzzer; needs clang")
    parser.add_argument("--plain", action="store_true", help="without a sanitizer, even where there is one")
    parser.add_argument("--read-too-far", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--current", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("guided", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.child:
        return run(arguments)
    build.use(next(flavour for flavour in build.flavours() if flavour.name == arguments.child))
    return fuzz(arguments)


if __name__ == "__main__":
    sys.exit(main())
