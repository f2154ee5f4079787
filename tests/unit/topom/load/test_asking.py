"""Whom topom asks for its load, how much it lets tell, and what it believes."""

from base64 import b64encode
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slots.messages.control import Load, TellLoad
from slots.messages.load import HotKey, Notable, ServerTraffic, Traffic
from tests.unit.slots.test_slotrates import told
from tests.unit.topom.load.test_book import A, table
from tests.unit.topom.load.test_notable import said as request
from topom.cluster.state import ProxyRecord
from topom.load import asking
from topom.load.asking import ASK_SECONDS, SOON_SECONDS, Asking
from topom.load.book import Book
from topom.proxies.member import Member, Refused


class Link:
    def __init__(self) -> None:
        self.said: list[TellLoad] = []

    def wake(self) -> None: ...

    def say(self, message: object) -> None:
        assert isinstance(message, TellLoad)
        self.said.append(message)

    def end(self, message: object) -> None: ...


class Fleet:
    """Proxies without a network, and time that a test lets pass."""

    def __init__(self, proxies: int) -> None:
        self.now = 1000.0
        self.members: list[Member] = []
        self.book = Book(16, lambda: self.now)
        self.ledger = SimpleNamespace(
            table=table(dict.fromkeys(range(16), 1)), state=SimpleNamespace(product=SimpleNamespace(databases=16))
        )
        self.asking = Asking(
            cast(Any, self.ledger),
            cast(Any, SimpleNamespace(all=lambda: self.members)),
            self.book,
            lambda: self.now,
        )
        for _ in range(proxies):
            self.join()

    def join(self) -> Member:
        member = Member(ProxyRecord(len(self.members) + 1, "1" * 32, "h:1", "host", 5, 2, "0"), self.now)
        member.link = Link()
        self.members.append(member)
        return member

    async def passes(self, seconds: float) -> None:
        await self.asking.look()
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            await self.asking.look()

    def questions(self, proxy: int = 0) -> list[TellLoad]:
        link = self.members[proxy].link
        assert isinstance(link, Link)
        return link.said

    def answer(self, proxy: int = 0, **fields: Any) -> None:
        member = self.members[proxy]
        assert member.link is not None
        said = {"number": self.questions(proxy)[-1].number, "seconds": SOON_SECONDS, **fields}
        self.asking.answered(member, member.link, Load(**said))


def rows(*told_rows: tuple[int, int, int, int, int]) -> str:
    return b64encode(told(*told_rows)).decode()


async def test_a_proxy_is_asked_again_once_it_has_answered() -> None:
    fleet = Fleet(1)
    await fleet.passes(3 * ASK_SECONDS)
    assert [question.number for question in fleet.questions()] == [1], "one question at a time"
    fleet.answer()
    await fleet.passes(ASK_SECONDS)
    assert [question.number for question in fleet.questions()] == [1, 2]


@pytest.mark.parametrize(("proxies", "seconds"), [(1, 1.5), (75, 1.5), (150, 3.0), (250, 5.0), (1000, 5.0)])
async def test_a_small_fleet_is_asked_sooner(proxies: int, seconds: float) -> None:
    """so a hot key is shown soon; many proxies together have no more to tell a second."""
    fleet = Fleet(proxies)
    await fleet.asking.look()
    asked = [fleet.now]
    for _ in range(3):
        fleet.answer()
        while len(fleet.questions()) == len(asked):
            fleet.now += 0.5
            await fleet.asking.look()
        asked.append(fleet.now)
    assert [after - before for before, after in pairwise(asked)] == [seconds] * 3
    assert fleet.questions()[-1].slots * proxies <= max(200_000 * seconds, 8192 * proxies)


