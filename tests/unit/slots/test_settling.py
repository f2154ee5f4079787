"""The permit to move keys: for which two processes it is granted, over servers that are scripted."""

from typing import Any

import pytest

from slots import moving

S, T, ADDRESS = "s" * 40, "t" * 40, "127.0.0.1:7"


class Server:
    """Answers settling: as the source by scripts, as the target by INFO and CLIENT LIST."""

    def __init__(self, *run_ids: str, permit: str = "") -> None:
        self.run_ids = list(run_ids)
        self.permit = permit
        self.asked: list[str] = []

    async def execute_command(self, *words: Any) -> Any:
        self.asked.append(str(words[0]))
        match words:
            case ("INFO", "server"):
                said = self.run_ids.pop(0) if len(self.run_ids) > 1 else self.run_ids[0]
                return b"# Server\r\nrun_id:%b\r\n" % said.encode()
            case ("CLIENT", "LIST"):
                return b""
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
    assert target.asked == ["INFO", "CLIENT", "CLIENT", "CLIENT", "INFO"] * 2


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
