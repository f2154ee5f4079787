"""A proxy's scripts between its workers and topom: told once, told again when topom is back, and flushed for good."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy import sharedscripts
from proxy.settings import ProxySettings
from proxy.sharedscripts import SharedScripts
from slots.scripts import digest
from tests.unit.proxy.proxy_fakes import SECONDS


class Sides:
    """Both neighbours of the scripts: topom and the workers."""

    index = 0

    def __init__(self, **settings: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.flushed: list[dict[str, Any]] = []
        self.workers_ready = asyncio.Event()
        self.workers_ready.set()
        self.asked = asyncio.Event()
        self.questions = 0
        self.scripts = SharedScripts(ProxySettings(**settings), self.sent.append, self.ask_workers)

    # As workers

    def send(self, message: dict[str, Any]) -> None:
        self.answers.put_nowait(message)

    async def ask_workers(self, message: dict[str, Any]) -> list[Any]:
        self.flushed.append(message)
        self.asked.set()
        await self.workers_ready.wait()
        return []

    def ask(self, what: str, **more: Any) -> bool:
        self.questions += 1
        return self.scripts.asked(self, {"type": "ask", "id": self.questions, "what": what, **more})

    async def answer(self) -> list[Any]:
        async with asyncio.timeout(SECONDS):
            message = await self.answers.get()
        assert message["type"] == "answer"
        return list(message["answers"])

    async def see(self, *bodies: str, loaded: bool = False, flushes: int | None = None) -> None:
        scripts = [{"body": body, "loaded": loaded} for body in bodies]
        assert self.ask("scripts_seen", scripts=scripts, flushes=self.flushes if flushes is None else flushes)
        assert await self.answer() == []

    async def level(self, *bodies: str) -> list[int]:
        assert self.ask("shared_scripts_known", names=[digest(body.encode()).decode() for body in bodies])
        return list((await self.answer())[0])

    @property
    def flushes(self) -> int:
        return self.scripts.flushes

    # As topom

    def register(self, generation: int | None = 0, sequence: int = 0) -> dict[str, Any]:
        registration = self.scripts.registration()
        answer = {"scripts_generation": generation, "scripts_sequence": sequence}
        self.scripts.registered({} if generation is None else answer)
        return dict(registration["scripts"])

    def say(self, kind: str, **fields: Any) -> None:
        assert self.scripts.heard({"type": kind, **fields})

    def give(self, *bodies: bytes, generation: int = 0, sequence: int = 1) -> None:
        scripts = [{"body": base64.b64encode(body).decode(), "loaded": True} for body in bodies]
        self.say("scripts", generation=generation, sequence=sequence, scripts=scripts)

    def next(self, kind: str) -> dict[str, Any]:
        frame = self.sent.pop(0)
        assert frame["type"] == kind
        return frame

    def told(self) -> tuple[list[bytes], int]:
        """The scripts in the next frame, confirmed; and its generation."""
        frame = self.next("scripts")
        self.say("scripts_told", number=frame["number"])
        return [base64.b64decode(script["body"]) for script in frame["scripts"]], frame["generation"]

    async def until_sent(self, kind: str) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            while not self.sent:
                await asyncio.sleep(0)
        return self.next(kind)


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    one = Sides()
    yield one
    await one.scripts.close()


async def test_what_a_worker_sees_is_told_to_topom_once(sides: Sides) -> None:
    sides.register()
    await sides.see("a", "\xff")
    assert sides.told() == ([b"a", b"\xff"], 0)
    await sides.see("a")
    assert sides.sent == []
    assert not sides.ask("script_loaded", body="a", flushes=0), "the other workers have to hear of it"
    frame = sides.next("scripts")
    assert frame["scripts"] == [{"body": "YQ==", "loaded": True}]


async def test_what_others_have_told_is_found_and_not_told_back(sides: Sides) -> None:
    sides.register()
    sides.give(b"a", b"\xfe")
    assert sides.sent == []
    for body in (b"a", b"\xfe"):
        assert sides.ask("shared_script", name=digest(body).decode())
        assert await sides.answer() == [{"body": body.decode("latin-1"), "loaded": True}]
    assert sides.ask("shared_script", name="0" * 40)
    assert await sides.answer() == []
    await sides.see("b")
    assert await sides.level("a", "b", "c") == [2, 1, 0]
    assert not sides.ask("clients"), "other questions are for the workers"


async def test_one_batch_at_a_time(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharedscripts, "BATCH_SCRIPTS", 3)
    monkeypatch.setattr(sharedscripts, "BATCH_BYTES", 5)
    sides.register()
    await sides.see("1", "2", "3", "4", "long one", "6", "7")
    await sides.see("8")
    found = []
    while sides.sent:
        assert len(sides.sent) == 1
        found.append(sides.told()[0])
    assert found == [[b"1", b"2", b"3"], [b"4", b"long one"], [b"6", b"7", b"8"]]


async def test_what_topom_has_not_confirmed_is_told_again_when_it_is_back(sides: Sides) -> None:
    sides.register()
    await sides.see("a")
    assert sides.next("scripts")["scripts"]
    sides.scripts.lost()
    await sides.see("b")
    assert sides.sent == []
    sides.register()
    assert sides.told() == ([b"a", b"b"], 0)
    sides.say("scripts_told", number=-1)
    sides.scripts.lost()
    sides.register()
    assert sides.sent == []


async def test_a_loaded_script_that_was_on_its_way_as_merely_run(sides: Sides) -> None:
    sides.register()
    await sides.see("a")
    await sides.see("a", loaded=True)
    assert sides.told() == ([b"a"], 0)
    assert sides.next("scripts")["scripts"] == [{"body": "YQ==", "loaded": True}]


async def test_a_topom_that_knows_nothing_of_scripts_is_told_nothing(sides: Sides) -> None:
    sides.register(None)
    await sides.see("a")
    sides.ask("scripts_flushed", bodies=True)
    await sides.answer()
    assert sides.sent == []


async def test_where_it_goes_on_after_a_lost_stream(sides: Sides) -> None:
    assert sides.register(7) == {"generation": 0, "sequence": 0}
    sides.give(b"a", generation=7, sequence=5)
    sides.scripts.lost()
    assert sides.register(7) == {"generation": 7, "sequence": 5}
    assert await sides.level("a") == [2]
    assert sides.flushed == []


async def test_questions_wait_for_what_is_still_on_its_way_to_a_new_proxy(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = digest(b"b").decode()
    sides.register(sequence=2)
    sides.give(b"a", sequence=1)
    sides.ask("shared_script", name=name)
    sides.ask("shared_scripts_known", names=[name])
    await asyncio.sleep(0)
    assert sides.answers.empty()
    sides.give(b"b", sequence=2)
    found = [await sides.answer(), await sides.answer()]
    assert [{"body": "b", "loaded": True}] in found
    assert [[2]] in found
    # Not for long, nor when it cannot come any more.
    sides.scripts.lost()
    sides.register(sequence=3)
    monkeypatch.setattr(sharedscripts, "CATCH_UP_SECONDS", 0.01)
    sides.ask("shared_script", name="0" * 40)
    assert await sides.answer() == []
    monkeypatch.undo()
    for end in (
        sides.scripts.lost,
        lambda: sides.say("scripts_flushed", generation=1, bodies=True, number=1),
    ):
        sides.register(sequence=4)
        sides.ask("shared_script", name="0" * 40)
        await asyncio.sleep(0)
        end()
        async with asyncio.timeout(sharedscripts.CATCH_UP_SECONDS / 2):
            assert await sides.answer() == []


async def test_what_is_not_told_is_bounded() -> None:
    sides = Sides(scripts_remembered=3)
    for number in range(100):
        await sides.see(f"{number}")
    assert len(sides.scripts) == 3
    assert len(sides.scripts._untold) <= 6
    sides.register()
    assert sides.told()[0] == [b"97", b"98", b"99"]


async def test_a_flush_waits_for_the_workers_and_for_the_other_proxies(sides: Sides) -> None:
    sides.register()
    await sides.see("a")
    sides.told()
    sides.workers_ready.clear()
    assert sides.ask("scripts_flushed", bodies=True)
    assert await sides.level("a") == [0]
    frame = await sides.until_sent("flush_scripts")
    assert frame["bodies"]
    await asyncio.wait_for(sides.asked.wait(), SECONDS)
    assert sides.flushed == [{"what": "scripts_flushed", "bodies": True, "flushes": 1}]
    sides.say("scripts_flushed", generation=1, bodies=True, own=frame["number"])
    sides.say("scripts_flush_done", number=frame["number"])
    assert sides.answers.empty()
    sides.workers_ready.set()
    assert await sides.answer() == []
    await sides.see("b")
    assert sides.told() == ([b"b"], 1)


async def test_what_was_loaded_before_a_flush_is_passed_over(sides: Sides) -> None:
    sides.register()
    assert sides.ask("scripts_flushed", bodies=True)
    frame = await sides.until_sent("flush_scripts")
    # A worker that has not heard of it yet, and topom, which has not either.
    await sides.see("old", flushes=0)
    sides.ask("script_loaded", body="old", flushes=0)
    sides.give(b"older")
    assert await sides.level("old", "older") == [0, 0]
    await sides.see("new", flushes=1)
    assert sides.sent == [], "of which generation it is, is not known yet"
    sides.say("scripts_flushed", generation=1, bodies=True, own=frame["number"])
    assert sides.told() == ([b"new"], 1)
    sides.give(b"from elsewhere", generation=1)
    assert await sides.level("new", "from elsewhere") == [1, 2]


async def test_a_flush_at_another_proxy(sides: Sides) -> None:
    sides.register()
    await sides.see("a")
    in_flight = sides.next("scripts")
    sides.workers_ready.clear()
    sides.say("scripts_flushed", generation=1, bodies=True, number=9)
    assert await sides.level("a") == [0]
    assert sides.flushes == 1
    await asyncio.wait_for(sides.asked.wait(), SECONDS)
    assert sides.flushed == [{"what": "scripts_flushed", "bodies": True, "flushes": 1}]
    assert sides.sent == []
    sides.workers_ready.set()
    assert await sides.until_sent("scripts_forgotten") == {"type": "scripts_forgotten", "number": 9}
    await sides.see("b")
    sides.next("scripts")
    await sides.see("c")
    sides.say("scripts_told", number=in_flight["number"])
    assert sides.sent == [], "that was not about the batch that is under way"
    sides.say("scripts_flushed", generation=1, bodies=False, number=10)
    assert (await sides.until_sent("scripts_forgotten"))["number"] == 10
    assert await sides.level("b") == [1], "only what the servers have is forgotten"


async def test_a_flush_while_topom_is_away_is_told_when_it_is_back(sides: Sides) -> None:
    sides.register(3)
    sides.give(b"a", generation=3)
    sides.scripts.lost()
    sides.ask("scripts_flushed", bodies=True)
    await sides.answer()
    await sides.see("b")
    sides.register(3)
    assert await sides.level("a", "b") == [0, 1]
    frame = sides.next("flush_scripts")
    assert frame["bodies"]
    assert sides.sent == []
    sides.say("scripts_flushed", generation=4, bodies=True, own=frame["number"])
    sides.say("scripts_flush_done", number=frame["number"])
    assert sides.told() == ([b"b"], 4)
    sides.scripts.lost()
    sides.register(4)
    assert sides.sent == []


async def test_a_flush_whose_confirmation_was_lost_is_told_again(sides: Sides) -> None:
    sides.register()
    sides.ask("scripts_flushed", bodies=True)
    await sides.until_sent("flush_scripts")
    sides.scripts.lost()
    assert await sides.answer() == []
    await sides.see("b")
    # topom has done it, and what came since belongs to this proxy's clients.
    sides.register(1)
    assert sides.next("flush_scripts")["bodies"]
    assert await sides.level("b") == [1]


async def test_a_flush_that_was_missed_is_made_up_for(sides: Sides) -> None:
    sides.register(3)
    await sides.see("a")
    sides.scripts.lost()
    sides.register(4)
    assert await sides.level("a") == [0]
    assert sides.flushes == 1
    await asyncio.wait_for(sides.asked.wait(), SECONDS)
    assert len(sides.flushed) == 1
    assert [frame for frame in sides.sent if frame["generation"] == 4] == []


async def test_flushes_at_once_are_one_for_topom(sides: Sides) -> None:
    sides.register()
    for _ in range(300):
        sides.ask("scripts_flushed", bodies=True)
    first = await sides.until_sent("flush_scripts")
    sides.ask("scripts_flushed", bodies=False)
    await asyncio.sleep(0)
    assert sides.sent == []
    sides.say("scripts_flushed", generation=1, bodies=True, own=first["number"])
    sides.say("scripts_flush_done", number=first["number"])
    second = await sides.until_sent("flush_scripts")
    sides.say("scripts_flushed", generation=2, bodies=second["bodies"], own=second["number"])
    sides.say("scripts_flush_done", number=second["number"])
    for _ in range(301):
        assert await sides.answer() == []
    assert sides.sent == []


async def test_nobody_waits_long_for_other_proxies(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharedscripts, "FLUSH_SECONDS", 0.01)
    sides.register()
    sides.ask("scripts_flushed", bodies=True)
    assert await sides.answer() == []
