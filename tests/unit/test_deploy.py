"""The files under deploy/ and the pages for operators name settings, commands and files that there are."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from migrator.process.settings import MigratorSettings
from proxy.settings import ProxySettings
from proxy.supervisor import control, supervisor, workforce
from slotferry.main import app
from slots.settings import Settings
from topom import server
from topom.api.roles import needed
from topom.term.settings import TopomSettings

ROOT = Path(__file__).parents[2]
DEPLOY = [path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()]
OPERATIONS = [
    ROOT / "docs" / f"{name}.md"
    for name in ("operations", "alerts", "failures", "failures-servers", "servers-odd", "failures-moves", "taking-back")
]
PAGES = [*(ROOT / "docs" / name for name in ("deploy.md", "three-machines.md", "containers.md")), *OPERATIONS]
CLASSES: dict[str, type[Settings]] = {"PROXY": ProxySettings, "TOPOM": TopomSettings, "MIGRATOR": MigratorSettings}
SETTINGS = {part: {*kind.model_fields, *(f"{name}_file" for name in kind.secrets())} for part, kind in CLASSES.items()}
COMMAND: Any = typer.main.get_command(app)
PACKAGES = ("slots", "proxy", "migrator", "topom", "slotferry")

VARIABLE = re.compile(r"\bSLOTFERRY_(PROXY|TOPOM|MIGRATOR)_([A-Z][A-Z_]*[A-Z])\b")
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
RUN = re.compile(r"(?:^|\s)(?:/opt/slotferry/bin/)?slotferry (?=[a-z])")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def commands_of(text: str) -> list[str]:
    """What stands behind ``slotferry`` wherever a page shows it being run."""
    shown = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    shown += INLINE.findall(FENCED.sub("", text))
    return [line[match.end() :] for line in shown if not line.startswith("#") for match in [RUN.search(line)] if match]


def parse(line: str) -> None:
    """Parse arguments as the command line would, without running anything."""
    arguments = shlex.split(line, comments=True)
    ends = [place for place, argument in enumerate(arguments) if argument in ("|", ">", "&&", ";")]
    arguments = arguments[: ends[0]] if ends else arguments
    command = COMMAND
    context = command.make_context("slotferry", list(arguments))
    while hasattr(command, "resolve_command") and (left := [*context._protected_args, *context.args]):
        name, command, left = command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)


@pytest.mark.parametrize(
    "path", [*DEPLOY, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda path: path.name
)
def test_variables_are_those_of_settings(path: Path) -> None:
    unknown = [match[0] for match in VARIABLE.finditer(read(path)) if match[2].lower() not in SETTINGS[match[1]]]
    assert unknown == []


@pytest.mark.parametrize("path", DEPLOY, ids=lambda path: path.name)
def test_secrets_are_in_files_and_not_in_environments(path: Path) -> None:
    """A running process has the environment that it began with, so a token in it takes a restart to change."""
    said = [line for line in read(path).splitlines() if not line.lstrip().startswith("#")]
    found = [match for line in said for match in VARIABLE.finditer(line)]
    assert [match[0] for match in found if match[2].lower() in CLASSES[match[1]].secrets()] == []
    assert not re.search(r"SLOTFERRY_TOKEN\b(?!_FILE)|secretKeyRef", "\n".join(said))


@pytest.mark.parametrize("path", [*PAGES, *DEPLOY], ids=lambda path: path.name)
def test_commands_can_be_run_as_they_are_shown(path: Path) -> None:
    text = read(path)
    shown = commands_of(text) if path in PAGES else commands_of(f"```\n{text.replace('# ', '')}\n```")
    assert shown or path not in PAGES or path in OPERATIONS[1:]
    wrong = []
    for line in shown:
        try:
            parse(line)
        except Exception as error:
            wrong.append(f"slotferry {line}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize("line", ["stauts", "status --jsn", "group promote 1", "proxy drain first", "slot move 0-9"])
def test_what_cannot_be_run_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"."):
        parse(line)


def test_names_on_the_pages_for_operators_stand_in_the_code() -> None:
    sources = "\n".join(
        read(path)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".pyx", ".lua")
    )
    known = set(re.findall(r"\w+", sources)) | {f"server_{condition}" for condition in ("alive", "suspected", "failed")}
    known.add("rename_to")  # a keyspace event of Redis
    named = {
        name
        for page in OPERATIONS
        for code in INLINE.findall(FENCED.sub("", read(page)))
        for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", code)
    }
    counters = {name: name.removesuffix("_total") for name in named}
    unknown = {
        name
        for name, counter in counters.items()
        if not {name, counter, re.sub(r"^slotferry_(proxy|topom)_", "", counter)} & known
    }
    assert unknown == set()
    assert len(named) > 20


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINK.findall(read(path)) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []
    if path in (PAGES[0], OPERATIONS[0]):
        assert f"docs/{path.name}" in read(ROOT / "README.md")
    else:
        assert f"]({path.name})" in read(OPERATIONS[0] if path in OPERATIONS else PAGES[0])


def test_the_image_is_built_without_caches_and_what_builds_leave() -> None:
    left = {
        line.strip("/") for line in read(ROOT / ".gitignore").splitlines() if line.endswith("/") and "**" not in line
    }
    kept_out = {
        line.removeprefix("**/").rstrip("/")
        for line in read(ROOT / "deploy" / "Dockerfile.dockerignore").splitlines()
        if not line.startswith("#")
    }
    top = {name for name in left if "/" not in name}
    assert {".hypothesis", ".mypy_cache"} <= top
    assert {name.removeprefix("*.") for name in top} - {name.removeprefix("*.") for name in kept_out} == set()


def graces() -> dict[str, list[int]]:
    """Seconds between SIGTERM and SIGKILL in the files, by who gets them."""
    systemd = ROOT / "deploy" / "systemd"
    found: dict[str, list[int]] = {"proxy": [], "topom": []}
    for name in found:
        found[name] += map(int, re.findall(r"TimeoutStopSec=(\d+)$", read(systemd / f"slotferry-{name}.service"), re.M))
        for document in read(ROOT / "deploy" / "kubernetes.yaml").split("\n---\n"):
            if f'args: ["{name}"' in document:
                pauses = sum(map(int, re.findall(r'command: \[sleep, "(\d+)"\]', document)))
                grace = re.findall(r"terminationGracePeriodSeconds: (\d+)$", document, re.M)
                found[name] += [int(seconds) - pauses for seconds in grace]
        services = re.split(r"^  (?=\w)", read(ROOT / "deploy" / "compose.yaml"), flags=re.M)
        for service in services:
            if service.startswith(name):
                found[name] += map(int, re.findall(r"stop_grace_period: (\d+)s$", service, re.M))
    return found


def test_kubernetes_asks_topom_for_what_needs_no_token() -> None:
    asked = re.findall(r"httpGet: \{path: (\S+), port: http\}", read(ROOT / "deploy" / "kubernetes.yaml"))
    assert asked
    assert [path for path in asked if needed("GET", path) is not None] == []


def test_who_is_stopped_has_the_time_to_end_in_order() -> None:
    settings = ProxySettings()
    leaves = 2 * workforce.DRAIN_MARGIN_SECONDS + supervisor.LEFTOVERS_SECONDS + 2 * control.LEAVE_SECONDS
    assert f"and up to {leaves:.0f} s to leave" in read(PAGES[0])
    proxy = settings.drain_seconds + 2 * settings.drain_last_seconds + leaves
    topom = server.GRACE_SECONDS + 2 * TopomSettings().store_timeout_seconds
    found = graces()
    assert {name: len(seconds) for name, seconds in found.items()} == {"proxy": 3, "topom": 3}
    assert min(found["proxy"]) > proxy
    assert min(found["topom"]) > topom


@pytest.mark.parametrize("unit", ["slotferry-proxy.service", "slotferry-topom.service", "slotferry-migrator.service"])
def test_what_a_unit_needs_is_made_on_the_page(unit: str) -> None:
    text, page = read(ROOT / "deploy" / "systemd" / unit), read(PAGES[0])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    needed = {path for line in lines for path in re.findall(r"/(?:opt|etc)/slotferry[\w./-]*", line)}
    assert len(needed) == (5 if "topom" in unit else 4)
    assert [path for path in needed if path not in page] == []
    assert f"deploy/systemd/{unit}" in page
    assert re.search(r"useradd .*\bslotferry\b", page)
