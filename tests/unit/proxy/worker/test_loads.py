"""When a worker tells its load, and when its counts stay with it."""

import asyncio
import socket

from proxy.channel import Channel
from proxy.commands.clients.userconnections import UserConnections
from proxy.commands.clients.userlimits import UserLimits
from proxy.commands.notable import NotableLog
from proxy.engine.requests import Loop
from proxy.engine.statistics import Noted
from proxy.worker.loads import Loads
from slots.messages.channel import Answer, Load, SupervisorMessage, WorkerMessage, parse_supervisor, parse_worker


async def test_counts_stay_while_the_supervisor_is_behind_and_come_once_it_has_read() -> None:
    # Given
    ours, theirs = socket.socketpair()
    channel: Channel[SupervisorMessage] = await Channel.open(ours, parse_supervisor)
    supervisor: Channel[WorkerMessage] = await Channel.open(theirs, parse_worker)
    loop = Loop(asyncio.get_running_loop(), 16)
    notable = NotableLog()
    notable.note(Noted("slow", "get", 0, 5, b"key", 3, "alice", "", b"", "a:1", 20_000.5, True, 30, 70, 0))
    loads = Loads(loop, notable, UserLimits(loop, 1), UserConnections(), hash_keys=False)
    channel.send(Answer(id=1, answer="x" * 3_000_000))
    behind = channel.unsent
    assert behind > 0
    # When
    loads.tell(channel, ())
    # Then
    assert channel.unsent == behind
    # When
    assert isinstance(await supervisor.receive(), Answer)
    await channel.flush()
    loads.tell(channel, ())
    # Then
    load = await supervisor.receive()
    assert isinstance(load, Load)
    assert [(each.command, each.length) for each in load.notable] == [("get", 3)]
    channel.close()
    supervisor.close()
