"""Tests stand where the code does: a module's are found under its name, in a folder of its folder's name."""

from pathlib import Path

import pytest

from tests.covering import PURE, files_about, modules_of

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SUFFIXES = (".py", ".pyx", ".pxd")

OF_NO_MODULE = {
    "deploy/test_chart.py": "the Helm chart under deploy/helm",
    "deploy/test_compose.py": "the file deploy/compose.yaml",
    "deploy/test_kubernetes.py": "the file deploy/kubernetes.yaml",
    "deploy/test_systemd.py": "the units under deploy/systemd",
    "test_alerts.py": "the file deploy/prometheus/alerts.yaml",
    "test_architecture.py": "a page of the documents",
    "test_command_blocks.py": "the command blocks of the documents",
    "test_command_docs.py": "a page of the documents",
    "test_deploy.py": "the files under deploy/ and the pages for operators",
    "test_doctor_docs.py": "a page of the documents",
    "test_figures.py": "a page of the documents",
    "test_imports.py": "which folder imports which",
    "test_long.py": "what tests/conftest.py leaves out of a run",
    "test_mirrors.py": "this one",
    "test_reference.py": "the pages that scripts/reference.py makes",
    "test_site.py": "the site of the documents, which mkdocs.yml describes",
    "test_settings.py": "the files under configs/",
    "test_style.py": "the pages of the documents",
    "test_wheel.py": "what is installed",
    "topom/test_odd_servers.py": "all that several rooms of topom ask a server",
}
"""Tests that are about something else than a module or a room, and what that is."""

UNTESTED = {
    "slots/garbage.py": "it is told to the garbage collector at a start, and changes no answer",
    "slots/kinds.py": "it is names, and the base of errors whose tests look at it",
    "slots/reserved.py": "it is one constant",
    "topom/balance/planners/packing/layout.py": "it is what the steps of packing stand on, whose tests look at it",
    "topom/masters/choicerules.py": "they are the rules of a choice: its tests are a table of them",
    "topom/placement/planner/solving.py": "it tries all ways: the tests of planning are about what it finds",
}
"""Pure modules without their own tests, and why that is right."""


def mirrored(test: Path) -> bool:
    """Whether a test file is of a module, of something about a module (``test_<module>_<what>.py``), or of a room.

    Tools of tests have their own tests: ``tests/unit/histories`` is about ``tests/histories``.
    """
    room = test.relative_to(HERE).parent
    words = test.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    places = (ROOT / room, ROOT / "tests" / room)
    of_module = any((place / f"{name}{suffix}").exists() for place in places for name in names for suffix in SUFFIXES)
    return of_module or (names[-1] == room.name and any(place.is_dir() for place in places))


def test_every_file_of_tests_is_named_after_what_it_is_about() -> None:
    wrong = [
        str(test.relative_to(HERE))
        for test in sorted(HERE.rglob("test_*.py"))
        if str(test.relative_to(HERE)) not in OF_NO_MODULE and not mirrored(test)
    ]
    assert wrong == []


def test_every_folder_of_tests_is_one_of_the_code() -> None:
    folders = {path.parent.relative_to(HERE) for path in HERE.rglob("*.py")}
    assert {folder for folder in folders if not any((of / folder).is_dir() for of in (ROOT, ROOT / "tests"))} == set()


@pytest.mark.parametrize("name", PURE)
def test_every_pure_module_has_tests(name: str) -> None:
    assert all(modules_of((pattern,)) for pattern in PURE[name])
    modules = modules_of(PURE[name])
    without = {str(module.relative_to(ROOT)) for module in modules if not any(files_about(module))}
    assert without - set(UNTESTED) == set()


@pytest.mark.parametrize("name", OF_NO_MODULE)
def test_what_is_excepted_is_there_and_has_to_be(name: str) -> None:
    assert (HERE / name).exists()
    assert name in ("test_settings.py",) or not mirrored(HERE / name)


@pytest.mark.parametrize("name", UNTESTED)
def test_what_has_no_tests_is_there(name: str) -> None:
    assert (ROOT / name).exists()
    assert not any(files_about(ROOT / name))
