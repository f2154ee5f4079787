"""Which of the project's folders may import which other, and which rooms of topom and the proxy which other rooms."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ALLOWED: dict[str, set[str]] = {
    "slots": set(),
    "rdb": set(),
    "proxy": {"slots", "rdb"},
    "migrator": {"slots", "rdb"},
    "topom": {"slots", "migrator"},
    "sizing": {"slots", "rdb"},
    "slotferry": {"slots", "rdb", "proxy", "migrator", "topom", "sizing"},
}

ROOMS = {
    "topom": (
        *(
            "reasons",
            "errors",
            "periodic",
            "store",
            "cluster",
            "servers",
            "proxies",
            "load",
            "migrators",
            "doctor",
            "migration",
            "copies",
        ),
        *("masters", "placement", "balance", "leaving", "term", "web", "api", "server"),
    ),
    "proxy": (
        *("users", "clusterview", "settings", "channel", "listening", "engine", "commandmetrics"),
        *("servers", "moving", "commands", "worker", "supervisor"),
    ),
}
"""Of a package, from the ground up: folders and single modules. Each may import only rooms that stand before it."""
ALL_ROOMS = [(package, room) for package, rooms in ROOMS.items() for room in rooms]
MODULES: dict[tuple[str, str], set[str]] = {
    ("topom", "reasons"): set(),
    ("topom", "errors"): set(),
    ("topom", "periodic"): {"errors", "reasons"},
    ("topom", "server"): {"errors", "term", "api"},
    ("proxy", "users"): set(),
    ("proxy", "clusterview"): set(),
    ("proxy", "settings"): {"users", "clusterview"},
    ("proxy", "channel"): set(),
    ("proxy", "listening"): {"settings"},
    ("proxy", "engine"): set(),
    ("proxy", "commandmetrics"): {"engine"},
}
"""What a room that is a single module may import; a folder says it in its own text, unless it may import none."""
MAY_IMPORT = re.compile(r"^May import: ([a-z,\s]+?)\.$", re.MULTILINE)

# Module ast cannot read the source of compiled modules; their imports are one line each.
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
        (".py", "def f():\n    from proxy.worker.worker import run", {"proxy.worker.worker"}),
        (".pyx", "from slots.functions cimport find, slot_function\nimport os", {"slots.functions", "os"}),
        (".pyx", "cimport cython\nfrom libc.stdint cimport uint8_t", {"cython", "libc.stdint"}),
        (".pyx", "    import topom.api as api, sys", {"topom.api", "sys"}),
        (".pyx", "from .buffer cimport Buffer", set()),
    ],
)
def test_how_imports_are_found(suffix: str, source: str, modules: set[str]) -> None:
    assert imported(source, suffix) == modules


def path_of(module: str) -> Path | None:
    """The file of one of our modules; None if there is no such module."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def modules_of(package: str, source: str, suffix: str = ".py") -> set[str]:
    """Modules of a package that a source file imports. A name that is taken from a folder may be a module of it."""
    found: set[str] = set()
    if suffix != ".py":
        return {module for module in imported(source, suffix) if module.startswith(f"{package}.")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name their module in full"
            whole = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if path_of(name) else str(node.module) for name in whole.values())
    return {module for module in found if module.startswith(f"{package}.")}


def rooms_of(package: str, source: str, suffix: str = ".py") -> set[str]:
    return {module.split(".")[1] for module in modules_of(package, source, suffix)}


def files_of(package: str, room: str) -> list[Path]:
    folder = ROOT / package / room
    return sources(f"{package}/{room}") if folder.is_dir() else [folder.with_suffix(".py")]


def may_import(package: str, room: str) -> set[str]:
    if (package, room) in MODULES:
        return MODULES[package, room]
    text = ast.get_docstring(ast.parse((ROOT / package / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    said = MAY_IMPORT.search(text)
    assert said, f"{package}/{room}/__init__.py has no line 'May import: ...'"
    return {room.strip() for room in said[1].split(",")}


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """The nodes on a circle or between two circles. These are left once all nodes without an arrow in or out are taken
    away."""
    while True:
        targets = set().union(*arrows.values())
        left = {name: kept for name, its in arrows.items() if name in targets and (kept := its & set(arrows))}
        if left == arrows:
            return set(left)
        arrows = left


@pytest.mark.parametrize("package", ROOMS)
def test_everything_is_in_a_room(package: str) -> None:
    # A folder that was left may still have what Python compiled.
    places = (path for path in (ROOT / package).iterdir() if path.suffix == ".py" or sources(f"{package}/{path.name}"))
    found = {path.name.removesuffix(".py") for path in places}
    assert found - {"__init__", "__pycache__"} == set(ROOMS[package])


@pytest.mark.parametrize(("package", "room"), ALL_ROOMS)
def test_room_may_import_only_rooms_below_it(package: str, room: str) -> None:
    rooms = ROOMS[package]
    assert may_import(package, room) <= set(rooms[: rooms.index(room)])


@pytest.mark.parametrize(("package", "room"), ALL_ROOMS)
def test_room_imports_only_what_it_may(package: str, room: str) -> None:
    allowed = {room} | may_import(package, room)
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in files_of(package, room)
        for other in sorted(rooms_of(package, path.read_text(encoding="utf-8"), path.suffix) - allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ROOMS)
def test_no_files_import_each_other_in_a_circle(package: str) -> None:
    """Those that are compiled aside: what is one class to Python is several files there."""
    arrows = {
        str(path): {str(path_of(module)) for module in modules_of(package, path.read_text(encoding="utf-8"))}
        for path in sources(package)
        if path.suffix == ".py"
    }
    assert circles(arrows) == set()


def test_no_families_of_commands_import_each_other_in_a_circle() -> None:
    """``families`` and ``dispatch``, which know all of them, stand above; what all of them use stands below."""
    folder = ROOT / "proxy" / "commands"
    arrows = {
        family.name: {
            module.split(".")[2]
            for path in family.glob("*.py")
            for module in modules_of("proxy", path.read_text(encoding="utf-8"))
            if module.startswith("proxy.commands.")
        }
        - {family.name}
        for family in folder.iterdir()
        if (family / "__init__.py").exists()
    }
    assert "pubsub" in arrows
    assert circles(arrows) == set()


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("from topom import api, errors", {"api", "errors"}),
        ("from topom.term.node import Node", {"term"}),
        ("from topom.cluster import ledger, topology", {"cluster"}),
        ("import topom.api.slots as slots, os", {"api"}),
        ("def late():\n    from topom.store import Store", {"store"}),
        ("from slots import table\nimport proxy.supervisor.control", set()),
    ],
)
def test_how_rooms_are_found(source: str, rooms: set[str]) -> None:
    assert rooms_of("topom", source) == rooms


@pytest.mark.parametrize(
    ("arrows", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}, {"a", "b"}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, {"a", "b", "c"}),
    ],
)
def test_how_circles_are_found(arrows: dict[str, set[str]], found: set[str]) -> None:
    assert circles(arrows) == found
