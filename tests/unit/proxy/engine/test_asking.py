"""What the engine asks by itself, when there is no memory for it."""

import asyncio
import gc

import pytest

from tests.unit.proxy.engine.inprocess import Server, engine
from tests.unit.proxy.engine.test_pops import ELEMENT, POP, PlainPython, answering
from tests.unit.proxy.engine.test_scans import at, giving, page, prepared

# It makes allocations fail, and is part of CPython.
_testcapi = pytest.importorskip("_testcapi")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["pop", "scan"])
async def test_without_memory_nothing_is_left_in_the_output_of_a_shared_connection(kind: str) -> None:
    """Bytes without records would have replies that nothing asked for, or that go to others."""
    answer = answering(b"*1\r\n" + ELEMENT) if kind == "pop" else giving(page(5, "a"))
    for number in range(12):
        async with Server(answer) as server:
            with engine(server.address) as proxy:
                if kind == "pop":
                    PlainPython(proxy)
                else:
                    prepared(proxy, server.address)
                bystander, client = proxy.connect(), proxy.connect()
                await bystander.send(("GET", "k"))
                assert await bystander.read(5) == b"$-1\r\n"
                await client.send(POP if kind == "pop" else ("SCAN", at(3)))
                gc.disable()
                _testcapi.set_nomemory(number, number + 1)
                try:
                    client.session._readable()  # type: ignore[attr-defined]
                finally:
                    _testcapi.remove_mem_hooks()
                    gc.enable()
                await asyncio.sleep(0.01)
                await bystander.send(("GET", "k"), ("GET", "k"))
                assert await bystander.read(10) == b"$-1\r\n" * 2, f"allocation {number} failed"
