"""Reads the settings of a process from a TOML file and the environment, and explains what is wrong with them.

The settings themselves, each with its unit, its default and its limits, are in the process's own module. The
environment wins over the file. A secret may stand in a file of its own, which a variable names that ends with
:data:`IN_FILE`, such as ``SLOTFERRY_PROXY_TOKEN_FILE``. So it is in no environment, and is read anew with the settings.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from slots.environment import misspelt, nearest
from slots.smallfiles import read_small
from slots.wrongvalues import in_words

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Kind = TypeVar("Kind")


class _Live:
    """Marks settings that change while the process runs."""


Live = Annotated[Kind, _Live()]
"""The type of a setting that changes while the process runs (:mod:`slots.reloading`), such as ``Live[int]``. Its
description ends with :data:`LIVE`."""
LIVE = "Live."
READINGS = 5
"""How often files of secrets are read again at most, until two readings are the same."""
IN_FILE = "_FILE"
"""The end of a variable that names the file of a secret."""


class SettingsError(ValueError):
    """The settings cannot be used. The message says for each: which setting, what is wrong, what is allowed."""


class Settings(BaseSettings):
    """The settings of a process. A subclass sets ``env_prefix``, the prefix of its environment variables."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def load(cls, config: Path | None = None, **overrides: Any) -> Self:
        """Settings from ``overrides``, else the environment, else the TOML file ``config``, else the defaults.

        Raises:
            SettingsError: the file cannot be read, or a setting is unknown or not allowed, there or in the environment.
        """
        environment = cls.environment()
        in_file = {} if config is None else read_file(config)
        return cls.checked({**in_file, **environment, **overrides})

    @classmethod
    def environment(cls) -> dict[str, Any]:
        """The settings that the environment has, unchecked, also those in files of secrets that it names.

        Raises:
            SettingsError: a variable names no setting, or a file of a secret cannot be read.
        """
        files = [f"{name}{IN_FILE.lower()}" for name in cls.secrets()]
        if sentences := misspelt(cls.model_config["env_prefix"], cls.model_fields, os.environ, files):
            raise SettingsError("\n".join(sentences))
        source = EnvSettingsSource(cls)
        source.env_vars = {**source.env_vars, **cls._settled_secrets()}
        return source()

    @classmethod
    def hidden(cls, in_file: Mapping[str, Any], environment: Mapping[str, Any]) -> tuple[str, ...]:
        """The settings of a file that have another value in the environment, which wins."""

        def value(name: str, of: Mapping[str, Any]) -> object:
            try:
                return getattr(cls.checked({**in_file, **environment, name: of[name]}), name)
            except SettingsError:
                return None  # no setting has it

        both = [name for name in cls.model_fields if name in in_file and name in environment]
        return tuple(name for name in both if value(name, in_file) != value(name, environment))

    @classmethod
    def live(cls) -> frozenset[str]:
        """The names of the settings that change while the process runs."""
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if any(isinstance(mark, _Live) for mark in field.metadata))

    def bound(self) -> Mapping[str, object]:
        """What has to stay the same for a live setting to change without a restart, by the setting's name. Such as
        whether TLS is spoken at all, for the names of files with certificates."""
        return {}

    @classmethod
    def secrets(cls) -> list[str]:
        """The names of the settings whose value is a secret, or has one in it."""
        return [name for name, field in cls.model_fields.items() if _has_secrets(field)]

    @classmethod
    def _settled_secrets(cls) -> dict[str, str]:
        """The secrets in files, all of one time: who replaces them together may be in the midst of it."""
        found = cls._secrets_in_files()
        for _ in range(READINGS):
            before, found = found, cls._secrets_in_files()
            if found == before:
                return found
        raise SettingsError("The files of secrets change while they are read. Read the settings anew in a while.")

    @classmethod
    def _secrets_in_files(cls) -> dict[str, str]:
        """What is in the files that the environment names, by the variables that it stands for, in lower case."""
        variables = {name.upper(): (name, value) for name, value in os.environ.items()}
        found = {}
        for setting in cls.secrets():
            instead = f"{cls.model_config['env_prefix']}{setting}".upper()
            if instead + IN_FILE not in variables:
                continue
            variable, path = variables[instead + IN_FILE]
            if instead in variables:
                raise SettingsError(f"The environment has both {variables[instead][0]} and {variable}: unset one.")
            found[instead.lower()] = _read_secret(variable, Path(path))
        return found

    @classmethod
    def checked(cls, values: dict[str, Any]) -> Self:
        """Settings of these values, and the defaults. Raises :class:`SettingsError`."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(_explain(cls, error)) from error


def read_file(config: Path) -> dict[str, Any]:
    """What stands in a settings file, unchecked. Raises :class:`SettingsError` if it cannot be read."""
    try:
        return tomllib.loads(read_small(config).decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"The settings file {config} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # also of numbers and nesting that Python does not bear
        raise SettingsError(f"The settings file {config} is not TOML: {error}.") from error


def _read_secret(variable: str, path: Path) -> str:
    try:
        return read_small(path).decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f"The file {path}, which {variable} names, cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise SettingsError(f"The file {path}, which {variable} names, is not text in UTF-8.") from None


def _explain(settings: type[Settings], error: ValidationError) -> str:
    """One sentence for each error. Values of secrets are not shown."""
    known = settings.model_fields
    sentences = []
    for entry in error.errors(include_url=False):
        name, *within = map(str, entry["loc"] or [""])
        own = entry["type"] == "value_error"
        message = entry["msg"].removeprefix("Value error, ") if own else in_words(entry)
        if within:
            # One entry of a list, or one field of an entry.
            message = f"{' '.join(['entry', str(int(within[0]) + 1), *within[1:]])}{':' if own else ''} {message}"
        if entry["type"] == "extra_forbidden" and not within:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else f". The settings are: {', '.join(known)}."
            sentences.append(f"There is no setting {name}{hint}")
        elif not name:  # the message of a check over several settings begins with the name of one
            sentences.append(f"Setting {message}.")
        else:
            hidden = entry["type"] == "value_error" or _has_secrets(known[name])
            shown = "" if hidden else f" It is {entry['input']!r}."
            variable = settings.model_config["env_prefix"] + name.upper()
            colon = ":" if own or within else ""
            sentences.append(f"Setting {name} (or {variable} in the environment){colon} {message}.{shown}")
    return "\n".join(sentences)


def _has_secrets(field: FieldInfo) -> bool:
    """Whether the value, or an object in it, may be a secret."""
    kinds = (field.annotation, *get_args(field.annotation))
    return any(isinstance(kind, type) and issubclass(kind, SecretStr | BaseModel) for kind in kinds)
