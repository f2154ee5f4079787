"""What may stand in a transaction: every command of the table has its answer, and what is kept is bounded."""

import pytest

from proxy.engine.backend import command as make_request
from proxy.slowpath.queueing import QueueError, Transaction, refusal
from slots import commands
from slots.commands import Route


def transaction(limit: int = 100_000, slot: int | None = None) -> Transaction:
    """An empty transaction, by a slot function that gives a key's first byte."""
    return Transaction(slot, limit, lambda key: key[0])


def add(tried: Transaction, *words: bytes) -> None:
    tried.add(commands.find(words), list(words))


def test_every_command_is_taken_or_refused_with_a_reason() -> None:
    for command in commands.table().values():
        refused = refusal(command)
        if refused is not None:
            assert refused.startswith("ERR ")
            assert len(refused.split()) > 5
        elif command.route in (Route.LOCAL, Route.SPREAD):
            assert command.name in {"ECHO", "PING", "SCRIPT|LOAD", "TIME", "UNWATCH", "WAIT", "WAITAOF"}
        if command.route in (Route.KEYED, Route.SPLIT, Route.MOVABLE, Route.BLOCKING, Route.ANY):
            assert refused is None


def test_the_payload_is_the_transaction_in_one_piece() -> None:
    tried = transaction()
    add(tried, b"SET", b"a1", b"x")
    add(tried, b"del", b"a2", b"a1")
    add(tried, b"PUBLISH", b"b-channel", b"x")
    add(tried, b"PUBLISH", b"c-channel", b"x")
    assert list(tried.keys) == [b"a1", b"a2"]
    assert tried.channel == b"b-channel"
    assert (tried.count, tried.slot) == (4, ord("a"))
    assert tried.payload() == (
        make_request(("MULTI",))
        + make_request(("SET", "a1", "x"))
        + make_request(("del", "a2", "a1"))
        + make_request(("PUBLISH", "b-channel", "x"))
        + make_request(("PUBLISH", "c-channel", "x"))
        + make_request(("EXEC",))
    )


def test_one_slot_that_of_the_watch_first() -> None:
    tried = transaction(slot=ord("b"))
    add(tried, b"GET", b"b1")
    with pytest.raises(QueueError, match="CROSSSLOT"):
        add(tried, b"GET", b"a1")
    assert tried.spoiled
    assert not tried.keys
    # Taken in as far as the client can see.
    add(tried, b"GET", b"c1")
    assert not tried.count


def test_an_error_that_redis_gives_within_exec_stands_in_the_commands_place() -> None:
    tried = transaction()
    add(tried, b"MSET", b"a", b"1", b"b")
    add(tried, b"ASKING")
    assert not tried.keys
    assert b"ERR wrong number of arguments for 'mset' command" in tried.payload()
    assert b"ERR This instance has cluster support disabled" in tried.payload()
    assert b"MSET" not in tried.payload()


@pytest.mark.parametrize(
    "words", [(b"SORT", b"a", b"BY", b"w_*"), (b"COPY", b"a", b"a2", b"DB", b"1"), (b"SAVE",), (b"SELECT", b"1")]
)
def test_what_redis_would_run_is_refused(words: tuple[bytes, ...]) -> None:
    tried = transaction()
    with pytest.raises(QueueError):
        add(tried, *words)
    assert tried.spoiled


@pytest.mark.parametrize("words", [(b"PING",), (b"SET", b"a", b"x" * 1000), (b"EVAL", b"x" * 500, b"0")])
def test_bounded_whatever_it_is_filled_with(words: tuple[bytes, ...]) -> None:
    tried = transaction(limit=20_000)
    for _ in range(10):
        add(tried, *words)
    with pytest.raises(QueueError, match="takes more than 20000 bytes"):  # noqa: PT012
        for _ in range(200):
            add(tried, *words)
    assert len(tried.payload()) < 100


def test_bounded_in_keys_and_a_key_counts_once() -> None:
    tried = transaction(limit=20_000)
    for _ in range(80):
        add(tried, b"GET", b"a")
    with pytest.raises(QueueError):
        add(tried, b"EXISTS", *(b"a%d" % number for number in range(100)))
