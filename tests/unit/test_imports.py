"""Which of the project's folders may import which other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ALLOWED: dict[str, set[str]] = {
    "slots": set(),
    "proxy": {"slots"},
    "migrator": {"slots"},
    "topom": {"slots", "migrator"},
    "sizing": {"slots"},
    "cli": {"slots", "proxy", "migrator", "topom", "sizing"},
}

# Compiled modules are no Python that ast could read; their imports are one line each.
CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w., ]+))", re.MULTILINE)


def imported(source: str, suffix: str) -> set[str]:
    """Full names of the modules that a source file imports, wherever in it the import stands."""
    if suffix == ".py":
        found: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                # Relative imports stay within their folder unless they climb out of it, which Python refuses.
                found.add(node.module or "" if not node.level else "")
        return found - {""}
    return {
        name.split(" as ")[0].strip()
        for match in CYTHON_IMPORT.finditer(source)
        for name in (match[1] or match[2]).split(",")
        if not name.strip().startswith(".")
    }


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".pyx", ".pxd"))


@pytest.mark.parametrize("folder", ALLOWED)
def test_folder_imports_only_what_it_may(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(folder)
        for module in sorted(imported(path.read_text(encoding="utf-8"), path.suffix))
        if (top := module.partition(".")[0]) in ALLOWED and top != folder and top not in ALLOWED[folder]
    ]
    assert sources(folder)
    assert wrong == []


def test_nothing_installed_imports_tests_or_benchmarks() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for folder in ALLOWED
        for path in sources(folder)
        for module in sorted(imported(path.read_text(encoding="utf-8"), path.suffix))
        if module.partition(".")[0] in ("tests", "benchmarks", "pytest", "hypothesis")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("suffix", "source", "modules"),
    [
        (".py", "import topom.store, os as o\nfrom slots import table", {"topom.store", "os", "slots"}),
        (".py", "from . import table\nfrom .table import x", set()),
        (".py", "def f():\n    from proxy.worker import run", {"proxy.worker"}),
        (".pyx", "from slots.functions cimport find, slot_function\nimport os", {"slots.functions", "os"}),
        (".pyx", "cimport cython\nfrom libc.stdint cimport uint8_t", {"cython", "libc.stdint"}),
        (".pyx", "    import topom.api as api, sys", {"topom.api", "sys"}),
        (".pyx", "from .buffer cimport Buffer", set()),
    ],
)
def test_how_imports_are_found(suffix: str, source: str, modules: set[str]) -> None:
    assert imported(source, suffix) == modules
