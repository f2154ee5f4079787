"""The settings of the topom that is asked: a follower answers for itself."""

from fastapi import Depends, Request
from pydantic import BaseModel, Field

from slots.settings import SettingsError
from topom.api.access import refuse_body
from topom.api.routers import resource
from topom.errors import Conflict, NotFound
from topom.reasons import Kind
from topom.term.reloading import InForce

router = resource("/settings", "settings")


class SettingsRefused(Conflict):
    """The settings cannot be used; nothing has changed."""

    kind = Kind.OPERATOR


class SettingsShown(BaseModel):
    """Which settings are in force; their values are not told."""

    file: str = Field(description="The file that they stand in. Empty: they come from the environment alone.")
    since: float = Field(description="When those in force were read, in seconds since 1970, UTC.")
    restart: list[str] = Field(description="Settings that have another value in the file, and need a restart.")
    refused: str = Field(description="Why the file could not be used when it was read last; empty if it could.")


class SettingsReloaded(SettingsShown):
    """What reading the settings anew has brought."""

    changed: list[str] = Field(description="Settings that have changed.")
    hidden: list[str] = Field(
        description="Settings of the file that have another value in the environment, which wins over it."
    )


def describe(in_force: InForce | None) -> SettingsShown | None:
    """The settings of this process; None if it does not know where they came from."""
    if in_force is None:
        return None
    known = in_force.reloading
    return SettingsShown(file=known.file, since=known.since, restart=list(known.restart), refused=known.refused)


@router.get("")
async def show(request: Request) -> SettingsShown:
    """Which settings are in force in this topom, and since when."""
    return _described(request)


@router.post("/reload", dependencies=[Depends(refuse_body)])
async def reload(request: Request) -> SettingsReloaded:
    """Read the settings of this topom anew. What may change without a restart changes; on an error nothing does."""
    try:
        in_force = _in_force(request)
        changed = in_force.reload()
    except SettingsError as error:
        raise SettingsRefused(f"the settings cannot be used, and nothing has changed: {error}") from error
    return SettingsReloaded(
        **_described(request).model_dump(), changed=list(changed), hidden=list(in_force.reloading.hidden)
    )


def _in_force(request: Request) -> InForce:
    in_force: InForce | None = request.app.state.settings
    if in_force is None:
        raise NotFound("this topom does not know where its settings came from")
    return in_force


def _described(request: Request) -> SettingsShown:
    shown = describe(_in_force(request))
    assert shown is not None
    return shown
