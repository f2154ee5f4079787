"""Who may log in where topom keeps users beside those of the proxy's own settings."""

from typing import Any

import pytest
from pydantic import SecretStr

from proxy.settings import ProxySettings
from proxy.supervisor.keptusers import UsersOfTopom, together
from proxy.users import Users
from slots.messages.control import HeldUsers, KeptUsers, KnownUsers, Registered
from slots.messages.control import Users as ToldUsers
from slots.messages.load import MOST_LIMITED
from slots.messages.message import Product

DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
ADA: dict[str, Any] = {"name": "ada", "password_sha256": DIGEST, "read_only": True}
CLOSED: dict[str, Any] = {"name": "default", "password_sha256": DIGEST}
OPEN: dict[str, Any] = {"name": "default", "no_password": True, "read_only": True}
NEWER = {"of_a_later_version": True}
OWN = {"name": "own", "password": "mine"}


def users_of(own: ProxySettings, *kept: dict[str, Any]) -> tuple[Users, dict[str, str]]:
    settings, left_out = together(own, kept)
    ProxySettings.from_wire(settings.to_wire())  # as each worker reads them
    return Users(settings.users, settings.password), left_out


NOTHING = ProxySettings()
WITH_USERS = ProxySettings(users=[OWN])
WITH_PASSWORD = ProxySettings(password=SecretStr("p"))


@pytest.mark.parametrize("kept", [[], [ADA], [{**ADA, **NEWER}]], ids=["none", "one", "one that is not read"])
@pytest.mark.parametrize(
    ("own", "is_open"),
    [(NOTHING, True), (WITH_USERS, False), (WITH_PASSWORD, False)],
    ids=["open", "users", "password"],
)
def test_users_of_topom_open_no_proxy_and_close_none(own: ProxySettings, is_open: bool, kept: list[Any]) -> None:
    users, _ = users_of(own, *kept)
    assert (users.anonymous is not None) is is_open
    assert users.anonymous is None or users.anonymous.unlimited


def test_a_user_default_of_topom_is_the_one_where_the_proxy_says_nothing_of_it() -> None:
    for own in (NOTHING, WITH_USERS):
        users, left_out = users_of(own, CLOSED)
        assert users.anonymous is None
        assert users.authenticate(b"default", b"secret") is not None
        users, _ = users_of(own, OPEN)
        assert users.anonymous is not None
        assert not users.anonymous.unlimited
        assert left_out == {}
    for own in (WITH_PASSWORD, ProxySettings(users=[{"name": "default", "password": "p"}])):
        for kept in (CLOSED, OPEN):
            users, left_out = users_of(own, kept)
            assert users.anonymous is None
            assert users.authenticate(b"default", b"secret") is None
            assert users.authenticate(b"default", b"p") is not None
            assert left_out == {"default": "own"}


def test_a_user_that_is_not_read_whole_is_none_and_if_it_is_default_nobody_is() -> None:
    for odd in (NEWER, {"rules": "+@of-a-later-version"}, {"connections": "some"}):
        users, left_out = users_of(NOTHING, {**ADA, **odd}, {**CLOSED, "name": "bob"})
        assert left_out == {"ada": "unknown"}
        assert users.find("ada") is None
        assert users.find("bob") is not None
        users, left_out = users_of(NOTHING, {**OPEN, **odd})
        assert left_out == {"default": "unknown"}
        assert users.anonymous is None
        assert users.authenticate(b"default", b"") is None


def test_the_proxys_own_entry_holds() -> None:
    users, left_out = users_of(WITH_USERS, {**ADA, "name": "own"}, ADA)
    assert left_out == {"own": "own"}
    assert users.authenticate(b"own", b"mine") is not None
    assert users.authenticate(b"own", b"secret") is None
    ada = users.authenticate(b"ada", b"secret")
    assert ada is not None
    assert "SET" in ada.refused


@pytest.mark.parametrize("limit", ["requests_per_second", "connections"])
def test_a_proxy_has_no_more_limits_than_it_can_share_out(limit: str) -> None:
    kept = [{"name": f"u{number}", "no_password": True, limit: 9} for number in range(MOST_LIMITED)]
    own = ProxySettings(users=[{**OWN, limit: 9}, {"name": "default", "no_password": True}])
    users, left_out = users_of(own, *kept, ADA)
    assert left_out == {f"u{MOST_LIMITED - 1}": "full"}
    assert users.find("ada") is not None


