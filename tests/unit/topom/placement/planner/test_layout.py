"""Copies by slot and copies by node stay the same, whatever is added and removed."""

from hypothesis import given
from hypothesis import strategies as st

from topom.placement.planner.layout import Layout

NODES = 4


@given(
    st.lists(st.sets(st.integers(0, NODES - 1)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, NODES - 1)), max_size=20),
    st.lists(st.integers(0, 2), min_size=NODES, max_size=NODES),
)
def test_whatever_is_added_and_removed(kept: list[set[int]], toggled: list[tuple[int, int]], where: list[int]) -> None:
    datacenters = [sorted(set(where)).index(one) for one in where]
    layout = Layout(kept, [-1] * len(kept), datacenters)
    told = [set(nodes) for nodes in kept]
    for slot, node in toggled:
        if slot < len(kept):
            (layout.remove if node in told[slot] else layout.add)(slot, node)
            told[slot] ^= {node}
    assert layout.holders == told
    assert layout.kept == [frozenset(nodes) for nodes in kept]
    for node in range(NODES):
        assert set(layout.held[node]) == {slot for slot, nodes in enumerate(told) if node in nodes}
        assert layout.count(node) == len(layout.held[node])
        for slot, nodes in enumerate(told):
            others = nodes - {node}
            shared = [set(layout.held[node]) & set(layout.held[other]) for other in others]
            assert layout.entangled(slot, node) == sum(map(len, shared))
            same = {other for other in others if datacenters[other] == datacenters[node]}
            several = len(set(datacenters)) > 1
            assert layout.crowds(slot, node) is (several and bool(same))
            for leaving in others:
                assert layout.crowds(slot, node, leaving) is (several and bool(same - {leaving}))
    crowded = sum(len(nodes) - len({datacenters[node] for node in nodes}) for nodes in told)
    assert layout.crowded() == (crowded if len(set(datacenters)) > 1 else 0)
