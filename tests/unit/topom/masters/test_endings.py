"""How changes of masters end while others are made, and while other groups' servers are gone."""

import asyncio
from dataclasses import replace

import pytest

from slots.group import Group
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, Case, FakeServer, hurry
from topom.cluster.state import ClusterState, Promotion
from topom.masters.followers import Followers

__all__ = ["hurry"]


async def test_one_that_ends_leaves_the_next_one_of_its_group_alone() -> None:
    """When a group gets another master while its servers are seen to follow, then they follow that one, too."""
    case = Case()
    async with case.topom():
        keep = case.servers.keep
        made = False

        async def keep_slowly(address: str) -> None:
            nonlocal made
            if not made:
                made = True
                await case.promotions.promote(1, SECOND)
            await keep(address)

        await case.promotions.promote(1, FIRST)
        case.servers.keep = keep_slowly  # type: ignore[method-assign]
        await case.bench.until(lambda table: made)
        table = await case.settled()
        assert table.groups[1].master == SECOND


async def test_a_locked_group_does_not_wait_for_the_servers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for its lock; the others' servers were lost with a machine."""
    case = Case()
    others = {number: (f"alive:{number}", f"dead:{number}") for number in range(2, 32)}
    case.servers.all |= {server: FakeServer() for pair in others.values() for server in pair}
    asked: set[int] = set()
    over = asyncio.Event()

    async def never_yet(followers: Followers, group_id: int, promotion: Promotion) -> bool:
        asked.add(group_id)
        await over.wait()
        return False

    def with_others(state: ClusterState, epoch: int) -> ClusterState:
        groups = [Group(number, pair) for number, pair in others.items()]
        promotions = {number: Promotion(*pair) for number, pair in others.items()}
        return replace(state, table=state.table.changed(epoch, groups=groups), promotions=promotions)

    case.hang_at = "lock acknowledged"
    async with case.topom() as bench:
        await bench.ledger.change(with_others)
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        promoting.cancel()
    case.hang_at = ""
    monkeypatch.setattr(Followers, "all_follow", never_yet)
    # When: the next topom leads.
    async with case.topom() as bench:
        assert bench.ledger.table.groups[1].locked
        await bench.until(lambda table: not table.groups[1].locked)
        assert bench.ledger.table.groups[1].master == MASTER
        # Then: the others are looked at together, and not one after the other.
        await bench.until(lambda table: asked >= others.keys())
        over.set()