async def test_what_a_proxy_answers_is_in_the_book_when_the_period_has_ended() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(
        slots=rows((3, 50, 5, 500, 5000)),
        servers={
            A: ServerTraffic(50, 5, 500, 5000, 1000.0, 50),
            "10.9.9.9:1": ServerTraffic(50, 5, 500, 5000, 1000.0, 50),
        },
        users={"default": Traffic(40, 0, 400, 4000)},
        hot_keys=[HotKey(0, 3, b64encode(b"k").decode(), 1, 6.0, 1.0)],
        all=Traffic(60, 5, 600, 6000),
    )
    await fleet.passes(ASK_SECONDS)
    book = fleet.book
    assert book.slots()[3] == pytest.approx((10, 100, 1000))
    assert {row.name: row.rates for row in book.by_group}[1] == pytest.approx((10, 1, 100, 1000, 0, 0))
    assert {row.name: row.rates for row in book.by_server} == {A: pytest.approx((10, 1, 100, 1000, 200, 10))}, (
        "a server that no group has is left out"
    )
    assert {row.name: row.rates.requests for row in book.by_user} == {"default": pytest.approx(8)}
    assert {row.name: row.rates.requests for row in book.by_proxy} == {1: pytest.approx(12)}
    [key] = book.hot_keys()
    assert (key.key, key.rate, key.excess, key.share) == (b"k", 6, 1, pytest.approx(0.5))
    assert fleet.asking.telling == 1


@pytest.mark.parametrize("fields", [{"number": 2}, {"number": 0}])
async def test_an_answer_with_another_number_ends_the_stream(fields: dict[str, Any]) -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    with pytest.raises(Refused, match="without being asked"):
        fleet.answer(**fields)


async def test_an_answer_to_nobody_or_twice_or_over_another_stream_ends_the_stream() -> None:
    fleet = Fleet(1)
    member = fleet.members[0]
    link = member.link
    assert link is not None
    with pytest.raises(Refused, match="without being asked"):
        fleet.asking.answered(member, link, Load(number=1, seconds=1.0))
    await fleet.passes(0)
    with pytest.raises(Refused, match="without being asked"):
        fleet.asking.answered(member, Link(), Load(number=1, seconds=1.0))
    fleet.answer()
    with pytest.raises(Refused, match="without being asked"):
        fleet.answer()


async def test_a_proxy_that_was_lost_meanwhile_may_answer_what_it_was_asked() -> None:
    """and keeps its stream: it was only paused. What it told before is forgotten as soon as it is lost."""
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(all=Traffic(60, 5, 600, 6000))
    await fleet.passes(ASK_SECONDS)
    assert [row.name for row in fleet.book.by_proxy] == [1]
    fleet.members[0].lost = True
    await fleet.passes(2 * ASK_SECONDS)
    assert [row.name for row in fleet.book.by_proxy] == []
    assert [question.number for question in fleet.questions()] == [1, 2], "one that is lost is not asked"
    assert fleet.asking.telling == 0
    fleet.members[0].lost = False
    fleet.answer(seconds=10.0, all=Traffic(60, 5, 600, 6000))
    await fleet.passes(ASK_SECONDS)
    assert [row.name for row in fleet.book.by_proxy] == [1]
    assert [question.number for question in fleet.questions()] == [1, 2, 3]


KEY = b64encode(b"k").decode()


def notable(**fields: Any) -> Notable:
    return request(**{"length": 1, **fields})[0]._replace(key=fields.get("key", KEY))


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": rows((16, 1, 0, 0, 0))},
        {"slots": b64encode(told((1, 1, 0, 0, 0)) + b"123").decode()},
        {"slots": "not base64 at all..."},
        {"hot_keys": [HotKey(0, 1, "!!!!", 4, 1.0, 0.0)]},
        {"notable": [notable(key="!!!!", length=4)]},
    ],
)
async def test_an_answer_without_meaning_ends_the_stream_and_leaves_the_book_alone(fields: dict[str, Any]) -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    with pytest.raises(Refused) as refused:
        fleet.answer(users={"u": Traffic(1, 1, 1, 1)}, all=Traffic(1, 1, 1, 1), **fields)
    assert refused.value.reason == "invalid"
    await fleet.passes(ASK_SECONDS)
    assert (len(fleet.book.by_user), fleet.book.measured_seconds) == (0, 0)


