"""newest-store: a table that was made after the state shows that the store is older, however often topom started."""

import pytest

from slots.messages.control import KnownTable
from topom.cluster import lineage
from topom.cluster.lineage import MOST_STARTS, AnotherCluster, NotSealed, Start, StoreIsOlder

KEY = "key"
STARTS = (Start("a", 1), Start("b", 10), Start("c", 20))


def look(start: str, epoch: int, starts: tuple[Start, ...] = STARTS, cluster: str = "cluster") -> None:
    known = KnownTable(cluster=cluster, start=start, epoch=epoch, seal=lineage.seal(KEY, start, epoch))
    lineage.require_older("cluster", KEY, starts, known, "a proxy")


@pytest.mark.parametrize(("start", "epoch"), [("a", 1), ("a", 9), ("b", 10), ("b", 19), ("c", 20), ("c", 500)])
def test_a_table_of_a_known_start_is_older(start: str, epoch: int) -> None:
    look(start, epoch)


@pytest.mark.parametrize(
    ("start", "epoch"),
    [
        pytest.param("b", 20, id="the start went on after the backup"),
        pytest.param("a", 10, id="and so did an earlier one"),
        pytest.param("d", 21, id="a later start"),
        pytest.param("d", 5, id="of an epoch that was passed since"),
    ],
)
def test_any_other_is_newer(start: str, epoch: int) -> None:
    with pytest.raises(StoreIsOlder, match=f"a proxy has a table of epoch {epoch} that was made after") as caught:
        look(start, epoch)
    assert "backup.md" in caught.value.to_do


INVENTED = [
    KnownTable(cluster="cluster", start="d", epoch=21),
    KnownTable(cluster="cluster", start="d", epoch=21, seal=lineage.seal("another key", "d", 21)),
    KnownTable(cluster="cluster", start="d", epoch=21, seal=lineage.seal("", "d", 21)),
    KnownTable(cluster="cluster", start="d", epoch=21, seal="é"),
    # A seal that a proxy has got, under another table.
    KnownTable(cluster="cluster", start="b", epoch=20, seal=lineage.seal(KEY, "b", 19)),
    KnownTable(cluster="cluster", start="d", epoch=19, seal=lineage.seal(KEY, "b", 19)),
]


@pytest.mark.parametrize("known", INVENTED)
def test_a_table_that_anybody_could_invent_proves_nothing(known: KnownTable) -> None:
    with pytest.raises(NotSealed, match="nothing shows that this cluster has made it"):
        lineage.require_older("cluster", KEY, STARTS, known, "a proxy")


def test_a_seal_tells_tables_apart_and_needs_the_key() -> None:
    made = [(KEY, "a", 1), (KEY, "a", 11), (KEY, "a 1", 1), (KEY, "b", 1), ("another", "a", 1)]
    assert len({lineage.seal(*one) for one in made}) == len(made)


def test_a_signature_is_a_table() -> None:
    known = lineage.signed(lineage.signature("cluster", KEY, "d", 21))
    assert known == KnownTable(cluster="cluster", start="d", epoch=21, seal=lineage.seal(KEY, "d", 21))


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a b 3", "a b c d", "a b -3 d", "a b 3 d e", "a  3 d", "a b ² d", f"a b {10**30} d", "a\n b 3 d"],
)
def test_anything_else_is_none(text: str) -> None:
    assert lineage.signed(text) is None


def test_a_store_of_another_cluster_is_no_older_one() -> None:
    with pytest.raises(AnotherCluster, match="a proxy has the table of another cluster"):
        look("c", 20, cluster="another")


def test_so_many_starts_are_kept() -> None:
    starts: tuple[Start, ...] = ()
    for number in range(MOST_STARTS + 5):
        starts = lineage.started(starts, f"w{number}", 1 + 10 * number)
    assert len(starts) == MOST_STARTS
    assert starts[-1] == Start(f"w{MOST_STARTS + 4}", 1 + 10 * (MOST_STARTS + 4))
    look("w0", 3, starts)
    look("w5", 55, starts)
    # Of what is kept no longer, only the epoch can be looked at.
    with pytest.raises(StoreIsOlder):
        look("w0", 60, starts)