class Proxy:
    def __init__(self, own: ProxySettings = NOTHING) -> None:
        self.changes = 0
        self.follows = True
        self.users = UsersOfTopom(own, self._change, lambda: self.follows)

    def _change(self) -> None:
        self.changes += 1

    def registers(self, version: int | None, *kept: dict[str, Any], cluster: str = "c") -> None:
        told = None if version is None else KeptUsers(version=version, users=list(kept))
        product = Product(name="p", number_of_slots=1, slot_function="crc32", databases=16)
        self.users.registered(
            Registered(
                proxy_id=1,
                product=product,
                cluster=cluster,
                start="s",
                heartbeat_seconds=1.0,
                stand_down_seconds=None,
                quiet_seconds=1.0,
                users=told,
            )
        )

    def hears(self, version: int, *kept: dict[str, Any]) -> None:
        self.users.heard(ToldUsers(kept=KeptUsers(version=version, users=list(kept))))

    @property
    def names(self) -> set[str]:
        return {user.name for user in self.users.settings.users}


def test_newer_users_are_taken_and_older_ones_are_not() -> None:
    proxy = Proxy()
    assert proxy.users.told() is None
    proxy.registers(4, ADA)
    assert (proxy.names, proxy.changes) == ({"ada", "default"}, 1)
    proxy.hears(6, ADA, {**ADA, "name": "bob"})
    assert (proxy.names, proxy.changes) == ({"ada", "bob", "default"}, 2)
    proxy.hears(5)
    proxy.registers(6, ADA, {**ADA, "name": "bob"})
    assert (proxy.names, proxy.changes) == ({"ada", "bob", "default"}, 2)
    proxy.hears(7)
    assert (proxy.names, proxy.changes) == (set(), 3)
    assert proxy.users.settings is NOTHING


def test_other_users_of_the_same_version_are_taken() -> None:
    """A store that was put back has given the version anew."""
    proxy = Proxy()
    bob = {**ADA, "name": "bob"}
    proxy.registers(6, ADA, bob)
    assert proxy.users.told() == HeldUsers(version=6)
    proxy.follows = False
    for tell in (proxy.registers, proxy.hears):
        tell(6, bob, ADA)
        assert (proxy.names, proxy.changes) == ({"ada", "bob", "default"}, 1)
    proxy.registers(6, ADA)
    assert (proxy.names, proxy.changes) == ({"ada", "default"}, 2)
    # It does not use these yet.
    assert proxy.users.told() == HeldUsers(version=0)
    proxy.follows = True
    assert proxy.users.told() == HeldUsers(version=6)
    proxy.hears(6, bob)
    assert (proxy.names, proxy.changes) == ({"bob", "default"}, 3)


def test_the_last_ones_hold_with_a_topom_that_keeps_none_and_those_of_another_cluster_replace_them() -> None:
    proxy = Proxy()
    proxy.users.begin_with(KnownUsers(cluster="c", kept=KeptUsers(version=9, users=[CLOSED])))
    assert proxy.names == {"default"}
    proxy.users.lost()
    proxy.registers(None)
    assert proxy.names == {"default"}
    assert proxy.users.settings.users[0].no_password is False
    proxy.registers(2, ADA, cluster="another")
    assert proxy.names == {"ada", "default"}
    assert proxy.users.known == KnownUsers(cluster="another", kept=KeptUsers(version=2, users=[ADA]))


def test_own_settings_that_change_are_put_together_with_those_of_topom_again() -> None:
    proxy = Proxy()
    proxy.registers(4, ADA, {**ADA, "name": "own"})
    proxy.users.use(WITH_USERS)
    assert proxy.names == {"ada", "own"}
    assert proxy.users.told() == HeldUsers(version=4, left_out={"own": "own"})
    proxy.users.use(NOTHING)
    assert proxy.names == {"ada", "own", "default"}
    assert proxy.users.told() == HeldUsers(version=4, left_out={})


def test_topom_is_told_the_version_that_all_workers_use() -> None:
    proxy = Proxy()
    proxy.registers(4, ADA)
    assert proxy.users.is_news
    assert proxy.users.told() == HeldUsers(version=4)
    assert not proxy.users.is_news
    proxy.follows = False
    proxy.hears(8)
    assert not proxy.users.is_news
    assert proxy.users.told() == HeldUsers(version=4)
    proxy.follows = True
    assert proxy.users.is_news
    assert proxy.users.told() == HeldUsers(version=8)
    # What was used of another cluster says nothing of this one's.
    proxy.follows = False
    proxy.registers(2, ADA, cluster="another")
    assert proxy.users.told() == HeldUsers(version=0)
