"""CONFIG GET: what a server says, without the passwords that would lead past the proxy."""

from collections.abc import Awaitable, Callable

import hiredis
import pytest

from tests.integration.worker.conversations import Talk, converse
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]
SECRETS = {
    b"requirepass": b"inner",
    b"masterauth": b"inner too",
    b"tls-key-file-pass": b"",
    b"tls-client-key-file-pass": b"",
}


@pytest.fixture
async def behind_passwords(start_worker: StartWorker) -> WorkerHarness:
    return await start_worker(
        servers=1,
        extra=["--requirepass", "inner", "--masterauth", "inner too", "--databases", "99"],
        redis_password="inner",
    )


def parsed(reply: bytes) -> dict[bytes, bytes]:
    reader = hiredis.Reader()
    reader.feed(reply)
    found = reader.gets()
    return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("protocol", [2, 3])
async def test_passwords_are_for_the_proxy_alone(behind_passwords: WorkerHarness, protocol: int) -> None:
    worker = behind_passwords
    async with Talk(worker.settings.listen, protocol) as talk, Talk(worker.servers[0].address) as server:
        await server.ask("AUTH", "inner")
        if protocol == 3:
            await server.ask("HELLO", 3)
        theirs = parsed(await server.ask("CONFIG", "GET", "*"))
        assert {name: theirs[name] for name in SECRETS} == SECRETS
        # The databases are the product's.
        ours = parsed(await talk.ask("CONFIG", "GET", "*"))
        assert ours == theirs | dict.fromkeys(SECRETS, b"") | {b"databases": b"16"}
        for words in (["requirepass"], ["REQUIREPASS"], ["master*", "maxmemory"], ["*pass"], ["[qrs]equirepass"]):
            reply = await talk.ask("config", "get", *words)
            assert b"inner" not in reply
            assert parsed(reply) == {
                name: b"" if name.lower() in SECRETS else value
                for name, value in parsed(await server.ask("CONFIG", "GET", *words)).items()
            }
        assert parsed(await talk.ask("CONFIG", "GET", "Databases")) == {b"Databases": b"16"}
        # Everything else is the server's own, byte by byte.
        for words in (["save"], ["maxmemory*"], ["nosuch"]):
            assert await talk.ask("CONFIG", "GET", *words) == await server.ask("CONFIG", "GET", *words)


async def test_nor_do_they_come_out_of_a_transaction(behind_passwords: WorkerHarness) -> None:
    *_, queued, executed = await converse(
        behind_passwords.settings.listen, [("MULTI",), ("CONFIG", "GET", "requirepass"), ("EXEC",)]
    )
    assert queued.startswith(b"-ERR CONFIG GET is refused by Slotferry within MULTI")
    assert executed.startswith(b"-EXECABORT")


async def test_a_server_that_does_not_answer(behind_passwords: WorkerHarness) -> None:
    worker = behind_passwords
    await worker.servers[0].stop()
    [reply] = await converse(worker.settings.listen, [("CONFIG", "GET", "save")])
    assert reply.startswith(b"-ERR server %b " % worker.addresses[0].encode())
