"""A read that may run at the source of a moving slot answers there as one Redis does. All other commands wait for their
keys."""

from collections.abc import Awaitable, Callable

import pytest

from slots import commands, reserved
from slots.commands import Command, Route
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import converse
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_every_command import SEED, samples, words

StartWorker = Callable[..., Awaitable[WorkerHarness]]

SLOT = slot_of("{t}")
WAITING = {"EVAL_RO", "EVALSHA_RO", "FCALL_RO", "PFCOUNT", "SORT_RO", "XREAD"}
"""Reads that look at more than their keys, wait, run what a client wrote, or write after all (PFCOUNT its sum)."""
ALL_ELEMENTS = {"HRANDFIELD", "SRANDMEMBER", "ZRANDMEMBER"}
"""Given a count, they name every element."""
OTHERS = [
    ("SORT_RO", "{t}list", "BY", "{t}weight_*", "GET", "{t}object_*->name"),
    ("XREAD", "BLOCK", "50", "STREAMS", "{t}stream", "$"),
    ("FCALL_RO", "f", "1", "{t}text"),
]
"""Requests that each say something wrong at a source."""


def reads() -> list[Command]:
    """The commands that read keys."""
    routes = (Route.KEYED, Route.SPLIT, Route.MOVABLE)
    return [row for row in commands.table().values() if row.route in routes and "readonly" in row.flags]


def test_every_read_of_keys_is_decided_on() -> None:
    assert {row.name for row in reads() if not row.at_source} == WAITING
    assert {row.name for row in commands.table().values() if row.at_source} <= {row.name for row in reads()}


def request_of(row: Command) -> tuple[str, ...]:
    """A sample of a command, whose keys are all of one slot and all there."""
    *_, request = samples()[row.name]
    if row.name in ALL_ELEMENTS:
        request = [*request, "100"]
    return tuple("{t}number" if word == "other" else word for word in request)


def comparable(name: str, reply: bytes) -> list[bytes] | bytes:
    """A reply without what differs between two servers of one kind: the order of a set, how long a key was idle."""
    return reply[:1] if name == "OBJECT|IDLETIME" else sorted(reply.split(b"\r\n"))


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_absent_first_as_one_redis(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=3, big_key_seconds=0.3, move_seconds=0.2)
    seed = [tuple(words(line)) for line in SEED.strip().splitlines() if not line.startswith("FUNCTION")]
    seed += [("SET", "{t}weight_a", "3"), ("SCRIPT", "LOAD", "return 1")]
    for address in (worker.settings.listen, worker.servers[2].address):
        assert not [reply for reply in await converse(address, seed) if reply.startswith(b"-")]
    here = sorted(await worker.keys(1))
    async with worker.direct(1) as source:
        # The migrator copies all of them, for as long as the test lasts.
        await source.hset(
            reserved.STATE, mapping={f"claim:0:{key.decode()}": f"{reserved.IN_PIECES}somebody" for key in here}
        )
    for state in (SlotState.PREPARED, SlotState.MIGRATING):
        await worker.apply([Slot(SLOT, 1, Action(state, 2))])

    rows = [row for row in reads() if row.at_source]
    requests = [request_of(row) for row in rows]
    expected = await converse(worker.servers[2].address, requests, protocol)
    said = await converse(worker.settings.listen, requests, protocol)

    for row, one, other in zip(rows, said, expected, strict=True):
        assert comparable(row.name, one) == comparable(row.name, other), row.name
    # All of it was read where the keys were; what is not on the list does not run there.
    waiting = [row for row in reads() if row.name in WAITING - {"FCALL_RO"}]
    for request in [*map(request_of, waiting), *OTHERS]:
        [reply] = await converse(worker.settings.listen, [request], protocol)
        assert reply.startswith(b"-TRYAGAIN "), (request, reply)
    assert sorted(await worker.keys(1)) == here
    assert await worker.keys(2) == []
