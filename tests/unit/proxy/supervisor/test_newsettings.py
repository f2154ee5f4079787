"""What topom is answered when it has a proxy read its settings anew, and over which stream."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.settings import ProxySettings
from proxy.supervisor import newsettings
from proxy.supervisor.newsettings import MOST_OPEN, NewSettings
from slots.messages.channel import Settings
from slots.messages.control import Reload, Reloaded
from slots.reloading import Reloading


class Worker:
    def __init__(self) -> None:
        self.settings_due = 0
        self.sent: list[Settings] = []

    def send(self, message: Settings) -> None:
        self.sent.append(message)


class Proxy:
    """Settings in a file, two workers, and what was said to topom."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.workers = [Worker(), Worker()]
        self.said: list[Reloaded] = []
        reloading = Reloading(ProxySettings.load(file), file)
        self.new = NewSettings(
            reloading, lambda: cast(Any, self.workers), lambda: {"listen": "127.0.0.1:7"}, self.said.append
        )
        reloading.takers.append(lambda settings: lambda: self.new.tell(settings))

    def take(self, worker: Worker) -> None:
        self.new.taken(cast(Any, worker), worker.sent[-1].number)

    async def answer(self) -> Reloaded:
        async with asyncio.timeout(60):
            while not self.said:
                await asyncio.sleep(0)
        return self.said.pop()


@pytest.fixture
def proxy(tmp_path: Path) -> Proxy:
    file = tmp_path / "proxy.toml"
    file.write_text("max_clients = 5")
    return Proxy(file)


async def test_topom_is_answered_once_all_workers_follow(proxy: Proxy) -> None:
    proxy.file.write_text("max_clients = 7\nworkers = 9")
    proxy.new.heard(Reload(number=3))
    for worker in proxy.workers:
        assert (worker.sent[0].settings["max_clients"], worker.sent[0].settings["listen"]) == (7, "127.0.0.1:7")
    proxy.take(proxy.workers[0])
    for _ in range(20):
        await asyncio.sleep(0)
    assert not proxy.said, "one has yet to follow"
    proxy.take(proxy.workers[1])
    answer = await proxy.answer()
    assert (answer.number, answer.file, answer.changed, answer.restart) == (
        3,
        str(proxy.file),
        ["max_clients"],
        ["workers"],
    )
    assert (answer.following, answer.workers, answer.refused) == (2, 2, "")


async def test_one_that_does_not_follow_in_time_is_counted_and_an_older_word_is_not_enough(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newsettings, "FOLLOW_SECONDS", 0.1)
    proxy.new.heard(Reload(number=3))
    proxy.new.heard(Reload(number=4))
    proxy.take(proxy.workers[0])
    proxy.new.taken(cast(Any, proxy.workers[1]), proxy.workers[1].sent[0].number)
    answer = await proxy.answer()
    assert (answer.following, answer.workers) == (1, 2)


async def test_nobody_waits_for_a_worker_that_has_ended(proxy: Proxy) -> None:
    proxy.new.heard(Reload(number=3))
    proxy.take(proxy.workers[0])
    await asyncio.sleep(0)
    proxy.workers.pop()
    proxy.new.ended()
    answer = await proxy.answer()
    assert (answer.following, answer.workers) == (1, 1)


async def test_a_refusal_says_why_in_words_that_fit_and_no_worker_is_told(proxy: Proxy) -> None:
    proxy.file.write_text("".join(f"odd_{number} = 1\n" for number in range(200)))
    proxy.new.heard(Reload(number=3))
    answer = await proxy.answer()
    assert answer.refused.startswith("There is no setting odd_0")
    assert answer.following == 2
    assert not any(worker.sent for worker in proxy.workers)


async def test_what_was_asked_over_a_stream_that_has_ended_is_not_answered_over_another(proxy: Proxy) -> None:
    proxy.new.heard(Reload(number=3))
    proxy.new.lost()
    for worker in proxy.workers:
        proxy.take(worker)
    proxy.new.heard(Reload(number=1))
    for worker in proxy.workers:
        proxy.take(worker)
    assert (await proxy.answer()).number == 1
    assert not proxy.said


async def test_no_more_questions_wait_than_are_allowed(proxy: Proxy) -> None:
    for number in range(MOST_OPEN + 1):
        proxy.new.heard(Reload(number=number))
    answer = await proxy.answer()
    assert answer.number == MOST_OPEN
    assert "ask again" in answer.refused
    proxy.new.lost()
