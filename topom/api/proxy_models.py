"""The objects of ``/proxies``, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field


class Proxy(BaseModel):
    """A proxy that is a member."""

    id: int
    instance: str = Field(description="Made by the process at its start, or when it was fenced.")
    address: str = Field(description="Where clients connect.")
    hostname: str
    pid: int
    workers: int
    version: str
    state: Literal["online", "lost", "unknown"] = Field(
        description="`lost`: nothing heard within the lease; `unknown`: no topom leads that could have heard of it."
    )
    lost_since: float | None = Field(
        default=None,
        description="When a lost one was last heard of, or topom began to wait for it, in seconds since 1970, UTC.",
    )
    draining: bool = Field(description="It lets its clients go, or is to, and then leaves by itself.")
    stand_down_seconds: float | None = Field(
        description="For so long it serves a group after topom and the group's replicas were heard; null: unlimited."
    )
    epoch: int = Field(description="The newest epoch that all its workers acknowledged to this topom.")
    counters: dict[str, int | float]


class Proxies(BaseModel):
    """All proxies that are members."""

    proxies: list[Proxy]


class ProxyReloaded(BaseModel):
    """What a proxy answered when it was told to read its settings anew. No value of a setting is told."""

    id: int
    address: str = Field(description="Where clients connect.")
    silent: str = Field(description="Why there is no answer, and nothing is known; empty if there is one.")
    file: str = Field(default="", description="The file of its settings. Empty: they come from the environment alone.")
    since: float | None = Field(
        default=None, description="When those in force were read, in seconds since 1970, UTC, by the proxy's clock."
    )
    changed: list[str] = Field(default=[], description="Settings that have changed.")
    restart: list[str] = Field(
        default=[], description="Settings that have another value in the file, and need a restart."
    )
    hidden: list[str] = Field(
        default=[], description="Settings of the file that have another value in the environment, which wins over it."
    )
    refused: str = Field(
        default="", description="Why the settings cannot be used, so that nothing has changed; empty if they can."
    )
    workers: int = Field(default=0, description="Its worker processes.")
    following: int = Field(default=0, description="How many of them have said that they use the settings in force.")


class ProxiesReloaded(BaseModel):
    """What the proxies answered, by id."""

    proxies: list[ProxyReloaded]


class ProxyRemoved(BaseModel):
    """A proxy that was removed."""

    id: int
    not_fenced: dict[str, str] = Field(description="With `force`: servers where it could not be fenced, and why.")
