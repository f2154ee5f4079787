"""What may stand in a transaction: every command of the table has its answer, and what is kept is bounded."""

import pytest

from proxy.commands.transactions.queueing import QueueError, Transaction, refusal
from proxy.engine.backend import command as make_request
from slots import commands
from slots.commands import Route


def transaction(limit: int = 100_000, watched: tuple[int, bytes] | None = None) -> Transaction:
    """An empty transaction, by a slot function that gives a key's first byte."""

    def slot_of(database: int, key: bytes) -> int:
        return key[0]

    return Transaction(
        0, watched, limit, slot_of, slot_of, 0, 16, lambda number: b"-NOPERM\r\n" if number == 9 else None
    )


def add(tried: Transaction, *words: bytes) -> None:
    tried.add(commands.find(words), list(words))


def test_every_command_is_taken_or_refused_with_a_reason() -> None:
    for command in commands.table().values():
        refused = refusal(command)
        if refused is not None:
            assert refused.startswith("ERR ")
            assert len(refused.split()) > 5
        elif command.route in (Route.LOCAL, Route.SPREAD):
            assert command.name in {"ECHO", "PING", "SCRIPT|LOAD", "SELECT", "TIME", "UNWATCH", "WAIT", "WAITAOF"}
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
    tried = transaction(watched=(ord("b"), b"b-watched"))
    add(tried, b"GET", b"b1")
    hint = r"a hash tag in common \(\{tag\} in their names\) would give them one slot"
    with pytest.raises(QueueError, match=rf"^CROSSSLOT .*: 'b-watched' has slot 98, 'a1' 97; {hint}$"):
        add(tried, b"GET", b"a1")
    assert tried.spoiled
    assert not tried.keys
    # To the client, it looks as if it was queued.
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


def test_a_script_with_too_many_keys_is_not_one_that_was_run() -> None:
    tried = transaction()
    add(tried, b"EVAL", b"return 1", b"1", b"a")
    add(tried, b"EVAL", b"return 2", b"10", b"a")
    add(tried, b"EVALSHA", b"f" * 40, b"10", b"a")
    add(tried, b"EVALSHA", b"short", b"10", b"a")
    add(tried, b"FCALL", b"f", b"10", b"a")
    assert [argv[1] for _, argv in tried.scripts] == [b"return 1", b"f"]
    # Redis checks this before it counts keys, so the server has to check it.
    assert b"short" in tried.payload()
    assert b"f" * 40 not in tried.payload()


def test_keys_are_of_the_database_that_they_are_in() -> None:
    tried = transaction()
    add(tried, b"GET", b"a1")
    add(tried, b"COPY", b"a2", b"a3", b"DB", b"3")
    add(tried, b"MOVE", b"a1", b"4")
    assert tried.uses_other_databases
    assert not tried.returns
    add(tried, b"SELECT", b"3")
    add(tried, b"GET", b"a4")
    add(tried, b"SELECT", b"99")
    add(tried, b"MOVE", b"a4", b"0")
    assert list(tried.keys) == [b"a1", b"a2", b"a3", b"a4"]
    assert list(tried.elsewhere) == [(3, b"a3"), (4, b"a1"), (3, b"a4")]
    assert (tried.home, tried.database, tried.count, tried.queued) == (0, 3, 7, 8)
    assert tried.payload().endswith(make_request(("SELECT", 0)) + make_request(("EXEC",)))
    assert make_request(("SELECT", "99")) not in tried.payload()
    add(tried, b"SELECT", b"0")
    assert tried.uses_other_databases
    assert (tried.count, tried.queued) == (8, 8)
    assert tried.payload().count(make_request(("SELECT", "0"))) == 1


def test_to_stay_is_not_to_leave() -> None:
    tried = transaction()
    add(tried, b"SELECT", b"0")
    add(tried, b"COPY", b"a1", b"a2", b"DB", b"0")
    add(tried, b"MOVE", b"a1", b"0")
    assert not tried.uses_other_databases
    assert (tried.count, tried.queued) == (3, 3)


def test_patterns_of_a_sort() -> None:
    tried = transaction()
    add(tried, b"SORT", b"{x}list", b"BY", b"nosort", b"GET", b"#")
    assert not tried.patterns
    add(tried, b"SORT", b"{x}list", b"BY", b"{x}*")
    assert tried.patterns
    # The slot is the first byte's here, whatever the tag.
    with pytest.raises(QueueError, match="GET option of SORT denied"):
        add(tried, b"SORT", b"{x}list", b"GET", b"y{x}*")


@pytest.mark.parametrize(
    "words",
    [
        *[(b"SORT", b"a", b"BY", b"w_*"), (b"SAVE",), (b"SELECT", b"9"), (b"MOVE", b"a", b"9")],
        (b"COPY", b"a", b"a2", b"DB", b"9"),
    ],
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
