"""topom and the scripts of all proxies: stored before they are given to anybody, bounded, and flushed for good."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from slots.scripts import digest
from tests.unit.topom.topom_fakes import MemoryStore
from topom import scripts as module
from topom.frames import FlushScripts, Script, Scripts, ScriptsKnown, parse
from topom.scripts import SharedScripts
from topom.store import StoreConflict

SECONDS = 10.0


class Proxy:
    """A proxy's connection, as topom sees it, and what the proxy would know."""

    def __init__(self, shared: SharedScripts, generation: int = 0, sequence: int = 0) -> None:
        self.shared = shared
        self.scripts_sent = 0
        self.wakes = 0
        self.said: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self.numbers = 0
        shared.join(self, ScriptsKnown(generation=generation, sequence=sequence))

    def wake(self) -> None:
        self.wakes += 1

    def say(self, frame: Mapping[str, object]) -> None:
        self.said.put_nowait(frame)

    def tell(self, *bodies: bytes, generation: int = 0, loaded: bool = True) -> int:
        self.numbers += 1
        scripts = [{"body": base64.b64encode(body).decode(), "loaded": loaded} for body in bodies]
        content = {"type": "scripts", "number": self.numbers, "generation": generation, "scripts": scripts}
        frame = parse(json.dumps(content))
        assert isinstance(frame, Scripts)
        self.shared.tell(self, frame)
        return self.numbers

    def flush(self, bodies: bool = True) -> int:
        self.numbers += 1
        self.shared.tell(self, FlushScripts(type="flush_scripts", number=self.numbers, bodies=bodies))
        return self.numbers

    async def hear(self, kind: str) -> Mapping[str, Any]:
        async with asyncio.timeout(SECONDS):
            frame = await self.said.get()
        assert frame["type"] == kind
        return frame

    async def told(self, *bodies: bytes, generation: int = 0, loaded: bool = True) -> None:
        number = self.tell(*bodies, generation=generation, loaded=loaded)
        assert (await self.hear("scripts_told"))["number"] == number

    def given(self) -> list[bytes]:
        """Bodies of the scripts that are sent to it now."""
        found: list[bytes] = []
        while (frame := self.shared.frame(self.scripts_sent)) is not None:
            self.scripts_sent = frame[0]
            content = json.loads(frame[1])
            assert (content["type"], content["generation"]) == ("scripts", self.shared.generation)
            found += [base64.b64decode(script["body"]) for script in content["scripts"]]
        return found


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def started(store: MemoryStore, most: int = 100, most_bytes: int = 1000) -> SharedScripts:
    shared = SharedScripts(store, most, most_bytes)
    await shared.start()
    return shared


@pytest.fixture
async def shared(store: MemoryStore) -> AsyncIterator[SharedScripts]:
    one = await started(store)
    running = asyncio.create_task(one.run())
    yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_one_proxy_tells_the_others_are_given(shared: SharedScripts) -> None:
    first, second = Proxy(shared), Proxy(shared)
    assert second.given() == []
    await first.told(b"a", b"\xff\r\n", b"")
    assert second.wakes
    assert second.given() == [b"a", b"\xff\r\n", b""]
    await second.told(b"a", b"b")
    assert first.given()[-1:] == second.given() == [b"b"]
    assert Proxy(shared).given() == [b"a", b"\xff\r\n", b"", b"b"]
    assert Proxy(shared, sequence=3).given() == [b"b"], "what it has is not sent again"
    for stranger in (Proxy(shared, generation=1, sequence=3), Proxy(shared, sequence=99)):
        assert len(stranger.given()) == 4


