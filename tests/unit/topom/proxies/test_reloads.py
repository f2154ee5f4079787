"""Whose answers count when proxies are asked to read their settings anew, and how long topom waits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slots.messages.control import Reload, Reloaded
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.errors import ProxyNotFound, TooMany
from topom.proxies import reloads
from topom.proxies.reloads import MOST_OPEN, Reloads

MakeBench = Callable[..., Awaitable[Bench]]


def answer(number: int, refused: str = "") -> Reloaded:
    return Reloaded(number=number, file="/a", since=1.0, refused=refused, workers=1, following=1)


def asked(proxy: FakeProxy) -> list[int]:
    return [message.number for message in proxy.told if isinstance(message, Reload)]


async def until_asked(proxy: FakeProxy, times: int) -> int:
    async with asyncio.timeout(60):
        while len(asked(proxy)) < times:
            await asyncio.sleep(0)
    return asked(proxy)[-1]


async def test_an_answer_counts_from_whom_it_was_asked_and_for_its_own_question(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    proxies = [await FakeProxy(one, number).register() for number in (7, 8)]
    asking = Reloads(one.ledger, one.members)
    monkeypatch.setattr(reloads, "ANSWER_SECONDS", 0.2)
    first = asyncio.create_task(asking.ask(None))
    numbers = [await until_asked(proxy, 1) for proxy in proxies]
    asking.answered(proxies[1], answer(numbers[0]))
    asking.answered(proxies[1], answer(numbers[1], "no"))
    found = await first
    assert [(one.answer is None, bool(one.silent)) for one in found] == [(True, True), (False, False)]
    second = asyncio.create_task(asking.ask(found[0].member.record.id))
    number = await until_asked(proxies[0], 2)
    asking.answered(proxies[0], answer(numbers[0], "of the question before, which came late"))
    asking.answered(proxies[0], answer(number))
    asking.answered(proxies[0], answer(number, "twice"))
    [outcome] = await second
    assert outcome.answer == answer(number)
    assert len(asked(proxies[1])) == 1


async def test_one_that_is_not_connected_or_goes_away_is_told_as_such(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 7).register()
    member = proxy.member
    assert member is not None
    asking = Reloads(one.ledger, one.members)
    monkeypatch.setattr(reloads, "ANSWER_SECONDS", 0.2)
    going = asyncio.create_task(asking.ask(None))
    await until_asked(proxy, 1)
    one.members.disconnected(member, proxy)
    assert "stream ended" in (await going)[0].silent
    silent = (await asking.ask(None))[0].silent
    assert "not connected" in silent
    assert "SIGHUP" in silent, "it may serve on, and is not reached from here"
    with pytest.raises(ProxyNotFound):
        await asking.ask(99)


async def test_so_many_ask_at_once_and_then_others_again(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await bench()
    proxy = await FakeProxy(one, 7).register()
    asking = Reloads(one.ledger, one.members)
    monkeypatch.setattr(reloads, "ANSWER_SECONDS", 0.2)
    many = [asyncio.create_task(asking.ask(None)) for _ in range(MOST_OPEN)]
    await until_asked(proxy, MOST_OPEN)
    with pytest.raises(TooMany):
        await asking.ask(None)
    assert len(asked(proxy)) == MOST_OPEN
    await asyncio.gather(*many)
    assert len(await asking.ask(None)) == 1
