"""The pages of the reference that are made from the code, when the site of the documents is built.

No such page stands in the repository, so none can be older than the code. Each function gives the text of one.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main
from fastapi import FastAPI

import topom
from proxy.supervisor.workermetrics import WORKER_METRICS
from sizing.options import ReadOptions
from slotferry.main import app
from topom.api import RESOURCES
from topom.api.event_models import Event
from topom.api.roles import describe
from topom.cluster.events import What
from topom.errors import TopomError

ROOT = Path(topom.__file__).parents[1]
PROCESSES = {"topom": "topom", "proxy": "A proxy", "migrator": "A migrator"}
METRICS = {
    "slotferry_topom_": ("topom/term/metrics.py", "topom/store/timed.py"),
    "slotferry_proxy_": (
        *("proxy/supervisor/metrics.py", "proxy/supervisor/figures.py"),
        *("proxy/supervisor/trafficmetrics.py", "proxy/commandmetrics.py"),
    ),
}
"""By prefix, the files that say what metrics are called and what they tell."""
LOGS = {
    "topom": "topom",
    "A proxy": "proxy",
    "A migrator, and topom where keys move one by one": "migrator",
    "Each of them": "slots",
    "A sizing, in the output of Spark's executors": "sizing",
}
"""By title, the folders whose modules write events into the log."""
LOGGERS = ("log", "events", "structlog.get_logger()")
"""What modules call that which writes them."""
LEVELS = {
    **{level: level for level in ("debug", "info", "warning", "error", "critical")},
    "exception": "error",
    "log": "the library's",
}
"""By method."""
SENTENCE = re.compile(r"[A-Z0-9].*\.", re.S)
SETTING = re.compile(r"^(?P<name>[a-z_]+) = (?P<default>.*)$")


def pages() -> dict[str, str]:
    """By path in the site, the text of each page."""
    return {
        "docs/reference/settings.md": settings(),
        "docs/reference/command-line.md": command_line(),
        "docs/reference/api.md": api(),
        "docs/reference/errors.md": errors(),
        "docs/reference/metrics.md": metrics(),
        "docs/reference/events.md": events(),
        "docs/reference/log.md": log(),
    }


def settings() -> str:
    """Every setting of each process, as its annotated file has it, and the options of a sizing."""
    text = [
        "# Settings",
        "`slotferry config topom` prints the same as a file to edit, and `slotferry config check FILE` says what is "
        "wrong with one. A variable of the environment wins over the file: `SLOTFERRY_TOPOM_LISTEN` for `listen` of "
        "topom, and so on.",
    ]
    for process, title in PROCESSES.items():
        text += [f"## {title}", *_settings_of((ROOT / "configs" / f"{process}.toml").read_text(encoding="utf-8"))]
    options = [(f"`{each.name}`", _shown(each.default), each.metadata["doc"]) for each in fields(ReadOptions)]
    text += ["## A sizing", "[From a program](../sizing-source.md) says how options are given."]
    text += [_table(("option", "default", "what it is for"), options)]
    return "\n\n".join(text) + "\n"


def _settings_of(file: str) -> Iterator[str]:
    """The parts of a settings file, each a heading and a table."""
    title, rows, comment = "", list[tuple[str, str, str]](), list[str]()
    for line in file.splitlines():
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
            if [comment[0], comment[-1]] == ["", ""] and len(comment) > 2:
                if rows:
                    yield _part(title, rows)
                title, rows, comment = " ".join(comment).strip(), [], []
        elif found := SETTING.match(line):
            rows.append((f"`{found['name']}`", f"`{found['default']}`", " ".join(comment)))
            comment = []
        else:
            comment = []
    yield _part(title, rows)


def _part(title: str, rows: list[tuple[str, str, str]]) -> str:
    table = _table(("setting", "default", "what it is for"), rows)
    return f"**{title[0].upper()}{title[1:]}.**\n\n{table}" if title else table


def command_line() -> str:
    """Every command of ``slotferry`` with its arguments and options."""
    text = ["# The command line", "`slotferry COMMAND --help` says the same in a terminal."]
    for path, command in _commands("slotferry", typer.main.get_command(app)):
        text += [f"## `{path}`", re.sub(r"\s+", " ", command.help or "").strip()]
        rows = [
            (" ".join((*one.opts, *one.secondary_opts)), _shown_default(one), getattr(one, "help", None) or "")
            for one in command.params
            if one.name != "help" and not getattr(one, "hidden", False)
        ]
        if rows:
            text += [_table(("argument or option", "default", ""), [(f"`{name}`", *rest) for name, *rest in rows])]
    return "\n\n".join(text) + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from _commands(f"{path} {name}", below)


def _shown_default(one: Any) -> str:
    return "" if one.default is None or callable(one.default) or one.required else _shown(one.default)


def api() -> str:
    """Every request of the HTTP API, with the role that it needs."""
    document = FastAPI(title="topom", routes=[route for one in RESOURCES for route in one.router.routes]).openapi()
    describe(document)
    rows = [
        (f"`{method.upper()} {path}`", endpoint["x-role"], endpoint.get("description", ""))
        for path, methods in document["paths"].items()
        for method, endpoint in methods.items()
    ]
    text = [
        "# The HTTP API",
        "topom describes it with all bodies at `/openapi.json`, and at `/docs` once you have logged in. A request has "
        "the header `Authorization: Bearer TOKEN`. [Tokens and roles](../tokens.md) says "
        "what a role may do, and [errors](errors.md) what a refusal is called.",
        _table(("request", "role", "what it does"), rows),
    ]
    return "\n\n".join(text) + "\n"


def errors() -> str:
    """Every error of topom's API, with its status and what it waits for."""
    for module in pkgutil.walk_packages(topom.__path__, "topom."):
        importlib.import_module(module.name)
    rows = [
        (f"`{error.__name__}`", str(error.status), f"`{error.kind.value}`", (error.__doc__ or "").partition("\n\n")[0])
        for error in sorted(_below(TopomError), key=lambda error: error.__name__)
        if not error.__name__.startswith("_")
    ]
    text = [
        "# Errors of the API",
        'A refusal is `{"error": NAME, "message": SENTENCE}`. [Why something waits](../operations.md'
        "#why-something-waits) says what the kinds are.",
        _table(("error", "status", "kind", "when"), rows),
    ]
    return "\n\n".join(text) + "\n"


