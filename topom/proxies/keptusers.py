"""The users of clients that topom keeps, and how proxies hear of them.

They are in the store. A proxy gets all of them when it registers, before it serves, and all of them again at each
change (:mod:`proxy.supervisor.keptusers` says what it makes of them). An entry holds the fields of
:class:`slots.users.UserSettings` that have not their default, with the SHA-256 of a password and never the password. A
field of a later version is kept and passed on, so that proxies of that version lack nothing.

**bounded**: in number, and in bytes of all together, so that one message holds them.

A store that was put back may lack changes of users that proxies have heard of, and these show in no table. Proxies keep
the newer users. They are named, and the next change gets a version that no proxy is beyond.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import SecretStr, ValidationError

from slots.messages.control import MOST_KEPT, KeptUsers, Users
from slots.messages.load import MOST_LIMITED
from slots.messages.message import encode
from slots.users import DEFAULT, LIMITS, UserSettings
from slots.wrongvalues import in_words
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.errors import Conflict, Invalid, NotFound, TooMany
from topom.proxies.member import Member
from topom.proxies.members import Members

MOST_BYTES = 512 * 1024
"""Of all users together, as they are sent."""
FOLLOW_SECONDS = 3.0
"""How long a change waits until all proxies use it."""
LOOK_SECONDS = 0.02
MOST_LACKED = 1_000_000_000
"""Versions by which a store may lack changes. What a proxy says of a later one is not heeded."""


class InvalidUser(Invalid):
    """A user that cannot be as it is said."""


class UserNotFound(NotFound):
    """topom keeps no such user."""


class OpensProxies(Conflict):
    """Without this user, proxies may let everybody in."""


class UserBook:
    """Keeps the users.

    Args:
        ledger: stores them.
        members: the proxies.
    """

    def __init__(self, ledger: Ledger, members: Members) -> None:
        self._ledger = ledger
        self._members = members
        self._frame = 0, ""

    def start(self) -> None:
        """Tell proxies of each change from now on."""
        self._ledger.listen(self._changed)

    @property
    def users(self) -> Mapping[str, Mapping[str, Any]]:
        """All of them, by name."""
        return self._ledger.state.users

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._ledger.state.users_version

    def told(self) -> KeptUsers:
        """What proxies are told."""
        state = self._ledger.state
        return KeptUsers(version=state.users_version, users=[dict(entry) for entry in state.users.values()])

    def frame(self, sent: int) -> tuple[int, str] | None:
        """The newest version and its frame; None if the proxy has it already."""
        version = self.version
        if version <= sent:
            return None
        if self._frame[0] != version:
            self._frame = version, encode(Users(kept=self.told()))
        return self._frame

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.users_version != new.users_version:
            for member in self._members.all():
                if member.link is not None:
                    member.link.wake()

    async def put(self, name: str, fields: Mapping[str, Any]) -> None:
        """Add a user, or change these fields of one; None brings a field back to its default.

        Raises:
            InvalidUser: it cannot be so.
            TooMany: there are too many, or they are too large together.
        """

        def make(state: ClusterState, epoch: int) -> ClusterState:
            before = state.users.get(name)
            entry = changed(before, name, fields)
            if entry == before:
                return state
            users = {**state.users, name: entry}
            _require_room(users)
            return replace(state, users=users, users_version=self._next(state, epoch))

        await self._ledger.change(make)
        await self._followed()

    async def remove(self, name: str, opens: bool) -> None:
        """Remove a user.

        Args:
            opens: whether proxies that have neither users nor a password of their own may let everybody in by that.

        Raises:
            UserNotFound: there is none.
            OpensProxies: it is ``default``, who has a password, and ``opens`` is not said.
        """

        def make(state: ClusterState, epoch: int) -> ClusterState:
            entry = state.users.get(name)
            if entry is None:
                raise UserNotFound(f"topom keeps no user {name}; slotferry user list shows those that it keeps")
            if name == DEFAULT and not entry.get("no_password") and not opens:
                raise OpensProxies(
                    "without the user default, proxies that have neither users nor a password of their own let every "
                    "client in without a login; give --open if that is meant"
                )
            users = {other: kept for other, kept in state.users.items() if other != name}
            return replace(state, users=users, users_version=self._next(state, epoch))

        await self._ledger.change(make)
        await self._followed()

    def _next(self, state: ClusterState, epoch: int) -> int:
        """The version of a change. **epochs**: no proxy refuses it for one that it has heard of before."""
        held = (member.users.version for member in self._members.all() if member.users is not None)
        return max(epoch, state.users_version + 1, *(one + 1 for one in held if one < epoch + MOST_LACKED))

    def behind(self) -> dict[int, str]:
        """By id, which proxies do not use these users, and why."""
        version = self.version
        return {member.record.id: why for member in self._members.all() if (why := _why_behind(member, version))}

    async def _followed(self) -> None:
        """Wait until the proxies that are there use the users as they are now. bounded: :data:`FOLLOW_SECONDS`."""
        version, loop = self.version, asyncio.get_running_loop()
        limit = loop.time() + FOLLOW_SECONDS
        while loop.time() < limit and any(_is_awaited(member, version) for member in self._members.all()):
            await asyncio.sleep(LOOK_SECONDS)


def changed(before: Mapping[str, Any] | None, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A user's entry with these fields changed. Raises InvalidUser."""
    if fields.get("password") is not None or "name" in fields:
        raise InvalidUser(f"user {name}: its password is told as password_sha256, and it keeps its name")
    entry = {**(before or {}), "name": name, **fields}
    # The new one of the two takes the place of the other.
    if fields.get("password_sha256") is not None:
        entry["no_password"] = fields.get("no_password")
    elif fields.get("no_password"):
        entry["password_sha256"] = None
    entry = {field: value for field, value in entry.items() if value is not None}
    try:
        user = UserSettings.model_validate(entry)
    except ValidationError as error:
        raise InvalidUser(f"user {name}: {'; '.join(_wrong(entry, one) for one in error.errors())}") from None
    return {field: _plain(value) for field, value in user.model_dump(exclude_defaults=True).items()}