async def test_stored_before_it_is_given(shared: SharedScripts, store: MemoryStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS_MAX", 0.0)
    first, second = Proxy(shared), Proxy(shared)
    store.fail_before = 3
    first.tell(b"a")
    while store.fail_before:
        assert second.given() == []
        assert first.said.empty()
        await asyncio.sleep(0)
    await first.hear("scripts_told")
    assert [script.body for script in store.scripts.values()] == second.given() == [b"a"]


async def test_a_restarted_topom_goes_on_with_what_is_stored(shared: SharedScripts, store: MemoryStore) -> None:
    first = Proxy(shared)
    await first.told(b"run", loaded=False)
    await first.told(b"loaded")
    await first.told(b"run", loaded=True)
    again = await started(store)
    proxy = Proxy(again)
    assert proxy.given() == [b"loaded", b"run"]
    assert proxy.scripts_sent == 3
    assert Proxy(again, sequence=2).given() == [b"run"]
    assert [script.loaded for script in store.scripts.values()] == [True, True]


async def test_bounds(store: MemoryStore) -> None:
    shared = await started(store, most=3, most_bytes=30)
    running = asyncio.create_task(shared.run())
    proxy = Proxy(shared)
    await proxy.told(b"loaded")
    for number in range(5):
        await proxy.told(b"run %d" % number, loaded=False)
    assert {script.body for script in store.scripts.values()} == {b"loaded", b"run 3", b"run 4"}
    assert proxy.given() == [b"loaded", b"run 3", b"run 4"]
    assert Proxy(shared).given() == [b"loaded", b"run 3", b"run 4"]
    await proxy.told(b"x" * 31, b"y" * 30)
    assert [script.body for script in store.scripts.values()] == proxy.given() == [b"y" * 30]
    assert Proxy(shared).given() == [b"y" * 30], "what was dropped is given to nobody"
    await proxy.told(*(b"%d" % number for number in range(10)))
    assert len(shared) == len(store.scripts) == 3
    running.cancel()
    smaller = await started(store, most=1)
    assert Proxy(smaller).given() == [b"9"]


async def test_many_scripts_come_in_several_frames(shared: SharedScripts, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES", 10)
    monkeypatch.setattr(module, "FRAMES_KEPT", 2)
    proxy = Proxy(shared)
    bodies = [b"%04d" % number for number in range(20)]
    await proxy.told(*bodies, b"longer than a frame", b"last")
    frame = shared.frame(0)
    assert frame is not None
    assert len(json.loads(frame[1])["scripts"]) == 2
    assert proxy.given() == [*bodies, b"longer than a frame", b"last"]
    assert len(shared._frames) <= 2


async def test_a_flush_forgets_and_is_over_once_all_have_forgotten(shared: SharedScripts, store: MemoryStore) -> None:
    first, second, third = Proxy(shared), Proxy(shared), Proxy(shared)
    await first.told(b"a")
    assert second.given() == [b"a"]
    number = first.flush()
    own = await first.hear("scripts_flushed")
    assert own == {"type": "scripts_flushed", "generation": 1, "bodies": True, "own": number}
    assert (store.generation, store.scripts) == (1, {})
    for proxy in (second, third):
        heard = await proxy.hear("scripts_flushed")
        assert (heard["generation"], heard["bodies"]) == (1, True)
        assert first.said.empty()
        shared.forgotten(proxy, heard["number"])
    assert await first.hear("scripts_flush_done") == {"type": "scripts_flush_done", "number": number}
    assert second.given() == []
    await first.told(b"b", generation=1)
    assert second.given() == Proxy(shared, generation=0, sequence=1).given() == [b"b"]


async def test_what_was_loaded_before_a_flush_does_not_come_back(shared: SharedScripts, store: MemoryStore) -> None:
    first, second = Proxy(shared), Proxy(shared)
    first.flush()
    # Told while the flush is under way, and once more after it: both were loaded before the proxy heard of it.
    number = second.tell(b"late")
    assert (await second.hear("scripts_flushed"))["generation"] == 1
    assert (await second.hear("scripts_told"))["number"] == number
    await second.told(b"later still")
    assert store.scripts == {}
    assert first.given() == []


async def test_a_flush_of_the_servers_alone(shared: SharedScripts, store: MemoryStore) -> None:
    first, second = Proxy(shared), Proxy(shared)
    await first.told(b"a")
    first.flush(bodies=False)
    assert (await first.hear("scripts_flushed"))["generation"] == 0
    heard = await second.hear("scripts_flushed")
    assert (heard["generation"], heard["bodies"]) == (0, False)
    shared.forgotten(second, heard["number"])
    await first.hear("scripts_flush_done")
    assert second.given() == [b"a"]


async def test_nobody_waits_for_a_proxy_that_goes_or_is_late(shared: SharedScripts, monkeypatch: Any) -> None:
    first, second = Proxy(shared), Proxy(shared)
    first.flush()
    await first.hear("scripts_flushed")
    shared.leave(second)
    await first.hear("scripts_flush_done")
    Proxy(shared)
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    first.flush()
    await first.hear("scripts_flushed")
    await first.hear("scripts_flush_done")


async def test_a_flush_counts_although_its_asker_has_gone(shared: SharedScripts, store: MemoryStore) -> None:
    first, second = Proxy(shared), Proxy(shared)
    await first.told(b"a")
    first.flush()
    first.tell(b"b", generation=1)
    shared.leave(first)
    await second.hear("scripts_flushed")
    await second.told(b"c", generation=1)
    assert [script.body for script in store.scripts.values()] == second.given() == [b"b", b"c"]


async def test_what_proxies_have_told_that_are_gone_is_bounded(store: MemoryStore) -> None:
    shared = await started(store)
    for number in range(100):
        proxy = Proxy(shared)
        proxy.tell(b"%d" % number)
        shared.leave(proxy)
    assert len(shared._told) == module.LEFT_KEPT
    running = asyncio.create_task(shared.run())
    await Proxy(shared).told(b"last")
    running.cancel()
    assert [script.body for script in store.scripts.values()][-2:] == [b"99", b"last"]


async def test_another_topom_at_the_store_ends_this_one(store: MemoryStore) -> None:
    shared = await started(store)
    store.generation = 5
    proxy = Proxy(shared)
    proxy.tell(b"a")
    with pytest.raises(StoreConflict):
        await asyncio.wait_for(shared.run(), SECONDS)
    assert store.scripts == {}


def test_frames_of_scripts() -> None:
    frame = parse('{"type": "scripts", "number": 1, "generation": 2, "scripts": [{"body": "/w==", "loaded": true}]}')
    assert frame == Scripts(
        type="scripts", number=1, generation=2, scripts=[Script.model_construct(body=b"\xff", loaded=True)]
    )
    assert digest(b"\xff") == digest(frame.scripts[0].body)
    with pytest.raises(ValueError, match="body"):
        parse('{"type": "scripts", "number": 1, "generation": 2, "scripts": [{"body": "a", "loaded": true}]}')
