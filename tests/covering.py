"""How many lines of what is pure its own unit tests run: ``scripts/coverage`` says it, and fails below a bound.

Pure is what decides without asking anybody: who plans, chooses, refuses, or says what a state becomes. There a line
that no test runs is a case that nobody has looked at. What waits for others is tried by tests of whole processes, of
whose lines nothing is counted. Compiled modules are not measured.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import coverage
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "tests" / "unit"
LEAST_PERCENT = 95.0
SEARCHES = (
    *("come_and_go", "sofaregistry_in_sum", "sofaregistrys_in_any", "same_nodes_stand_together"),
    *("largest_fleet", "large_fleets", "twelve_slots", "deterministic"),
)
"""In names of tests that try many cases, and are left out: others run the same lines, and are told of line by line."""
EXAMPLES = 20
"""Of each property."""

PURE: Mapping[str, tuple[str, ...]] = {
    "the slot table and what servers are told": ("slots/*.py", "slots/messages/*.py"),
    "planners": ("topom/balance/planners/**/*.py", "topom/balance/deciding.py", "topom/balance/simulation/*.py"),
    "placement": ("topom/placement/planner/*.py",),
    "the state and its changes": tuple(
        f"topom/cluster/{name}.py"
        for name in (
            *("cancelling", "differing", "event_finding", "hours", "leftovers", "records", "rules", "state"),
            *("topology",),
        )
    ),
    "who asks topom, and what for": (
        "topom/term/tokens.py",
        *(f"topom/api/{name}.py" for name in ("callers", "documents", "page_headers", "roles", "sessions")),
    ),
    "which keys and requests stand out": ("topom/load/hotkeys.py", "topom/load/notable.py"),
    "the load of the last day": tuple(f"topom/load/{name}.py" for name in ("day", "minutes", "history")),
    "what will hurt": tuple(
        f"topom/doctor/{name}.py"
        for name in (
            *("clocks", "facts", "findings", "kernel", "memory", "persistence", "proxies", "replication", "rights"),
            *("serving", "topoms", "versions", "waits"),
        )
    ),
    "which servers have failed": ("topom/servers/detector.py",),
    "who may follow whom": ("topom/servers/lastcopy.py",),
    "which way slots move": ("topom/migration/ways.py",),
    "which commands make a value": ("migrator/stream/values/*.py",),
    "which servers a copy may follow": ("migrator/forking.py", "migrator/stream/standing.py"),
    "who makes a copy": ("topom/migrators/choosing.py",),
    "which replica becomes the master": ("topom/masters/choice.py", "topom/masters/choicerules.py"),
}
"""By part, patterns of files below the project's folder."""


def modules_of(patterns: tuple[str, ...]) -> list[Path]:
    """The modules of a part; what only collects names of others is left out."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.name != "__init__.py")


def files_about(module: Path) -> Iterator[Path]:
    """The files of unit tests about a module: ``test_<module>.py``, and ``test_<module>_<what>.py`` in its folder."""
    folder, name = UNIT / module.relative_to(ROOT).parent, f"test_{module.stem}"
    yield from (file for file in sorted(folder.glob(f"{name}*.py")) if file.stem == name or file.stem[len(name)] == "_")


def main() -> int:
    """Run the tests and show what they ran; 1 if too little, or pytest's status if one fails."""
    parts = {name: modules_of(patterns) for name, patterns in PURE.items()}
    modules = sorted({module for listed in parts.values() for module in listed})
    tests = [str(file) for module in modules for file in files_about(module)]
    settings.register_profile(
        "coverage", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("coverage")
    chosen = " and ".join(f"not {name}" for name in SEARCHES)
    measured = coverage.Coverage(data_file=None, include=[str(module) for module in modules])
    measured.start()
    quietly = ("-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    failed = pytest.main([*quietly, "-k", chosen, *sys.argv[1:], *tests])
    measured.stop()
    if failed:
        return int(failed)
    wrong = False
    for name, listed in parts.items():
        lines = run = 0
        gaps = []
        for module in listed:
            _, statements, _, missing, _ = measured.analysis2(str(module))
            lines, run = lines + len(statements), run + len(statements) - len(missing)
            if missing:
                gaps.append(f"    {module.relative_to(ROOT)}: {', '.join(map(str, missing))}")
        percent = 100 * run / lines
        wrong |= percent < LEAST_PERCENT
        print(f"{percent:5.1f}% of {lines} lines: {name}", *gaps, sep="\n")
    if wrong:
        print(f"coverage: of each at least {LEAST_PERCENT:g}% have to be run by its own unit tests", file=sys.stderr)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
