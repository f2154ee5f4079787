"""The pages of the reference have all that the code has: settings, commands, requests, errors, metrics and events."""

import ast
import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest
import structlog
import typer.main
from prometheus_client.registry import Collector

from migrator.process.settings import MigratorSettings
from proxy.settings import ProxySettings
from proxy.supervisor.metrics import Counters, ProxyCollector
from slotferry.main import app
from tests.unit.topom.operators import eventually
from tests.unit.topom.term.test_metrics import figures
from tests.unit.topom.term.test_node import Topoms, follows, topoms, two
from topom.api import RESOURCES
from topom.cluster.events import Event, What
from topom.errors import TopomError
from topom.term.settings import TopomSettings

__all__ = ["eventually", "follows", "topoms", "two"]

ROOT = Path(__file__).parents[2]
PACKAGES = ("topom", "proxy", "migrator", "slots", "sizing", "rdb", "slotferry")
LOGGED = re.compile(
    r"\b(?:log|events|structlog\.get_logger\(\))\.(?:debug|info|warning|error|exception|critical|log)\("
    r'\s*(?:[a-z.]+,\s*)?"(\w+)"(?:\s+if\s[^,\n]+\selse\s+"(\w+)")?'
    r'|\bReasons\[[^\n]*\]\(\s*"(\w+)"'
)
"""A call that writes an event into the log, with the event's name, or the two that it may have."""
SCRIPT = Path(__file__).parents[2] / "scripts" / "reference.py"
SPECIFICATION = importlib.util.spec_from_file_location("reference", SCRIPT)
assert SPECIFICATION is not None
assert SPECIFICATION.loader is not None
REFERENCE = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(REFERENCE)
PAGES: dict[str, str] = REFERENCE.pages()


def page(name: str) -> str:
    return PAGES[f"docs/reference/{name}.md"]


@pytest.mark.parametrize("settings", [TopomSettings, ProxySettings, MigratorSettings])
def test_every_setting_is_there_with_what_it_is_for(settings: type[TopomSettings]) -> None:
    told = set(re.findall(r"^\| `([a-z_]+)` \| `[^|]+` \| [^|]*\w", page("settings"), re.M))
    assert set(settings.model_fields) - told == set()


def test_every_command_is_there_with_all_its_options() -> None:
    def look(path: str, command: object) -> None:
        for name, below in getattr(command, "commands", {}).items():
            if not below.hidden:
                look(f"{path} {name}", below)
        if not hasattr(command, "commands"):
            [part] = re.findall(rf"^## `{path}`\n(.*?)(?=^## |\Z)", page("command-line"), re.M | re.S)
            missing = [
                option
                for one in getattr(command, "params", ())
                if one.name != "help" and not getattr(one, "hidden", False)
                for option in one.opts
                if option not in part
            ]
            assert missing == [], path

    look("slotferry", typer.main.get_command(app))


def test_every_request_is_there_with_its_role() -> None:
    told = dict(re.findall(r"^\| `([A-Z]+ /\S*)` \| (\w+) \|", page("api"), re.M))
    served = [route for one in RESOURCES for route in one.router.routes if getattr(route, "include_in_schema", False)]
    assert {f"{method} {route.path_format}" for route in served for method in route.methods} == set(told)  # type: ignore[attr-defined]
    assert told["GET /api/v1/status"] == "viewer"
    assert told["POST /api/v1/slots/move"] == "operator"
    assert told["GET /livez"] == "anybody"


def test_every_error_is_there_once_it_is_known() -> None:
    for error in TopomError.__subclasses__():
        assert f"| `{error.__name__}` | {error.status} |" in page("errors")


def test_no_sentence_of_a_table_is_missing() -> None:
    for name in ("api", "errors", "metrics", "settings"):
        assert re.findall(r"^\|.*\|\s*\|$", page(name), re.M) == []


async def test_every_metric_of_a_topom_is_there(two: Topoms) -> None:
    await follows(two, "b")
    for name in ("a", "b"):
        found = {re.sub(r"_(total|created|bucket|count|sum|info)$", "", key[0]) for key in await figures(two, name)}
        assert [one for one in found - {"build"} if f"| `slotferry_topom_{one}` |" not in page("metrics")] == []


def test_every_metric_of_a_proxy_is_there() -> None:
    collector: Collector = ProxyCollector(Counters(), dict, dict)
    found = {family.name for family in collector.collect()} - {"slotferry_proxy_build", "slotferry_proxy_build_info"}
    assert len(found) > 20
    assert [name for name in found if f"| `{name}` |" not in page("metrics")] == []
    # The supervisor's own.
    assert "| `slotferry_proxy_epoch` |" in page("metrics")


def test_every_kind_of_event_is_there_and_no_other() -> None:
    kinds, fields = page("events").split("## Fields")
    assert re.findall(r"^\| `(\w+)` \| \w", kinds, re.M) == [what.value for what in What]
    assert re.findall(r"^\| `(\w+)` \| \w", fields, re.M) == [field.name for field in dataclasses.fields(Event)]


def test_every_kind_of_event_is_one_that_topom_tells() -> None:
    told = {
        name
        for path in (ROOT / "topom").rglob("*.py")
        if path.name != "events.py"
        for name in re.findall(r"\bWhat\.([A-Z_]+)\b", path.read_text(encoding="utf-8"))
    }
    assert told == set(What.__members__)


def test_every_event_of_the_log_is_there_and_no_other() -> None:
    written = {
        name
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        for names in LOGGED.findall(path.read_text(encoding="utf-8"))
        for name in names
        if name
    }
    assert set(re.findall(r"^\| `(\w+)` \| \w[^|]*\|[^|]*\| [^|]*\w", page("log"), re.M)) == written
    assert {"leading", "worker_hangs", "topom_refused", "topom_misplaced", "library_said"} <= written


def test_no_event_of_the_log_is_written_by_another_way() -> None:
    """What writes events is only called, so the page sees their names. Waits have theirs from where they are made."""
    otherwise = []
    for path in (path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "log = structlog.get_logger(" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        called = {id(call.value) for call in calls if isinstance(call, ast.Attribute)}
        names = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for node in names:
            if node.id == "log" and id(node) not in called:
                otherwise.append(f"{path.relative_to(ROOT)}: {text.splitlines()[node.lineno - 1].strip()}")
    assert otherwise == [
        "topom/reasons.py: getattr(log, self._level)(self._news, **told, kind=new.kind, reason=str(new))"
    ]


async def test_what_topoms_say_and_store_is_there(topoms: Topoms) -> None:
    with structlog.testing.capture_logs() as said:
        await topoms.start("a")
        await eventually(lambda: topoms.nodes["a"].leading is not None)
        await topoms.start("b")
        await topoms.led_by("a")
        await topoms.ask("a", "POST", "/groups", {"id": 1, "servers": ["127.0.0.1:1"]})
        await topoms.ask("a", "POST", "/pause", {"why": "a test"})
        await follows(topoms, "b")
    events = (await topoms.ask("a", "GET", "/events")).json()["events"]
    assert len({event["what"] for event in events}) > 1
    assert [event["what"] for event in events if f"| `{event['what']}` |" not in page("events")] == []
    assert len({one["event"] for one in said}) > 1
    for one in said:
        rows = re.findall(rf"^\| `{one['event']}` \| ([^|]*) \| ([^|]*) \|", page("log"), re.M)
        assert any(one["log_level"] in levels for levels, _ in rows), one
        missing = [
            name
            for name in one.keys() - {"event", "log_level", "exc_info"}
            if not any(f"`{name}`" in fields or "…" in fields for _, fields in rows)
        ]
        assert missing == [], one
