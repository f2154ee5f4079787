"""Until when a server may be used. This is checked where requests are written and replies are read, whatever was late
before."""

import asyncio

from proxy.engine.allowance import clock
from proxy.engine.backend import Backend, command
from proxy.engine.requests import Loop
from tests.unit.proxy.engine.inprocess import Server, Visit, options, until

OVER = b"is not used by this proxy for now: it hears no topom"


async def test_nothing_is_sent_and_no_reply_believed_once_a_server_may_not_be_used() -> None:
    heard: list[bytes] = []
    visits: list[Visit] = []

    async def answer(visit: Visit, words: list[bytes]) -> None:
        heard.append(words[0])
        visits.append(visit)

    told: list[tuple[str, bytes]] = []
    own = options()
    async with Server(answer) as server:
        backend = Backend(Loop(asyncio.get_running_loop(), 16), server.address, 0, 2, own, 5.0)
        allowance = own.allowances.of(server.address)

        def ask(name: str) -> None:
            backend.call(command((name,)), lambda reply: told.append((name, reply)))

        # Given when it was still allowed, and answered after.
        allowance.until = clock() + 60
        ask("FIRST")
        await until(lambda: b"FIRST" in heard)
        allowance.until = clock() - 1
        visits[-1].say(b"+late\r\n")
        await until(lambda: len(told) == 1)
        # Queued when it was still allowed; no check comes before it is sent.
        allowance.until = clock() + 60
        backend.reset("was left by the test")
        ask("SECOND")
        await until(lambda: b"SECOND" in heard)
        ask("THIRD")
        allowance.until = clock() - 1
        await until(lambda: len(told) == 3)
        ask("FOURTH")
        await until(lambda: len(told) == 4)
        allowance.until = clock() + 60
        backend.reset("was left by the test")
        ask("FIFTH")
        await until(lambda: b"FIFTH" in heard)
        backend.close()
    assert [name for name, _ in told[:4]] == ["FIRST", "SECOND", "THIRD", "FOURTH"]
    assert all(OVER in reply for _, reply in told[:4])
    assert told[0][1].endswith(b"may or may not have run\r\n")
    assert told[3][1].endswith(b"nothing was run\r\n")
    assert not {b"THIRD", b"FOURTH"} & {*heard}
