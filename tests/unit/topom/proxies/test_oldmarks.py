"""Marks of old fences are forgotten by topom's own count of time, no matter what the clocks of servers say."""

from collections.abc import Awaitable, Callable
from typing import Any

from slots.connections import fence_user
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.proxies.oldmarks import FORGET_SECONDS, OldMarks

A, B = "a:1", "b:1"


class Server:
    """A server with these marks. By its clock they are as old as they can be."""

    def __init__(self, *instances: str) -> None:
        self.users = {fence_user(instance).encode() for instance in instances}
        self.fields = {instance.encode(): b"0" for instance in instances}
        self.silent = False

    async def execute_command(self, *words: Any) -> Any:
        if words[:2] == ("ACL", "USERS"):
            return [b"default", *self.users]
        assert words[:2] == ("ACL", "DELUSER")
        self.users -= {name.encode() for name in words[2:]}
        return 1

    async def hkeys(self, name: bytes) -> list[bytes]:
        return list(self.fields)

    async def hdel(self, name: bytes, *fields: str) -> None:
        for field in fields:
            self.fields.pop(field.encode(), None)

    async def time(self) -> tuple[int, int]:
        return 2**31, 0

    async def hgetall(self, name: bytes) -> dict[bytes, bytes]:
        return dict(self.fields)


class Servers(dict[str, Server]):
    async def guarded(self, address: str, work: Callable[[Any], Awaitable[None]]) -> str | None:
        if self[address].silent:
            return "no answer"
        await work(self[address])
        return None


async def test_final_fence_a_mark_is_as_old_as_topom_has_seen_it() -> None:
    """If a server's clock is set ahead by weeks, or was weeks behind at the fencing, no mark gets older by that."""
    bench = await Bench().start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [A, B]))
    servers = Servers({A: Server("x", "y"), B: Server("x")})
    now = 100.0
    marks = OldMarks(bench.ledger, servers, clock=lambda: now)
    await marks.look()
    assert servers[A].users == {b"slotferry-fenced-x", b"slotferry-fenced-y"}
    assert {*servers[A].fields} == {b"x", b"y"}
    # A mark that is seen later counts from then on; a server that nobody asks keeps its marks.
    servers[B] = Server("x", "z")
    now += 1.0
    await marks.look()
    servers[B].silent = True
    now += FORGET_SECONDS - 1.0
    await marks.look()
    assert not servers[A].users
    assert not servers[A].fields
    servers[B].silent = False
    await marks.look()
    assert {*servers[B].fields} == {b"z"}
    # Another leader does not know that.
    await OldMarks(bench.ledger, servers, clock=lambda: now + FORGET_SECONDS).look()
    assert {*servers[B].fields} == {b"z"}
    await bench.stop()
