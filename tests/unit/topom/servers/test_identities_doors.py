"""run-id: each step that does something to a server refuses a server that may be another one, despite earlier looks."""

import pytest

from migrator.errors import NotApart
from migrator.options import MoveOptions
from migrator.progress import Progress
from slots.access import ServerAccess
from slots.beginning import UNKNOWN
from slots.keyslots import KeySlots
from tests.unit.topom.copies.test_filling import COPY
from tests.unit.topom.placement.test_applying import Case
from topom.errors import NotLeading
from topom.migration.mover import RedisMover
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import As, NotToFollow
from topom.servers.replication import ServerReplication


class Unasked:
    """Servers, none of which is asked anything."""

    async def guarded(self, address: str, work: object) -> str | None:
        raise AssertionError(f"{address} was asked")


def two(server: str) -> Reason:
    return Reason(Kind.OPERATOR, f"{server} is two", to_do="remove one")


@pytest.mark.parametrize("doubtful", ["a:1", "b:1"])
async def test_who_may_be_another_server_follows_nobody_and_is_followed_by_nobody(doubtful: str) -> None:
    replication = ServerReplication(Unasked(), conflict=lambda server: two(server) if server == doubtful else None)
    with pytest.raises(NotToFollow, match=f"{doubtful} is two"):
        await replication.require("b:1", "a:1", As.NEW)


class Doubt(Exception):
    """A server must not be told."""


class Doubtful:
    """Says that a server may be another one, from the nth question of a kind on."""

    def __init__(self, kind: str, number: int) -> None:
        self._kind = kind
        self._left = number
        self.known: dict[str, str] = {}

    def _ask(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left < 0:
                raise Doubt(kind)

    def heard(self, server: str, run_id: str) -> None:
        self.known[server] = run_id

    def require(self, *servers: str) -> None:
        self._ask("require")

    async def require_no_copy(self, group_id: int, server: str, told_as: As) -> None:
        self._ask("copy")


@pytest.mark.parametrize("kind", ["require", "copy"])
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_who_may_be_another_server_is_not_filled(kind: str, number: int) -> None:
    """By what is known, by what it says right before it is told, and once nobody else tells servers anything."""
    case = Case()
    await case.start({1: "a:1", 2: "c:2"}, "b:7")
    prepared: list[str] = []

    async def prepare(server: str, group_id: int) -> None:
        prepared.append(server)

    doubtful = Doubtful(kind, number)
    case.telling._identities = doubtful  # type: ignore[assignment]
    case.telling._prepare = prepare
    copy = case.placed.copy_of(case.bench.ledger.state, COPY)
    assert copy is not None
    with pytest.raises(Doubt):
        await case.telling.tell(copy, await case.telling.require(copy), lambda: True)
    assert case.servers.told == []
    assert bool(doubtful.known) is (number > 0)
    assert bool(prepared) is (number == 2)


@pytest.mark.parametrize("doubtful", ["a:1", "b:1"])
async def test_no_keys_move_at_one_that_may_be_another_server(doubtful: str) -> None:
    conflicts = {doubtful: two(doubtful)}
    mover = RedisMover(
        16,
        lambda: KeySlots("crc32", 16),
        ServerAccess(),
        "i" * 32,
        conflict=lambda one: conflicts.get(one),
    )
    with pytest.raises(NotApart, match="is two"):
        await mover.withdraw("a:1", "b:1")
    with pytest.raises(NotApart, match="is two"):
        await mover.move("a:1", "b:1", [1], Progress(), UNKNOWN, lambda: None)


async def test_nothing_is_dropped_by_who_leads_no_more_or_at_one_that_may_be_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leads = True
    conflicts: dict[str, Reason] = {}
    asked: list[MoveOptions] = []

    async def migrate(*arguments: object, options: MoveOptions, **others: object) -> None:
        asked.append(options)

    monkeypatch.setattr("topom.migration.mover.migrate", migrate)
    mover = RedisMover(
        16,
        lambda: KeySlots("crc32", 16),
        ServerAccess(),
        "i" * 32,
        lambda: leads,
        conflict=lambda one: conflicts.get(one),
    )
    masters = [0]
    await mover.move("a:1", "b:1", [1], Progress(), UNKNOWN, lambda: masters.append(1))
    require = asked[0].require
    require()
    assert masters == [0, 1], "steps are asked, too"
    conflicts["a:1"] = two("a:1")
    with pytest.raises(NotApart, match="is two"):
        require()
    conflicts.clear()
    leads = False
    with pytest.raises(NotLeading):
        require()


async def test_nothing_is_begun_at_a_server_that_was_not_compared() -> None:
    mover = RedisMover(
        16,
        lambda: KeySlots("crc32", 16),
        ServerAccess(),
        "i" * 32,
        doubt=lambda one: Reason(Kind.BUSY, f"{one} is not known"),
    )
    for source in (None, "a:1"):
        with pytest.raises(NotApart, match="is not known"):
            await mover.check(source, "b:1", 1.0)
    with pytest.raises(NotApart, match="is not known"):
        await mover.sweep("b:1", "", object())  # type: ignore[arg-type]  # it is not asked
