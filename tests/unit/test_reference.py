"""The pages of the reference have all that the code has: settings, commands, requests, errors and metrics."""

import importlib.util
import re
from pathlib import Path

import pytest
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
from topom.errors import TopomError
from topom.term.settings import TopomSettings

__all__ = ["eventually", "follows", "topoms", "two"]

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
    assert {f"{method} {route.path}" for route in served for method in route.methods} == set(told)  # type: ignore[attr-defined]
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
