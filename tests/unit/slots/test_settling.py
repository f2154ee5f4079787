"""The permit to move keys: for which two processes it is granted, over servers that are scripted."""

import asyncio
from itertools import count
from typing import Any

import pytest

from slots import flushes, moving

S, T, ADDRESS = "s" * 40, "t" * 40, "127.0.0.1:7"


class Server:
    """Answers settling: as the source by scripts, as the target by INFO and CLIENT LIST."""

    def __init__(self, *run_ids: str, permit: str = "") -> None:
        self.run_ids = list(run_ids)
        self.permit = permit
        self.asked: list[str] = []
        self.flushes: list[bytes] = []

    async def execute_command(self, *words: Any) -> Any:
        self.asked.append(str(words[0]))
        match words:
            case ("INFO", "server"):
                said = self.run_ids.pop(0) if len(self.run_ids) > 1 else self.run_ids[0]
                return b"# Server\r\nrun_id:%b\r\n" % said.encode()
            case ("CLIENT", "LIST"):
                return b"id=1 age=5 name=test cmd=client"
            case ("EVAL", flushes.STANDING, 1, moving.STATE, *over):
                self.flushes = [field for field in self.flushes if field not in over]
                return list(self.flushes)
            case ("EVAL", moving.READ, *_):
                return [self.run_ids[0].encode(), self.permit.encode(), b""]
            case ("EVAL", moving.GRANT, _, before, _, new):
                if before == self.permit:
                    self.permit = new
                return self.permit.encode()
        raise AssertionError(words)


async def test_a_permit_names_the_processes_of_both_ends() -> None:
    source, target = Server(S), Server(T)
    permit = await moving.settle(source, target, ADDRESS)
    assert permit.startswith(f"{S} {ADDRESS} {T} ")
    assert moving.processes_of(permit) == (S, T)
    assert await moving.settle(source, target, ADDRESS) == permit, "it holds for whoever asks next"
    assert target.asked.count("CLIENT") == 3, "nothing is settled twice"


async def test_run_id_another_process_at_either_end_takes_another_permit() -> None:
    source = Server(S)
    first = await moving.settle(source, Server(T), ADDRESS)
    second = await moving.settle(source, Server("u" * 40), ADDRESS)
    assert second != first
    restarted = Server("r" * 40, permit=second)
    third = await moving.settle(restarted, Server("u" * 40), ADDRESS)
    assert moving.processes_of(third) == ("r" * 40, "u" * 40)


async def test_run_id_what_was_ended_was_at_the_process_that_the_permit_names() -> None:
    """given a target that is replaced while its connections are ended, they are ended at the new one, too."""
    target = Server(T, "u" * 40)
    permit = await moving.settle(Server(S), target, ADDRESS)
    assert moving.processes_of(permit) == (S, "u" * 40)
    assert target.asked == ["INFO", "EVAL", "CLIENT", "CLIENT", "CLIENT", "INFO"] * 2


async def test_run_id_a_server_gets_no_permit_to_move_keys_to_itself() -> None:
    source, target = Server(S), Server(S)
    with pytest.raises(moving.SameProcess, match="under another name"):
        await moving.settle(source, target, ADDRESS)
    assert source.permit == ""
    assert target.asked == ["INFO"], "nobody's connection is ended"


@pytest.mark.parametrize(("source", "target"), [("", T), (S, "")])
async def test_run_id_who_does_not_say_who_he_is_gets_no_permit(source: str, target: str) -> None:
    with pytest.raises(moving.NotSettled, match="run id"):
        await moving.settle(Server(source), Server(target), ADDRESS)


async def test_no_permit_is_granted_while_a_flush_stands_at_either_end() -> None:
    source, target = Server(S), Server(T)
    for server in (source, target):
        server.flushes = [b"flush:1"]
    waiting = asyncio.create_task(moving.settle(source, target, ADDRESS))
    for server in (source, target):
        looks = target.asked.count("EVAL")
        while target.asked.count("EVAL") < looks + 2:
            await asyncio.sleep(0.001)
        assert not source.permit
        server.flushes = []
    assert moving.processes_of(await waiting) == (S, T)


async def test_a_flush_that_stands_for_too_long_is_taken_away_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "TAKEN_OVER_SECONDS", 0.05)
    source, target = Server(S), Server(T)
    source.flushes, target.flushes = [b"flush:1"], [b"flush:1", b"flush:2"]
    await moving.settle(source, target, ADDRESS)
    assert source.flushes == target.flushes == []


async def test_flushes_one_after_the_other_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "TAKEN_OVER_SECONDS", 0.05)
    monkeypatch.setattr(moving, "LOOK_SECONDS", 0.001)
    numbers = count()

    class Flushed(Server):
        async def execute_command(self, *words: Any) -> Any:
            self.flushes = [b"flush:%d" % next(numbers)]
            return await super().execute_command(*words)

    with pytest.raises(moving.NotSettled, match="flush the servers all the time"):
        await moving.settle(Server(S), Flushed(T), ADDRESS)