def _below(error: type[TopomError]) -> set[type[TopomError]]:
    return {error, *(one for below in error.__subclasses__() for one in _below(below))}


def metrics() -> str:
    """Every metric of topom and of a proxy, without what Prometheus adds to a name."""
    text = [
        "# Metrics",
        "Prometheus adds `_total` to the name of what only grows, and `_bucket`, `_sum` and `_count` to times. "
        "`slotferry_topom_build_info` and `slotferry_proxy_build_info` have the version as their label. "
        "[What to be alerted by](../alerts.md#what-to-be-alerted-by) says which to look at.",
    ]
    for prefix, files in METRICS.items():
        found = {name: said for file in files for name, said in _told((ROOT / file).read_text(encoding="utf-8"))}
        if prefix == "slotferry_proxy_":
            found |= {name: metric.text for name, metric in WORKER_METRICS.items()}
        rows = sorted((f"`{prefix}{name.removeprefix(prefix)}`", said) for name, said in found.items())
        text += [f"## {prefix.split('_')[1]}", _table(("metric", "what it is"), rows)]
    return "\n\n".join(text) + "\n"


def _told(source: str) -> Iterator[tuple[str, str]]:
    """A name and the sentence behind it, wherever a call, a tuple or a dict of a file has them side by side."""
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            parts = node.args
        elif isinstance(node, ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and isinstance(value, ast.Tuple) and _word(key) and (said := _text(value.elts[0])):
                    yield _word(key), said
        if len(parts) >= 2 and (name := _word(parts[0])) and SENTENCE.fullmatch(said := _text(parts[1])):
            yield name, said


def _word(node: ast.expr) -> str:
    """A name of a metric; of an f-string the part behind the prefix."""
    text = _text(node.values[-1]) if isinstance(node, ast.JoinedStr) else _text(node)
    return text if re.fullmatch(r"[a-z][a-z_]+", text) else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def events() -> str:
    """Every kind of event, and the fields that all events have."""
    kinds = [(f"`{what}`", f"{what.meaning} ([more](../{what.page}))" if what.page else what.meaning) for what in What]
    told = [(f"`{name}`", str(field.description)) for name, field in Event.model_fields.items()]
    text = [
        "# Kinds of events",
        "What an [event](../events.md) may tell: each kind that topom stores, and the fields of all events.",
        _table(("kind", "tells that"), kinds),
        "## Fields",
        "All events have the same. `text` has what is peculiar to one, for people.",
        _table(("field", "what it is"), told),
    ]
    return "\n\n".join(text) + "\n"


def log() -> str:
    """Every event of the log: who writes it, how important it is, and its fields."""
    text = [
        "# Events of the log",
        "What topom, proxies and migrators write to standard error: a line each, of JSON unless it goes to a terminal. "
        "`event` is one of the names below. `level` is how important it is; the setting `log_level` says which are "
        "written. `timestamp` is when it was. `reason` is a sentence, and `exception` has a traceback. An ellipsis "
        "stands for fields that differ. What is done to the cluster is told by [its own events](events.md), too.",
    ]
    for title, folder in LOGS.items():
        rows = dict[tuple[str, str], tuple[set[str], dict[str, None]]]()
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for call, level in _log_calls(tree):
                for name in _logged(call, path):
                    levels, named = rows.setdefault((name, _about(tree)), (set(), {}))
                    levels.add(level)
                    named |= dict.fromkeys(_fields(call))
        table = [
            (f"`{name}`", ", ".join(sorted(levels)), ", ".join(named), about)
            for (name, about), (levels, named) in sorted(rows.items())
        ]
        text += [f"## {title}", _table(("event", "level", "fields", "what the module does that writes it"), table)]
    return "\n\n".join(text) + "\n"


def _log_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls of a module that write an event, each with its level."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=logger, attr=level), args=[_, *_]):
                if level in LEVELS and ast.unparse(logger) in LOGGERS:
                    yield node, LEVELS[level]
            case ast.Call(func=ast.Subscript(value=ast.Name(id="Reasons")), args=[_, *_]):
                yield node, next((_text(one.value) for one in node.keywords if one.arg == "level"), "warning")


def _logged(call: ast.Call, path: Path) -> list[str]:
    """The names that an event may have: one, or one of two."""
    match call.args:
        case [ast.Name(id="event")]:
            return []  # the way to the log of a whole folder; its callers have the names
        case [ast.IfExp(body=one, orelse=other), *_]:
            names = [_word(one), _word(other)]
        case [first, *rest]:
            names = [_word(first) or next(map(_word, rest), "")]  # log() has the level before it
    if not all(names):
        raise ValueError(f"{path}:{call.lineno}: write the event's name as a literal, so that this page has it")
    return names


def _fields(call: ast.Call) -> Iterator[str]:
    if isinstance(call.func, ast.Subscript):
        yield from ("`kind`", "`reason`", "…")  # what waits writes them (topom/reasons.py)
        return
    for one in call.keywords:
        yield "…" if one.arg is None else "`exception`" if one.arg == "exc_info" else f"`{one.arg}`"
    if ast.unparse(call.func).endswith(".exception"):
        yield "`exception`"


def _about(tree: ast.Module) -> str:
    """The first sentence of a module's docstring, without the marks of Sphinx."""
    sentence = re.split(r"(?<=\.)\s", ast.get_docstring(tree) or "")[0]
    return re.sub(r":\w+:(?=`)", "", sentence).replace("``", "`")


def _shown(value: object) -> str:
    if isinstance(value, (tuple, list)):
        value = ",".join(map(str, value))
    return "" if value in (None, "", False) else f"`{value}`"


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(head), line(tuple("---" for _ in head)), *map(line, rows)])
