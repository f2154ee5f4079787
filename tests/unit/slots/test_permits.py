"""The permit to move keys: which two processes it names, and in which order it is set, at scripted servers."""

import asyncio
from itertools import count
from typing import Any

import pytest

from slots import flushes, permits, reserved

S, T, ADDRESS = "s" * 40, "t" * 40, "127.0.0.1:7"


class Server:
    """Answers the process that renews or withdraws a permit; ``said`` lists what it was told to do."""

    def __init__(self, *run_ids: str, name: str = "", said: list[str] | None = None) -> None:
        self.run_ids = list(run_ids)
        self.fields: dict[str, str] = {}
        self.flushes: list[bytes] = []
        self.name = name
        self.said = [] if said is None else said
        self.listings = 0

    async def execute_command(self, *words: Any) -> Any:
        match words:
            case ("EVAL", flushes.UNDER_WAY.text, 1, reserved.STATE, *over):
                self.listings += 1
                self.flushes = [field for field in self.flushes if field not in over]
                return list(self.flushes)
            case ("EVAL", permits._READ.text, 1, reserved.STATE, field, nobody):
                run_id = self.run_ids.pop(0) if len(self.run_ids) > 1 else self.run_ids[0]
                return [run_id.encode(), self.fields.setdefault(field, nobody).encode()]
            case ("EVAL", permits._SET.text, 1, reserved.STATE, field, before, after, run_id, _):
                self.said.append(f"{self.name} {field}")
                if run_id != self.run_ids[0] or self.fields.get(field) != before:
                    return b"changed"
                if self.flushes:
                    return b"flush"
                self.fields[field] = after
                return b"done"
            case ("EVAL", permits._WITHDRAW_AT_TARGET.text, 1, reserved.STATE):
                self.said.append(f"{self.name} withdrawn")
                return 1
            case ("EVAL", permits._WITHDRAW_AT_SOURCE.text, 2, reserved.STATE, reserved.WANTED):
                self.said.append(f"{self.name} withdrawn")
                return 1
        raise AssertionError(words)


def ends(source: str = S, target: str = T) -> tuple[Server, Server]:
    said: list[str] = []
    return Server(source, name="source", said=said), Server(target, name="target", said=said)


async def renew(source: Server, target: Server, doubted: str = "", *, anew: bool = False) -> str:
    permit = await permits.renew(source, target, ADDRESS, doubted, anew=anew)
    assert source.fields["permit"] == target.fields["accepts"] == permit
    return permit


async def test_a_permit_names_the_processes_of_both_ends() -> None:
    source, target = ends()
    permit = await renew(source, target)
    assert permit.startswith(f"{S} {T} ")
    assert permits.processes_of(permit) == (S, T)
    assert await renew(source, target) == permit, "it holds for whoever asks next"
    assert source.said == ["target accepts", "source permit"], "nothing is set twice"


@pytest.mark.parametrize("permit", ["", "a", "a b", "a b c d"])
def test_what_is_no_permit_names_no_processes(permit: str) -> None:
    assert permits.processes_of(permit) == ("", "")


async def test_one_way_the_target_is_told_first() -> None:
    source, target = ends()
    permit = await renew(source, target)
    assert await renew(source, target, permit) != permit
    assert source.said == ["target accepts", "source permit"] * 2
    await permits.withdraw(source, target)
    assert source.said[4:] == ["target withdrawn", "source withdrawn"]


async def test_only_a_permit_that_is_doubted_is_renewed() -> None:
    source, target = ends()
    first = await renew(source, target)
    second = await renew(source, target, first)
    assert second != first
    assert await renew(source, target, first) == second, "somebody has renewed it since"
    assert await renew(source, target, anew=True) != second