def _wrong(entry: Mapping[str, Any], error: Any) -> str:
    if not error["loc"]:
        # The model's own check of several fields.
        if not entry.get("password_sha256") and not entry.get("no_password"):
            return "it needs a password, or no_password"
        return in_words(error)
    return f"{'.'.join(map(str, error['loc']))} {in_words(error)}"


def _plain(value: Any) -> Any:
    return value.get_secret_value().lower() if isinstance(value, SecretStr) else value


def _require_room(users: Mapping[str, Mapping[str, Any]]) -> None:
    if len(users) > MOST_KEPT:
        raise TooMany(f"topom keeps {MOST_KEPT} users already, which is as many as there may be; remove some first")
    if sum(not one.keys().isdisjoint(LIMITS) for one in users.values()) > MOST_LIMITED:
        raise TooMany(f"{MOST_LIMITED} users at most may have {', '.join(LIMITS[:-1])} or {LIMITS[-1]}")
    if len(encode(Users(kept=KeptUsers(version=0, users=[dict(one) for one in users.values()])))) > MOST_BYTES:
        raise TooMany(f"all users together may take {MOST_BYTES // 1024} KiB; remove some, or shorten their rules")


def _is_awaited(member: Member, version: int) -> bool:
    if member.lost or member.link is None:
        return False
    return member.users is not None and member.users.version < version


def _why_behind(member: Member, version: int) -> str:
    if member.users is not None and member.users.version > version:
        return "it has users of a later change, which the store lacks; the next change here takes their place"
    if not version or (member.users is not None and member.users.version == version):
        return ""  # nobody lacks what there never was
    if member.link is None:
        return "it is not connected"
    if member.users is not None:
        return "it does not use the last change yet"
    return "it has said nothing of users: it has just come, or is of an earlier version"