async def test_an_answer_with_more_than_was_asked_for_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LEAST", 2)
    monkeypatch.setattr(asking, "MOST_ROWS", 0)
    monkeypatch.setattr(asking, "MOST_NAMES", 0)
    for fields in (
        {"slots": rows(*((slot, 1, 0, 0, 0) for slot in range(3)))},
        {"users": dict.fromkeys("abc", Traffic(1, 0, 0, 0))},
    ):
        fleet = Fleet(1)
        await fleet.passes(0)
        assert (fleet.questions()[0].slots, fleet.questions()[0].names) == (2, 2)
        with pytest.raises(Refused, match="more of its load"):
            fleet.answer(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": rows((1, 100_000_000, 0, 0, 0))},
        {"slots": rows((1, 1, 0, 2**63, 0))},
        {"servers": {A: ServerTraffic(2**62, 0, 0, 0, 0.0, 2**62)}},
        {"users": {"u": Traffic(1, 0, 0, 2**62)}},
        {"servers": {A: ServerTraffic(5, 0, 0, 0, 1e18, 5)}},
        {"servers": {A: ServerTraffic(5, 0, 0, 0, 5.0, 6)}},
        {"all": Traffic(100_000_000, 0, 0, 0)},
    ],
)
async def test_what_cannot_be_true_is_left_out_and_the_stream_stays(fields: dict[str, Any]) -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(**fields)
    await fleet.passes(ASK_SECONDS)
    book = fleet.book
    assert (sum(rate.requests for rate in book.slots()), len(book.by_user), book.hot_keys()) == (0, 0, [])
    assert (len(book.by_server), len(book.by_proxy), book.measured_seconds) == (0, 0, 0)
    assert len(fleet.questions()) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"slot": 16},
        {"database": 16},
        {"length": 0},
        {"key": b64encode(b"k" * 129).decode(), "length": 200},
        {"microseconds": 1e13},
        {"bytes_in": 10**13},
        {"bytes_out": 10**13},
        {"elements": 10**13},
    ],
)
async def test_a_notable_request_that_cannot_be_is_left_out_alone(fields: dict[str, Any]) -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(notable=[notable(**fields), notable(user="ada")], all=Traffic(50, 0, 0, 0))
    await fleet.passes(ASK_SECONDS)
    assert [seen.user for seen in fleet.book.notable.newest()] == ["ada"]
    assert fleet.book.by_proxy.total().requests == pytest.approx(10)
    assert len(fleet.questions()) == 2, "the stream stays"


@pytest.mark.parametrize(
    "wrong",
    [
        HotKey(0, 16, KEY, 1, 1.0, 0.0),
        HotKey(16, 1, KEY, 1, 1.0, 0.0),
        HotKey(0, 1, KEY, 0, 1.0, 0.0),
        HotKey(0, 1, b64encode(b"k" * 129).decode(), 200, 1.0, 0.0),
        HotKey(0, 1, KEY, 1, 1e8, 0.0),
        HotKey(0, 1, KEY, 1, 1.0, 2.0),
    ],
)
async def test_a_hot_key_that_cannot_be_is_left_out_alone(wrong: HotKey) -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(hot_keys=[wrong, HotKey(0, 3, b64encode(b"ada").decode(), 3, 1.0, 0.0)], all=Traffic(50, 0, 0, 0))
    await fleet.passes(ASK_SECONDS)
    assert [key.key for key in fleet.book.hot_keys()] == [b"ada"]
    assert fleet.book.by_proxy.total().requests == pytest.approx(10)
    assert len(fleet.questions()) == 2, "the stream stays"


async def test_notable_requests_of_all_proxies_are_in_the_book_and_stay_when_one_is_lost() -> None:
    fleet = Fleet(2)
    await fleet.passes(0)
    fleet.answer(0, notable=[notable(), notable(key="", length=0, slot=-1)])
    fleet.answer(1, notable=[notable(microseconds=50_000.0)], hashed=False)
    fleet.members[1].lost = True
    await fleet.passes(120.0)
    found = {seen.alike.key: seen for seen in fleet.book.notable.newest()}
    assert {key: seen.times for key, seen in found.items()} == {b"k": 2, b"": 1}
    assert found[b"k"].proxy_id == 2


