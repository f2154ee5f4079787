"""Fixtures of topom's unit tests."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology


@pytest.fixture
async def bench() -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    """Makes benches with groups 1 to 3 of one server each and all 16 slots in group 1; stops them at the end."""
    made: list[Bench] = []

    async def make(*, filled: bool = True, **options: object) -> Bench:
        one = Bench(**options)  # type: ignore[arg-type]
        made.append(one)
        await one.start()
        if filled:
            for group_id in (1, 2, 3):
                await one.edit(
                    lambda table, epoch, group_id=group_id: topology.add_group(  # type: ignore[misc]
                        table, epoch, group_id, [f"s{group_id}:6379"]
                    )
                )
            await one.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
        return one

    yield make
    for one in made:
        await one.stop()
