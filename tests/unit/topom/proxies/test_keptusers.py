"""Users of clients that topom keeps: what an entry may be, what is told of it, and who follows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slots.fields import LARGEST
from slots.messages.control import MOST_KEPT, HeldUsers
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.errors import TooMany
from topom.proxies import keptusers
from topom.proxies.keptusers import MOST_BYTES, InvalidUser, OpensProxies, UserBook, UserNotFound, changed

MakeBench = Callable[..., Awaitable[Bench]]
DIGEST = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
OTHER = "00" * 32
ADA: dict[str, Any] = {"name": "ada", "password_sha256": DIGEST}


@pytest.mark.parametrize(
    ("before", "fields", "after"),
    [
        (None, {"password_sha256": DIGEST.upper()}, ADA),
        (None, {"password_sha256": DIGEST, "read_only": False, "admin": None, "databases": None}, ADA),
        (ADA, {"rules": "+get ~a*", "databases": [3]}, {**ADA, "rules": "+get ~a*", "databases": [3]}),
        ({**ADA, "rules": "+get", "read_only": True}, {"rules": None}, {**ADA, "read_only": True}),
        (
            {**ADA, "rules": "+get"},
            {"password_sha256": OTHER},
            {"name": "ada", "password_sha256": OTHER, "rules": "+get"},
        ),
        (ADA, {"no_password": True}, {"name": "ada", "no_password": True}),
        ({"name": "ada", "no_password": True}, {"password_sha256": DIGEST}, ADA),
    ],
)
def test_named_fields_change_and_the_others_stay(before: Any, fields: dict[str, Any], after: Any) -> None:
    assert changed(before, "ada", fields) == after


@pytest.mark.parametrize(
    ("before", "name", "fields", "says"),
    [
        (None, "ada", {}, "it needs a password, or no_password"),
        (ADA, "ada", {"password_sha256": None}, "it needs a password, or no_password"),
        (None, "ada", {"password": "secret"}, "its password is told as password_sha256"),
        (ADA, "ada", {"name": "bob"}, "it keeps its name"),
        (ADA, "ada", {"redonly": True}, "redonly is not known"),
        ({**ADA, "of_a_later_version": 1}, "ada", {"read_only": True}, "of_a_later_version is not known"),
        (ADA, "ada", {"rules": "+nosuchcommand"}, "rules is wrong: "),
        (ADA, "ada", {"databases": [-1]}, "databases.0 has to be at least 0"),
        (None, "a b", {"no_password": True}, "without blanks"),
        (None, "ada", {"password_sha256": "5ecre7"}, "64 hexadecimal digits"),
        (ADA, "ada", {"no_password": True, "password_sha256": DIGEST}, "give one of"),
    ],
)
def test_what_cannot_be_is_refused_in_words_without_secrets(
    before: Any, name: str, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidUser) as refused:
        changed(before, name, fields)
    assert says in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (DIGEST, "5ecre7", "'secret'"))


@pytest.fixture
async def book(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, UserBook]:
    monkeypatch.setattr(keptusers, "FOLLOW_SECONDS", 0.0)
    one = await bench()
    made = UserBook(one.ledger, one.members)
    made.start()
    return one, made


def events(bench: Bench) -> list[tuple[str, str]]:
    return [(event.what, event.text) for event in bench.ledger.state.events if event.what.startswith("user_")]


async def test_a_change_is_stored_told_to_proxies_and_an_event_without_secrets(book: tuple[Bench, UserBook]) -> None:
    bench, users = book
    assert (users.told().version, users.frame(0)) == (0, None)
    await users.put("ada", {"password_sha256": DIGEST})
    first = users.frame(0)
    assert first is not None
    assert json.loads(first[1]) == {"type": "users", "kept": {"version": first[0], "users": [ADA]}}
    assert users.frame(first[0]) is None
    before = bench.ledger.state
    await users.put("ada", {"password_sha256": DIGEST})
    assert bench.ledger.state is before, "nothing has changed"
    await users.put("ada", {"password_sha256": OTHER, "read_only": True})
    await users.remove("ada", opens=False)
    last = users.frame(first[0])
    assert last is not None
    assert json.loads(last[1])["kept"] == {"version": last[0], "users": []}
    assert last[0] > first[0]
    assert events(bench) == [
        ("user_set", "user ada was added"),
        ("user_set", "user ada was changed: password_sha256, read_only"),
        ("user_removed", "user ada was removed"),
    ]
    with pytest.raises(UserNotFound, match="no user ada"):
        await users.remove("ada", opens=False)


async def test_default_with_a_password_goes_by_a_word_more(book: tuple[Bench, UserBook]) -> None:
    _, users = book
    await users.put("default", {"password_sha256": DIGEST})
    with pytest.raises(OpensProxies, match="give --open"):
        await users.remove("default", opens=False)
    await users.remove("default", opens=True)
    await users.put("default", {"no_password": True, "read_only": True})
    await users.remove("default", opens=False)
    assert users.users == {}


async def test_their_number_and_size_have_limits(book: tuple[Bench, UserBook], monkeypatch: pytest.MonkeyPatch) -> None:
    _, users = book
    rules = " ".join(f"~{number:04d}:{'x' * 40}" for number in range(MOST_BYTES // 80))
    await users.put("ada", {"no_password": True, "rules": rules})
    with pytest.raises(TooMany, match="512 KiB"):
        await users.put("bob", {"no_password": True, "rules": rules})
    await users.put("ada", {"rules": None})
    monkeypatch.setattr(keptusers, "MOST_KEPT", 2)
    monkeypatch.setattr(keptusers, "MOST_LIMITED", 1)
    await users.put("bob", {"no_password": True, "requests_per_second": 1})
    with pytest.raises(TooMany, match="may have requests_per_second, bytes_per_second or worker_percent"):
        await users.put("ada", {"bytes_per_second": 1})
    with pytest.raises(TooMany, match="as many as there may be"):
        await users.put("eve", {"no_password": True})
    assert MOST_KEPT == 1000


async def test_a_change_waits_for_those_that_are_there_and_names_the_others(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    users = UserBook(one.ledger, one.members)
    users.start()
    quick, gone, older = [(await FakeProxy(one, number).register()).member for number in (7, 8, 9)]
    assert users.behind() == {}, "nobody lacks what there never was"
    quick.users = gone.users = HeldUsers(version=0)
    gone.link = None
    woken: list[int] = []
    monkeypatch.setattr(quick.link, "wake", lambda: woken.append(users.version))
    putting = asyncio.create_task(users.put("ada", {"no_password": True}))
    async with asyncio.timeout(60):
        while not users.version:
            await asyncio.sleep(0)
        assert set(users.behind()) == {one.record.id for one in (quick, gone, older)}
        await asyncio.sleep(0.1)
        assert not putting.done(), "a proxy that is there has yet to follow"
        assert woken == [users.version], "it hears of it at once, and not with the next answer to a heartbeat"
        quick.users = HeldUsers(version=users.version)
        await putting
    behind = users.behind()
    assert behind.keys() == {gone.record.id, older.record.id}
    assert "not connected" in behind[gone.record.id]
    assert "earlier version" in behind[older.record.id]
    monkeypatch.setattr(keptusers, "FOLLOW_SECONDS", 0.2)
    async with asyncio.timeout(60):
        await users.put("ada", {"read_only": True})
    assert quick.record.id in users.behind(), "it waits no longer than that"


async def test_after_an_older_store_the_next_change_takes_the_place_of_what_proxies_have(
    book: tuple[Bench, UserBook],
) -> None:
    one, users = book
    newer, odd = [(await FakeProxy(one, number).register()).member for number in (7, 8)]
    newer.users = HeldUsers(version=1_000)
    assert "which the store lacks" in users.behind()[newer.record.id], "also if it has never had users"
    for change in (users.put("ada", {"no_password": True}), users.remove("ada", opens=False)):
        await change
        assert "later" not in users.behind()[newer.record.id]
        assert users.version > newer.users.version
        newer.users = HeldUsers(version=users.version)
        assert newer.record.id not in users.behind()
    # What cannot be does not use up the versions.
    odd.users = HeldUsers(version=LARGEST)
    await users.put("ada", {"no_password": True})
    assert newer.users.version < users.version < 2_000
    assert "which the store lacks" in users.behind()[odd.record.id]
