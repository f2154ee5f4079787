"""The users that topom keeps, beside those of the proxy's own settings: together they are who may log in.

The proxy's own entry holds where both have one of the same name. The setting ``password`` is an own entry of the user
``default``. Which clients need no login is decided by the proxy's own settings, unless topom keeps a user ``default``:
other users of topom open no proxy, and close none.

A user that cannot be read whole is none here: with a field left out, it could do more than it may. If that is
``default``, nobody is ``default``.

**epochs**: of one cluster, older users never follow newer ones. Others of the same version come from a store that was
put back, and changed before topom had heard of that version: they take the place of those that the store lacks. While
topom is away, or if it keeps none, the last ones hold. They are in the table file, too, for a proxy that starts then.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog
from pydantic import SecretStr, ValidationError

from proxy.settings import ProxySettings
from slots.messages.control import MOST_LEFT_OUT, HeldUsers, KeptUsers, KnownUsers, News, Registered, Users
from slots.messages.load import MOST_LIMITED
from slots.users import DEFAULT, NAME, UserSettings

OWN: Final = "own"
UNKNOWN: Final = "unknown"
FULL: Final = "full"

log = structlog.get_logger()


class UsersOfTopom:
    """The users (:class:`proxy.supervisor.control.Listener`).

    Args:
        settings: of the proxy.
        changed: called when there are others.
        following: whether all workers use what they were told last, and the table file has it, if there is one. So no
            process starts with users before those that topom takes for followed.
    """

    def __init__(self, settings: ProxySettings, changed: Callable[[], None], following: Callable[[], bool]) -> None:
        self._own = settings
        self._changed = changed
        self._following = following
        self._cluster = ""
        self._followed: int | None = None
        self._left_out: dict[str, str] = {}
        self.known: KnownUsers | None = None
        """Those of topom that it has had last; None if it has had none."""
        self.settings = settings
        """The proxy's settings, with all users."""

    def use(self, own: ProxySettings) -> None:
        """The proxy has these settings of its own from now on."""
        self._own = own
        self._put_together()

    def begin_with(self, known: KnownUsers | None) -> None:
        """Go on with what an earlier process has had."""
        if known is not None:
            self._take(known)

    def told(self) -> HeldUsers | None:
        """What a heartbeat says."""
        if self.known is None:
            return None
        if self._following():
            self._followed = self.known.kept.version
        return HeldUsers(version=self._followed or 0, left_out=dict(sorted(self._left_out.items())[:MOST_LEFT_OUT]))

    @property
    def is_news(self) -> bool:
        """Whether a heartbeat would say that all workers use newer ones."""
        return self.known is not None and self._followed != self.known.kept.version and self._following()

    def _take(self, known: KnownUsers) -> None:
        now = self.known
        if now is not None and now.cluster == known.cluster:
            if known.kept.version < now.kept.version:
                log.warning("users_refused", version=known.kept.version, own_version=now.kept.version)
                return
            if known.kept.version == now.kept.version and _by_name(known) == _by_name(now):
                return
        if self._followed == known.kept.version or (now is not None and now.cluster != known.cluster):
            self._followed = None
        self.known = known
        self._put_together()
        log.info("users_taken", version=known.kept.version, users=len(known.kept.users))
        self._changed()

    def _put_together(self) -> None:
        self.settings, left_out = together(self._own, self.known.kept.users if self.known is not None else ())
        if left_out != self._left_out:
            self._left_out = left_out
            log.warning("users_left_out", users=left_out)

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """Take its users, before a worker is started."""
        self._cluster = answer.cluster
        if answer.users is not None:
            self._take(KnownUsers(cluster=answer.cluster, kept=answer.users))

    def heard(self, message: News) -> None:
        """Take other users."""
        if isinstance(message, Users):
            kept: KeptUsers = message.kept
            self._take(KnownUsers(cluster=self._cluster, kept=kept))

    def lost(self) -> None:
        """The last ones hold."""


def _by_name(known: KnownUsers) -> dict[Any, Mapping[str, Any]]:
    return {str(entry.get("name")): entry for entry in known.kept.users}


def together(own: ProxySettings, kept: Iterable[Mapping[str, Any]]) -> tuple[ProxySettings, dict[str, str]]:
    """The proxy's settings with all users, and why which of topom's are not among them."""
    names = {user.name for user in own.users} | ({DEFAULT} if own.password.get_secret_value() else set())
    limited = sum(user.has_limits for user in own.users)
    counted = sum(user.connections is not None for user in own.users)
    added: dict[str, UserSettings] = {}
    left_out: dict[str, str] = {}
    for entry in kept:
        name = entry.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            continue
        if name in names:
            left_out[name] = OWN
            continue
        try:
            user = UserSettings.model_validate(entry)
        except ValidationError:
            left_out[name] = UNKNOWN
            continue
        limited += user.has_limits
        counted += user.connections is not None
        if max(limited, counted) > MOST_LIMITED:
            limited -= user.has_limits
            counted -= user.connections is not None
            left_out[name] = FULL
            continue
        added[name] = user
    if DEFAULT in left_out and DEFAULT not in names:
        added[DEFAULT] = _nobody()
    if not added:
        return own, left_out
    if not names and DEFAULT not in added:
        # They would close the proxy otherwise.
        added[DEFAULT] = UserSettings(name=DEFAULT, no_password=True)
    return own.model_copy(update={"users": [*own.users, *added.values()]}), left_out


def _nobody() -> UserSettings:
    """The user ``default`` with a password that nobody knows."""
    return UserSettings(name=DEFAULT, password_sha256=SecretStr(secrets.token_hex(32)))
