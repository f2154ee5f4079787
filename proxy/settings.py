"""Settings of one proxy: each has its home, its unit, its default and its limits here.

They are read from a TOML file and from the environment (``SLOTFERRY_PROXY_LISTEN`` for ``listen``); the
environment wins, so that secrets can stay out of files. ``configs/proxy.toml`` lists them all.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from proxy import address

ENVIRONMENT_PREFIX = "SLOTFERRY_PROXY_"

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrOff = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SettingsError(ValueError):
    """The settings cannot be used. The message has one sentence a setting: which, what is wrong, what is allowed."""


class ProxySettings(BaseSettings):
    """What one proxy is told at its start. Bytes and seconds are in the names; the descriptions say the rest."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    listen: str = Field(
        default="127.0.0.1:6380", description="Where clients connect, host:port. Port 0 takes a free one."
    )
    topom: Annotated[list[str], NoDecode] = Field(
        default=["http://127.0.0.1:8380"],
        min_length=1,
        description="URLs of topom, tried in turn. In the environment: separated by commas.",
    )
    token: SecretStr = Field(
        default=SecretStr(""), description="The bearer token that topom asks for. Better set in the environment."
    )
    workers: int = Field(
        default=0, ge=0, le=1024, description="Worker processes. 0: one for each core this process may use."
    )
    password: SecretStr = Field(
        default=SecretStr(""), description='What clients have to send with AUTH or HELLO. "": nothing is asked of them.'
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""), description='What the proxy sends to the Redis servers with AUTH. "": nothing.'
    )
    metrics: str = Field(
        default="127.0.0.1:6381", description='Where /metrics and /healthz are served, host:port. "": nowhere.'
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important events that are logged: debug, info, warning or error."
    )

    max_clients: Count = Field(default=10_000, description="Clients a worker serves at once; one more is refused.")
    session_max_request_bytes: Bytes = Field(
        default=537_919_488, description="Bytes of one request; a longer one ends its session. 512 MiB and 1 MiB."
    )
    session_max_pipeline: Count = Field(
        default=1024, description="Replies owed to a session before reading from it stops until some are sent."
    )
    session_output_pause_bytes: Bytes = Field(
        default=1_048_576, description="Bytes of unsent replies above which reading from a session stops. 1 MiB."
    )
    session_output_limit_bytes: Bytes = Field(
        default=1_073_741_824, description="Bytes of unsent replies above which a session is closed. 1 GiB."
    )
    session_stall_seconds: Seconds = Field(
        default=60.0, description="Seconds for which a client may take no byte of its replies before it is closed."
    )
    session_idle_seconds: SecondsOrOff = Field(
        default=0.0, description="Seconds without a request after which a session is closed. 0: never."
    )

    backend_connections: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Connections of a worker to each server, database and RESP version it uses."
    )
    backend_queue_pause_bytes: Bytes = Field(
        default=4_194_304,
        description="Unsent bytes to a server above which sessions that send to it stop being read. 4 MiB.",
    )
    backend_connect_seconds: Seconds = Field(
        default=1.0, description="Seconds a connection to a server, with its handshake, may take."
    )
    backend_reply_seconds: Seconds = Field(
        default=5.0, description="Seconds a server may take for a reply before its requests get an error."
    )
    backend_retry_seconds_min: Seconds = Field(
        default=0.05, description="Seconds before a server is connected to again; doubled at each failure, with jitter."
    )
    backend_retry_seconds_max: Seconds = Field(
        default=2.0, description="The most seconds between two attempts to connect to a server."
    )

    lock_drain_seconds: Seconds = Field(
        default=0.5, description="Seconds that draining a locked slot may take before the lock is refused to topom."
    )
    lock_hold_seconds: Seconds = Field(
        default=5.0, description="Seconds a request for a locked slot is held before it is answered -TRYAGAIN."
    )
    move_seconds: Seconds = Field(
        default=5.0, description="Seconds that moving a command's keys may take before the command gets an error."
    )
    move_batch_keys: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="Keys of waiting commands that one MIGRATE moves together."
    )
    migrating_known_keys: Count = Field(
        default=65_536, description="Keys a worker remembers as absent from the source of a migrating slot."
    )
    drain_seconds: Seconds = Field(
        default=30.0, description="Seconds that sessions have to finish after SIGTERM before they are closed."
    )

    @field_validator("topom", mode="before")
    @classmethod
    def _split_urls(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("topom")
    @classmethod
    def _check_urls(cls, value: list[str]) -> list[str]:
        for url in value:
            if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
                raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8380")
        return [url.rstrip("/") for url in value]

    @field_validator("listen", "metrics")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value:
            address.split(value)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not self.listen:
            raise ValueError("listen: may not be empty; it is host:port, for example 127.0.0.1:6380")
        if self.session_output_pause_bytes > self.session_output_limit_bytes:
            raise ValueError("session_output_pause_bytes: may not be larger than session_output_limit_bytes")
        if self.backend_retry_seconds_min > self.backend_retry_seconds_max:
            raise ValueError("backend_retry_seconds_min: may not be larger than backend_retry_seconds_max")
        return self

    @classmethod
    def load(cls, config: Path | None = None, **overrides: Any) -> Self:
        """Settings from ``overrides``, else the environment, else the TOML file ``config``, else the defaults.

        Raises:
            SettingsError: the file cannot be read, or a setting is unknown or not allowed.
        """
        try:
            in_file = {} if config is None else tomllib.loads(config.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"The settings file {config} cannot be read: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings file {config} is not TOML: {error}.") from error
        in_environment = EnvSettingsSource(cls)()
        try:
            return cls(**{**in_file, **in_environment, **overrides})
        except ValidationError as error:
            raise SettingsError(_explain(cls, error)) from error

    @property
    def worker_count(self) -> int:
        """How many worker processes there are: ``workers``, or one for each core this process may use."""
        if self.workers:
            return self.workers
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def to_wire(self) -> dict[str, Any]:
        """All settings as JSON values, **secrets in the clear**: for a worker's channel, never for a log."""
        plain = self.model_dump()
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in plain.items()
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`to_wire`. Raises :class:`SettingsError`."""
        try:
            return cls(**wire)
        except ValidationError as error:
            raise SettingsError(_explain(cls, error)) from error


def _explain(settings: type[BaseSettings], error: ValidationError) -> str:
    """One sentence for each thing that is wrong. Values of secrets are not shown."""
    known = settings.model_fields
    sentences = []
    for entry in error.errors(include_url=False):
        name = str(entry["loc"][0]) if entry["loc"] else ""
        message = entry["msg"].removeprefix("Value error, ")
        if entry["type"] == "extra_forbidden":
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else f". The settings are: {', '.join(known)}."
            sentences.append(f"There is no setting {name}{hint}")
        elif not name:  # the message of a check over several settings begins with the name of one
            sentences.append(f"Setting {message}.")
        else:
            secret = known[name].annotation is SecretStr
            shown = "" if secret or entry["type"] == "value_error" else f" It is {entry['input']!r}."
            variable = ENVIRONMENT_PREFIX + name.upper()
            sentences.append(f"Setting {name} (or {variable} in the environment): {message}.{shown}")
    return "\n".join(sentences)
