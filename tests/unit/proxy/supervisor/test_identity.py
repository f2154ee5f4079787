"""Which table is in force, for whom, and which ones are refused."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.supervisor.identity import Identity
from proxy.supervisor.kept_table.tablefile import Kept
from slots.dialing import ControlError
from slots.messages.control import Registered
from slots.messages.message import Product
from slots.slot import TableError
from tests.unit.proxy.proxy_fakes import table

PRODUCT = Product(name="demo", number_of_slots=1, slot_function="crc32", databases=16)


def registered(product: Product = PRODUCT) -> Registered:
    return Registered.model_construct(product=product, cluster="c" * 32, start="s" * 32)


@pytest.fixture
def identity() -> Identity:
    made = Identity()
    assert made.is_registered(registered())
    made.take(table(3, 1), "")
    return made


def test_an_identity_that_is_over_has_no_table_in_force_until_the_next_one_has_its_own(identity: Identity) -> None:
    first = identity.instance
    assert (identity.of_workers, identity.table_in_force) == (first, table(3, 1))
    for _ in range(2):  # the second one was over before the workers had it
        identity.end()
        assert identity.instance != first
        assert (identity.of_workers, identity.table_in_force, identity.registered) == (first, None, False)
    assert identity.table == table(3, 1)
    assert identity.take(table(3, 1), "")
    assert (identity.of_workers, identity.table_in_force) == (identity.instance, table(3, 1))
    assert not identity.take(table(4, 1), "")


def test_without_workers_a_new_identity_is_that_of_workers_at_once() -> None:
    identity = Identity()
    identity.end()
    assert not identity.is_new
    assert identity.of_workers == identity.instance


@pytest.mark.parametrize(
    ("new", "refused"), [(table(2, 1), True), (table(3, 2), True), (table(3, 1), False), (table(4, 2), False)]
)
def test_epochs_an_older_table_or_another_one_of_the_same_epoch_is_refused(
    identity: Identity, new: Any, refused: bool
) -> None:
    assert identity.refuses(new) == refused
    identity.end()  # also under the next identity
    assert identity.refuses(new) == refused


def test_changes_are_read_only_upon_the_table_in_force(identity: Identity) -> None:
    changes = table(4, 2).changes_since(table(3, 1))
    assert identity.read(changes) == table(4, 2)
    assert identity.read({**changes, "since": 2}) is None
    identity.end()
    assert identity.read(changes) is None
    assert identity.read(table(4, 2).to_wire()) == table(4, 2)


def test_another_product_is_refused(identity: Identity) -> None:
    assert not identity.is_registered(registered())
    with pytest.raises(ControlError, match="Restart it if the change is meant"):
        identity.is_registered(registered(PRODUCT.model_copy(update={"databases": 1})))
    with pytest.raises(TableError, match="it has 2 slots, the product has 1"):
        identity.read(table(4, 1, 1).to_wire())


def test_newest_store_it_tells_of_the_table_that_came_last_and_under_which_start_of_topom(identity: Identity) -> None:
    identity.take(table(5, 1), "seal")
    known = identity.known
    assert known is not None
    assert (known.cluster, known.start, known.epoch, known.seal) == ("c" * 32, "s" * 32, 5, "seal")


def test_a_proxy_that_serves_alone_is_the_one_that_was_kept() -> None:
    identity = Identity()
    kept = Kept("k" * 32, PRODUCT, replace(table(7, 1)), None, {}, None, None)
    identity.go_on_as(kept)
    assert (identity.instance, identity.of_workers, identity.registered) == ("k" * 32, "k" * 32, True)
    assert identity.table_in_force == table(7, 1)
    assert not identity.is_registered(registered())
