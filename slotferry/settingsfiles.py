"""``slotferry config``: prints the settings file of a process, and says what is wrong with one."""

import importlib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from slotferry.output import fail, say
from slots.environment import nearest
from slots.settings import Settings, SettingsError, read_file

CLASSES = {
    "topom": ("topom.term.settings", "TopomSettings"),
    "proxy": ("proxy.settings", "ProxySettings"),
    "migrator": ("migrator.process.settings", "MigratorSettings"),
}
"""The class that reads each process's settings."""
WHO = {"topom": "topom", "proxy": "a proxy", "migrator": "a migrator"}

app = typer.Typer(no_args_is_help=True, help="Print the settings file of a process, or check one.")


@app.command("topom")
def print_topom() -> None:
    """Print every setting of topom of this version, with its default and what it is for."""
    _print("topom")


@app.command("proxy")
def print_proxy() -> None:
    """Print every setting of a proxy of this version, with its default and what it is for."""
    _print("proxy")


@app.command("migrator")
def print_migrator() -> None:
    """Print every setting of a migrator of this version, with its default and what it is for."""
    _print("migrator")


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of settings, in TOML.")],
    process: Annotated[
        str | None,
        typer.Option("--of", metavar="PROCESS", help="topom, proxy or migrator; by default what the settings say."),
    ] = None,
) -> None:
    """Say what is wrong with a settings file, with this environment's variables, as the process would at its start.

    Ends with status 1 if anything is wrong. Else it tells the settings that have another value than their default.
    """
    if process is not None and process not in CLASSES:
        raise fail(f"--of has to be {_either(list(CLASSES))}, not {process}")
    try:
        in_file = read_file(file)
        chosen = process or whose(file, in_file)
        kind = settings_class(chosen)
        settings = kind.checked({**in_file, **kind.environment()})
    except SettingsError as error:
        raise fail(str(error)) from None
    changed = [
        name for name, field in type(settings).model_fields.items() if getattr(settings, name) != field.get_default()
    ]
    differing = f"other than by default: {', '.join(changed)}" if changed else "all settings have their defaults"
    say(f"{file}: settings of {WHO[chosen]}, nothing wrong; {differing}")


def whose(file: Path, in_file: Mapping[str, Any]) -> str:
    """The process that knows most settings of a file; of two that know as many, the one whose name the file has.

    Raises:
        SettingsError: more than one process may be meant.
    """
    names = in_file.keys()
    settings = {process: settings_class(process).model_fields.keys() for process in CLASSES}
    known = {process: len(names & fields) for process, fields in settings.items()}
    best = [process for process, count in known.items() if count == max(known.values())]
    named = [process for process in best if process in file.name]
    if len(named or best) > 1:
        raise SettingsError(
            f"{file} may be the settings of {_either(named or best)}; say which with --of.{_unknown(names, settings)}"
        )
    return (named or best)[0]


def _unknown(names: Iterable[str], settings: Mapping[str, Iterable[str]]) -> str:
    """What is said of names that no process has a setting of; empty if there are none."""
    every = sorted({field for fields in settings.values() for field in fields})
    unknown = sorted(set(names) - set(every))
    near = ((name, nearest(name, every)) for name in unknown)
    return "".join(f" There is no setting {name}{f'; did you mean {like}?' if like else '.'}" for name, like in near)


def settings_class(process: str) -> type[Settings]:
    """The class of a process's settings. It is imported here: few commands need it."""
    module, name = CLASSES[process]
    found: type[Settings] = getattr(importlib.import_module(module), name)
    return found


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _print(process: str) -> None:
    typer.echo((resources.files("configs") / f"{process}.toml").read_text(encoding="utf-8"), nl=False)
