"""A copy goes to the nearest migrator, and to topom's own only if there is no other."""

from dataclasses import dataclass, replace

import pytest

from topom.migrators.choosing import choose


@dataclass(frozen=True)
class One:
    id: int
    own: bool = False
    node: str = ""
    datacenter: str = ""
    load: int = 0


OWN = One(1, own=True, node="n1", datacenter="d1")


@pytest.mark.parametrize(
    ("among", "chosen"),
    [
        ([], None),
        ([OWN], 1),
        ([OWN, One(2, load=9)], 2),
        ([One(2), One(3)], 2),
        ([One(2, load=1), One(3)], 3),
        ([One(2), One(3, datacenter="d1", load=5)], 3),
        ([One(2, datacenter="d1"), One(3, node="n1", load=5)], 3),
        ([One(2, node="n2", datacenter="d2"), One(3, load=1)], 2),
    ],
)
def test_who_is_chosen(among: list[One], chosen: int | None) -> None:
    found = choose(among, "n1", "d1")
    assert (found and found.id) == chosen


def test_a_server_without_labels_is_near_to_nobody() -> None:
    bare = [One(2, load=1), replace(OWN, id=3, own=False)]
    found = choose(bare, "", "")
    assert found is not None
    assert found.id == 3
