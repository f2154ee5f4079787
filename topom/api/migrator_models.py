"""The objects of ``/migrators``, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field


class MigratorCopy(BaseModel):
    """A copy that a migrator makes."""

    source: str
    target: str
    slots: int = Field(description="How many slots it is of.")
    followed: str | None = Field(description="The server whose stream it follows; null while it follows none.")
    follows: Literal["master", "replica"] | None = Field(description="What that server is in the source's group.")
    keys_moved: int
    bytes_moved: int
    keys_per_second: float
    lag_bytes: int | None = Field(
        description="Of the source's changes, not written at the target yet; null while its snapshot is written."
    )


class Migrator(BaseModel):
    """A process that makes copies by the replication stream."""

    id: int = Field(description="In this term of topom.")
    instance: str = Field(description="Made by the process at its start.")
    hostname: str
    pid: int
    version: str
    node: str
    datacenter: str
    own: bool = Field(description="Whether topom has started it on its own machine.")
    disk_bytes: int | None = Field(description="Free for what it has not written yet; null while that is not known.")
    keys_per_second: float
    copies: list[MigratorCopy]


class Migrators(BaseModel):
    """All that are registered at the topom that leads."""

    migrators: list[Migrator]
