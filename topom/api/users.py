"""The users of clients that topom keeps for all proxies."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from fastapi import Query

from topom.api import user_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.proxies.keptusers import UserNotFound
from topom.term.service import Topom

router = resource("/users", "users")

WAYS_IN = ("name", "password_sha256", "no_password")
"""Fields that an answer has in other words, or not at all."""
REASONS = ("own", "unknown", "full")


def _shown(name: str, entry: Mapping[str, Any]) -> models.User:
    fields = {field: value for field, value in entry.items() if field not in WAYS_IN and "password" not in field}
    return models.User(name=name, password=not entry.get("no_password"), fields=fields)


def _describe(topom: Topom) -> models.Users:
    return models.Users(
        users=[_shown(name, entry) for name, entry in sorted(topom.users.users.items())],
        left_out=[
            models.LeftOut(
                proxy_id=member.record.id,
                name=name,
                cause=cast(Literal["own", "unknown", "full", "other"], why if why in REASONS else "other"),
            )
            for member in topom.members.all()
            if member.users is not None
            for name, why in member.users.left_out.items()
            if name in topom.users.users
        ],
        behind=[models.Behind(proxy_id=proxy_id, cause=why) for proxy_id, why in topom.users.behind().items()],
    )


@router.get("")
async def list_users(topom: ServedTopom) -> models.Users:
    """All users that topom keeps, and the proxies at which they are not as here."""
    return _describe(topom)


@router.get("/{name:path}")
async def show_user(topom: ServedTopom, name: str) -> models.User:
    """One user that topom keeps."""
    entry = topom.users.users.get(name)
    if entry is None:
        raise UserNotFound(f"topom keeps no user {name}")
    return _shown(name, entry)


@router.post("/{name:path}")
async def set_user(topom: ServedTopom, name: str, body: models.NewUser) -> models.Users:
    """Add a user, or change one. It holds at all proxies at once; proxies that are not there get it when they come."""
    await topom.users.put(name, body.fields)
    return _describe(topom)


@router.delete("/{name:path}")
async def remove_user(
    topom: ServedTopom,
    name: str,
    open: Annotated[
        bool,
        Query(description="Even if the user is `default`, so that proxies without users of their own need no login."),
    ] = False,
) -> models.Users:
    """Remove a user. Its connections are closed."""
    await topom.users.remove(name, open)
    return _describe(topom)