async def test_a_hash_of_a_key_is_told_apart() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(notable=[notable()], hashed=True)
    assert [seen.alike.hashed for seen in fleet.book.notable.newest()] == [True]


async def test_counts_of_more_time_than_has_passed_are_left_out() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(seconds=86_400.0)
    await fleet.passes(ASK_SECONDS)
    fleet.answer(seconds=60.0, slots=rows((1, 60, 0, 0, 0)))
    await fleet.passes(ASK_SECONDS)
    assert fleet.book.slots()[1].requests == 0
    fleet.answer(seconds=6.0, slots=rows((1, 60, 0, 0, 0)))
    await fleet.passes(ASK_SECONDS)
    assert fleet.book.slots()[1].requests > 0


async def test_the_first_answer_to_a_topom_is_no_burst_though_it_is_of_time_before() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(seconds=7.0, slots=rows((1, 70, 0, 0, 0)), all=Traffic(70, 0, 0, 0))
    for _ in range(2):
        await fleet.passes(SOON_SECONDS)
        fleet.answer(slots=rows((1, 15, 0, 0, 0)), all=Traffic(15, 0, 0, 0))
    await fleet.passes(ASK_SECONDS - 2 * SOON_SECONDS)
    assert fleet.book.slots()[1].requests == pytest.approx(10 * 3 * SOON_SECONDS / ASK_SECONDS)
    assert fleet.book.by_proxy.total().requests == pytest.approx(10 * 3 * SOON_SECONDS / ASK_SECONDS)


async def test_the_counts_of_a_long_time_are_no_burst() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(slots=rows((1, 15, 0, 0, 0)), all=Traffic(15, 0, 0, 0))
    await fleet.passes(SOON_SECONDS)
    fleet.now += 20
    fleet.answer(seconds=21.5, slots=rows((1, 215, 0, 0, 0)), all=Traffic(215, 0, 0, 0))
    await fleet.passes(0)
    assert fleet.book.slots()[1].requests == pytest.approx((15 + 50) / asking.LONG_SECONDS)
    assert fleet.book.by_proxy.total().requests == pytest.approx((15 + 50) / asking.LONG_SECONDS)


async def test_what_a_proxy_counted_while_its_stream_was_cut_is_not_lost() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.answer(slots=rows((1, 15, 0, 0, 0)), all=Traffic(15, 0, 0, 0))
    fleet.members[0].link = None
    await fleet.passes(3.0)
    fleet.members[0].link = Link()
    await fleet.passes(0.5)
    fleet.answer(seconds=3.5, slots=rows((1, 35, 0, 0, 0)), all=Traffic(35, 0, 0, 0))
    await fleet.passes(1.5)
    assert fleet.book.slots()[1].requests == pytest.approx(10)
    # The book began anew for the proxy itself.
    assert fleet.book.by_proxy.total().requests == pytest.approx(10 * SOON_SECONDS / ASK_SECONDS)


async def test_a_proxy_that_is_lost_or_leaves_has_no_part_any_more() -> None:
    for lose in (lambda member: setattr(member, "link", None), lambda member: setattr(member, "lost", True)):
        fleet = Fleet(2)
        await fleet.passes(0)
        for proxy in range(2):
            key = HotKey(0, 1, KEY, 1, 5.0, 0.0)
            fleet.answer(proxy, all=Traffic(50, 0, 0, 0), hot_keys=[key], slots=rows((1, 50, 0, 0, 0)))
        await fleet.passes(ASK_SECONDS)
        assert fleet.book.by_proxy.total().requests == pytest.approx(20)
        assert fleet.book.hot_keys()[0].rate == 10
        lose(fleet.members[1])
        await fleet.passes(0)
        assert fleet.book.by_proxy.total().requests == pytest.approx(10)
        assert fleet.book.hot_keys()[0].rate == 5
        assert fleet.asking.telling == 1