async def test_run_id_another_process_at_either_end_takes_another_permit() -> None:
    source, target = ends()
    first = await renew(source, target)
    replaced = Server("u" * 40)
    replaced.fields = dict(target.fields)
    second = await renew(source, replaced)
    assert second != first
    assert permits.processes_of(second) == (S, "u" * 40)
    restarted = Server("r" * 40)
    restarted.fields = dict(source.fields)
    third = await renew(restarted, replaced)
    assert permits.processes_of(third) == ("r" * 40, "u" * 40)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_run_id_a_permit_is_set_at_the_process_that_it_names(end: str) -> None:
    """given a server that is replaced after it was looked at, nothing is set there by what it was."""
    source, target = ends()
    replaced = source if end == "source" else target
    replaced.run_ids.append("u" * 40)
    permit = await renew(source, target)
    assert permits.processes_of(permit) == (("u" * 40, T) if end == "source" else (S, "u" * 40))


async def test_run_id_a_server_gets_no_permit_to_move_keys_to_itself() -> None:
    source, target = ends(S, S)
    with pytest.raises(permits.SameProcess, match="is another name"):
        await permits.renew(source, target, ADDRESS)
    assert source.said == []


@pytest.mark.parametrize(("source", "target"), [("", T), (S, "")])
async def test_run_id_who_does_not_say_who_he_is_gets_no_permit(source: str, target: str) -> None:
    with pytest.raises(permits.NoPermit, match="run id"):
        await permits.renew(*ends(source, target), ADDRESS)


@pytest.mark.long
async def test_a_permit_that_is_changed_all_the_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "LOOK_SECONDS", 0.001)
    numbers = count()

    class Forgetful(Server):
        async def execute_command(self, *words: Any) -> Any:
            said = await super().execute_command(*words)
            self.fields["permit"] = f"somebody else's {next(numbers)}"
            return said

    with pytest.raises(permits.NoPermit, match="did not last in 20 attempts"):
        await permits.renew(Forgetful(S), Server(T), ADDRESS)


async def test_no_permit_is_set_while_a_flush_stands_at_either_end() -> None:
    source, target = ends()
    for server in (source, target):
        server.flushes = [b"flush:1"]
    waiting = asyncio.create_task(permits.renew(source, target, ADDRESS))
    for server in (source, target):
        looks = target.listings
        while target.listings < looks + 2:
            await asyncio.sleep(0.001)
        assert permits.processes_of(source.fields.get("permit", "")) == ("", "")
        server.flushes = []
    assert permits.processes_of(await waiting) == (S, T)


async def test_a_flush_that_stands_for_too_long_is_taken_away_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "TAKEN_OVER_SECONDS", 0.05)
    source, target = ends()
    source.flushes, target.flushes = [b"flush:1"], [b"flush:1", b"flush:2"]
    await renew(source, target)
    assert source.flushes == target.flushes == []


async def test_flushes_one_after_the_other_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "TAKEN_OVER_SECONDS", 0.05)
    monkeypatch.setattr(permits, "LOOK_SECONDS", 0.001)
    numbers = count()

    class Flushed(Server):
        async def execute_command(self, *words: Any) -> Any:
            self.flushes = [b"flush:%d" % next(numbers)]
            return await super().execute_command(*words)

    with pytest.raises(permits.NoPermit, match="flush the servers all the time"):
        await permits.renew(Server(S), Flushed(T), ADDRESS)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_one_way_what_is_lost_or_withdrawn_amid_a_renewal_is_not_what_was_looked_at(end: str) -> None:
    """given two processes that renew at servers without a permit, the slower one does not find what it saw before."""
    source, target = ends()
    slow = source if end == "source" else target
    original, looked, go_on = slow.execute_command, asyncio.Event(), asyncio.Event()

    async def execute_command(*words: Any) -> Any:
        if words[1] == permits._SET.text and not looked.is_set():
            looked.set()
            await go_on.wait()
        return await original(*words)

    slow.execute_command = execute_command  # type: ignore[method-assign]
    late = asyncio.create_task(renew(source, target))
    await looked.wait()
    # When: another one renews meanwhile, and the hash is lost.
    former = await renew(source, target)
    slow.fields.clear()
    go_on.set()
    permit = await late
    # Then: the permit at both servers is newer than the one that the other process has.
    assert permit != former
    assert source.said.index(f"{end} permit" if end == "source" else f"{end} accepts") < len(source.said) - 2