@pytest.mark.parametrize("fault", ["silent", "away", "lost", "not believed"])
async def test_load_is_whole_only_while_every_proxy_tells(fault: str) -> None:
    fleet = Fleet(2)

    async def told_for(seconds: float, proxies: tuple[int, ...]) -> None:
        for _ in range(round(seconds / ASK_SECONDS)):
            await fleet.passes(0)
            for proxy in proxies:
                fleet.answer(proxy)
            await fleet.passes(ASK_SECONDS)

    # Given
    await told_for(60, (0, 1))
    assert fleet.book.whole_seconds == 60
    # A proxy that comes has time to tell, and one that leaves is missed by nobody.
    fleet.join()
    await told_for(10, (0, 1, 2))
    fleet.members.pop()
    await told_for(10, (0, 1))
    assert fleet.book.whole_seconds == 80
    # When
    member, link = fleet.members[1], fleet.members[1].link
    member.lost, member.link = fault == "lost", None if fault == "away" else link
    if fault == "not believed":
        for _ in range(4):
            await fleet.passes(0)
            fleet.answer(0)
            fleet.answer(1, all=Traffic(10**12, 0, 0, 0))
            await fleet.passes(ASK_SECONDS)
    else:
        await told_for(20, (0,))
    # Then
    assert fleet.book.whole_seconds == 0
    assert fleet.book.measured_seconds == 100
    # When: it is back.
    member.lost, member.link = False, Link()
    await fleet.passes(ASK_SECONDS)
    await told_for(10, (0, 1))
    assert 5 <= fleet.book.whole_seconds <= 15


async def test_time_in_which_topom_was_paused_is_not_measured() -> None:
    fleet = Fleet(1)
    for _ in range(4):
        await fleet.passes(0)
        fleet.answer(slots=rows((3, 500, 0, 0, 0)))
        await fleet.passes(ASK_SECONDS)
    assert fleet.book.whole_seconds == fleet.book.measured_seconds == 20
    fleet.answer(slots=rows((3, 500, 0, 0, 0)))
    fleet.now += 3600
    await fleet.passes(0)
    assert fleet.book.whole_seconds == 0
    assert fleet.book.measured_seconds < 30
    assert fleet.book.slots()[3].requests > 80


async def test_a_new_stream_is_asked_anew() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    fleet.members[0].link = Link()
    await fleet.passes(ASK_SECONDS)
    assert [question.number for question in fleet.questions()] == [1]
    fleet.answer()


@pytest.mark.parametrize(
    ("proxies", "slots", "names"), [(1, 8192, 400), (300, 3333, 83), (1000, 1000, 64), (20_000, 64, 64)]
)
async def test_all_proxies_together_tell_a_limited_amount(proxies: int, slots: int, names: int) -> None:
    fleet = Fleet(1)
    fleet.members *= proxies
    await fleet.asking.look()
    question = fleet.questions()[0]
    assert (question.slots, question.names) == (slots, names)


async def test_questions_to_a_large_fleet_are_spread_over_time() -> None:
    fleet = Fleet(1000)
    await fleet.asking.look()
    at_once = sum(bool(fleet.questions(proxy)) for proxy in range(1000))
    assert at_once == 1
    await fleet.passes(2.5)
    assert 400 <= sum(bool(fleet.questions(proxy)) for proxy in range(1000)) <= 600
    await fleet.passes(2.5)
    assert all(fleet.questions(proxy) for proxy in range(1000))


async def test_a_server_that_no_group_has_is_left_out_at_any_time() -> None:
    fleet = Fleet(1)
    await fleet.passes(0)
    for _ in range(2):
        fleet.answer(servers={"10.9.9.9:1": ServerTraffic(50, 5, 500, 5000, 1000.0, 50)})
        await fleet.passes(ASK_SECONDS)
        assert len(fleet.book.by_server) == 0
