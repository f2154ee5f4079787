"""What the commands of a replication stream mean for a copy."""

import pytest

from migrator.stream import changes
from migrator.stream.changes import NOTHING, CannotFollow, Change, change_of, passes
from slots.commands import Route, table

NOW = 1_000_000


def change(*argv, database=0, late=(), moves=lambda database, key: key.startswith(b"m")):
    """The change for the copy of all keys that begin with ``m``; keys in ``late`` are late."""
    return change_of(
        [item if isinstance(item, bytes) else str(item).encode() for item in argv],
        database,
        NOW,
        moves,
        lambda database, key: (database, key) in late,
    )


def test_what_is_plain_runs_as_it_came():
    assert change("hset", "m", "f", "v") == Change(([b"hset", b"m", b"f", b"v"],))
    assert change("LMOVE", "m1", "m2", "LEFT", "RIGHT").commands
    assert change("XGROUP", "SETID", "m", "g", "1-1").commands
    assert change("ZUNIONSTORE", "m", 2, "m1", "m2").commands


@pytest.mark.parametrize("text", ["SUNIONSTORE m m1 m2", "ZDIFFSTORE m 2 m1 m2", "LMPOP 2 m m1 LEFT", "ZMPOP 1 m MIN"])
def test_what_the_proxy_can_do_over_slots_runs_as_it_came(text):
    assert change(*text.split()) == Change((text.encode().split(),))


@pytest.mark.parametrize(
    "argv",
    [
        ("SET", "other", "v"),
        ("DEL", "a", "b"),
        ("LPUSH", "q", "m"),
        ("PING",),
        ("replconf", "GETACK", "*"),
        ("PUBLISH", "m", "text"),
        ("SCRIPT", "LOAD", "return 1"),
        ("FUNCTION", "FLUSH"),
        ("SET", "__slotferry:marker", "m"),
        ("RENAME", "a", "b"),
        ("SORT", "a", "STORE", "b"),
    ],
)
def test_what_is_about_no_key_of_the_copy_is_nothing(argv):
    assert change(*argv) == NOTHING


@pytest.mark.parametrize(
    "argv",
    [
        ("FLUSHALL",),
        ("FLUSHDB", "ASYNC"),
        ("SWAPDB", 0, 1),
        ("EVAL", "return 1", 1, "m"),
        ("FCALL", "f", 1, "m"),
        ("MODULE.WRITES", "m", "v"),
        ("SET",),
        ("SET", "m", "v", "EX"),
        ("SET", "m", "v", "SOMETHING"),
        ("PEXPIREAT", "m", "soon"),
        ("ZUNIONSTORE", "m", "x", "m1"),
        ("RESTORE", "m", "x", b"payload"),
        ("DEBUG", "SET-ACTIVE-EXPIRE", 0),
        ("GET", "m"),
        ("COPY", "m", "m2", "DB", "x"),
    ],
)
def test_what_is_not_understood_ends_the_copy(argv):
    with pytest.raises(CannotFollow, match=r".+"):
        change(*argv)


def test_set_with_a_comparison_has_run_at_the_source():
    assert change("SET", "m", "v", "IFEQ", "KEEPTTL", "PX", 10) == Change(
        ([b"SET", b"m", b"v"],), (b"m", NOW + 10), True
    )
    with pytest.raises(CannotFollow):
        change("SET", "m", "v", "IFEQ")


def test_commands_of_newer_servers():
    assert change("HSETEX", "m", "KEEPTTL", "FIELDS", 1, "f", 2) == Change(([b"HSET", b"m", b"f", b"2"],))
    assert change("hsetex", "m", "FXX", "KEEPTTL", "fields", 1, "f", 2).commands == ([b"HSET", b"m", b"f", b"2"],)
    assert change("HSETEX", "m", "FIELDS", 2, "EX", 2, "PX", 3).commands == ([b"HSET", b"m", b"EX", b"2", b"PX", b"3"],)
    late = Change(late=((0, b"m"),))
    assert change("HSETEX", "m", "PXAT", 5, "FIELDS", 1, "f", 2) == late
    assert change("HSETEX", "m", "FNX", "EX", 5, "FIELDS", 1, "f", 2) == late
    assert change("HSETEX", "m", "FIELDS", 1, "f", 2, late={(0, b"m")}) == late
    assert change("HGETDEL", "m", "FIELDS", 1, "f") == late
    assert change("XDELEX", "m", "KEEPREF", "IDS", 1, "1-1") == late
    assert change("XACKDEL", "m", "g", "KEEPREF", "IDS", 1, "1-1") == late
    assert change("MSETEX", 2, "m1", "a", "b", "m2", "PXAT", 5) == Change(late=((0, b"m1"),))
    assert change("HSETEX", "a", "FIELDS", 1, "f", 2) == NOTHING


@pytest.mark.parametrize(
    "argv", [("HSETEX", "m", "FIELDS", 2, "f", 2), ("HSETEX", "m", "KEEPTTL"), ("HSETEX",), ("MSETEX", "x", "m", 1)]
)
def test_commands_of_newer_servers_that_cannot_be_read(argv):
    with pytest.raises(CannotFollow):
        change(*argv)


def test_deleting_and_storing_commands_keep_only_what_moves_and_is_not_late():
    assert change("DEL", "m1", "a", "m2", late={(0, b"m2")}) == Change(([b"DEL", b"m1"],))
    assert change("UNLINK", "m1", late={(1, b"m1")}).commands == ([b"UNLINK", b"m1"],)
    assert change("MSET", "a", 1, "m1", 2, "m2", 3, late={(0, b"m1")}) == Change(([b"MSET", b"m2", b"3"],))
    assert change("MSET", "m1", 2, late={(0, b"m1")}) == NOTHING


def test_keys_that_do_not_all_move_become_late():
    assert change("RENAME", "m1", "a") == Change(late=((0, b"m1"),))
    assert change("RENAME", "a", "m1", database=3) == Change(late=((3, b"m1"),))
    assert change("SUNIONSTORE", "m1", "a", "m2") == Change(late=((0, b"m1"), (0, b"m2")))
    assert change("PFMERGE", "m1", "a") == Change(late=((0, b"m1"),))


def test_what_meets_a_late_key_is_late_with_all_its_keys():
    assert change("INCR", "m1", late={(0, b"m1")}) == Change(late=((0, b"m1"),))
    assert change("LMOVE", "m1", "m2", "LEFT", "LEFT", late={(0, b"m1")}) == Change(late=((0, b"m1"), (0, b"m2")))
    assert change("PEXPIREAT", "m1", 5, late={(0, b"m1")}) == Change(late=((0, b"m1"),))


@pytest.mark.parametrize(
    ("argv", "replaced"),
    [
        ("GEORADIUS m1 1 1 5 km COUNT 3 STORE m2", "m2"),
        ("georadius m1 1 1 5 km STORE m2 STOREDIST m3", "m3"),
        ("GEORADIUSBYMEMBER m1 member 5 km STOREDIST m2", "m2"),
        ("GEOSEARCHSTORE m2 m1 FROMLONLAT 1 1 BYRADIUS 5 km", "m2"),
        ("ZRANGESTORE m2 m1 0 -1", "m2"),
    ],
)
def test_a_key_is_gone_before_what_is_found_in_another_takes_its_place(argv, replaced):
    """A target before Redis 6.2.6 would leave it where there is nothing to search."""
    command = argv.encode().split()
    assert change(*command) == Change(([b"UNLINK", replaced.encode()], command))


@pytest.mark.parametrize(
    "argv",
    [
        *("GEORADIUS m 1 1 5 km STORE m", "GEORADIUSBYMEMBER m x 5 km STORE m2 STORE m", "ZRANGESTORE m m 0 1"),
        *("GEOSEARCHSTORE m m FROMMEMBER x BYRADIUS 5 km", "SUNIONSTORE m1 m2", "ZUNIONSTORE m1 1 m2"),
    ],
)
def test_a_key_that_is_searched_itself_is_not_deleted_before(argv):
    assert change(*argv.split()) == Change((argv.encode().split(),))


def test_what_another_database_gets_is_late_in_both():
    assert change("MOVE", "m1", 2) == Change(late=((0, b"m1"), (2, b"m1")))
    assert change("COPY", "m1", "m2", "DB", 2, database=1).late == (
        (1, b"m1"),
        (1, b"m2"),
        (2, b"m1"),
        (2, b"m2"),
    )
    assert change("COPY", "m1", "m2", "REPLACE").late == ((0, b"m1"), (0, b"m2"))


def test_what_another_database_gets_has_the_slot_of_that_database():
    def in_two(database, key):
        return database == 2

    assert change("MOVE", "m1", 2, moves=in_two) == Change(late=((2, b"m1"),))
    assert change("MOVE", "m1", 1, database=2, moves=in_two) == Change(late=((2, b"m1"),))
    assert change("COPY", "m1", "m2", "DB", 2, moves=in_two).late == ((2, b"m1"), (2, b"m2"))
    assert change("COPY", "m1", "m2", "DB", 3, moves=in_two) == NOTHING
    assert change("MOVE", "m1", 3, moves=in_two) == NOTHING


def test_a_key_that_gets_the_deadline_of_another_is_told_of():
    assert change("RENAME", "m1", "m2") == Change(([b"RENAME", b"m1", b"m2"],), carried=(b"m1", b"m2"))
    assert change("COPY", "m1", "m2").carried == (b"m1", b"m2")


@pytest.mark.parametrize(
    ("argv", "deadline"),
    [
        (("PEXPIREAT", "m", 77), 77),
        (("PEXPIREAT", "m", 77, "GT"), 77),
        (("EXPIREAT", "m", 77), 77_000),
        (("PEXPIRE", "m", 77), NOW + 77),
        (("EXPIRE", "m", 77), NOW + 77_000),
    ],
)
def test_a_deadline_is_told_and_not_set(argv, deadline):
    assert change(*argv) == Change(deadline=(b"m", deadline), inexact=deadline > NOW)


@pytest.mark.parametrize(
    ("options", "deadline"),
    [
        (("PXAT", 77), 77),
        (("EXAT", 77), 77_000),
        (("px", 77), NOW + 77),
        (("EX", 77, "XX", "GET"), NOW + 77_000),
    ],
)
def test_set_with_a_deadline(options, deadline):
    assert change("SET", "m", "v", *options) == Change(([b"SET", b"m", b"v"],), (b"m", deadline), deadline > NOW)


def test_set_without_a_deadline_keeps_it_only_if_it_says_so():
    assert change("SET", "m", "v", "NX", "GET") == Change(([b"SET", b"m", b"v"],))
    assert change("SET", "m", "v", "keepttl") == Change(([b"SET", b"m", b"v", b"KEEPTTL"],))


def test_old_forms_of_set():
    assert change("SETEX", "m", 2, "v") == Change(([b"SET", b"m", b"v"],), (b"m", NOW + 2000), True)
    assert change("PSETEX", "m", 2, "v") == Change(([b"SET", b"m", b"v"],), (b"m", NOW + 2), True)


def test_restore_is_written_without_its_deadline():
    plain = [b"RESTORE", b"m", b"0", b"\x00payload", b"REPLACE"]
    assert change("RESTORE", "m", 0, b"\x00payload") == Change((plain,))
    assert change("RESTORE", "m", 5, b"\x00payload", "REPLACE", "ABSTTL") == Change((plain,), (b"m", 5))
    assert change("RESTORE", "m", 5, b"\x00payload", "IDLETIME", 9) == Change(
        ([*plain, b"IDLETIME", b"9"],), (b"m", NOW + 5), True
    )


def test_a_restored_hash_whose_fields_have_deadlines_is_late():
    for kind in (22, 23, 24, 25):
        assert change("RESTORE", "m", 0, bytes([kind]) + b"payload") == Change(late=((0, b"m"),))


def test_each_writing_command_with_keys_has_one_meaning():
    kinds = (changes.PLAIN, changes.DEADLINES, changes.DELETING, changes.CARRYING, changes.LATE)
    for command in table().values():
        if "write" in command.flags and (command.first or command.keys) and command.route is not Route.LOCAL:
            assert sum(command.name in kind for kind in kinds) == 1, command.name
    known = frozenset().union(*kinds)
    assert {name for name in known if name not in table()} == set()


def test_what_passes_is_what_runs_as_it_came():
    passing = set()
    for row in table().values():
        for more in range(8):
            argv = [*row.name.encode().split(b"|"), b"m", *[b"1"] * more]
            if (len(argv) == row.arity if row.arity >= 0 else len(argv) >= -row.arity) and passes(argv):
                assert change(*argv) == Change((argv,))
                passing.add(row.name)
    assert {"SET", "DEL", "UNLINK", "INCR", "HSET", "HDEL", "LPUSH", "RPUSH", "SADD", "ZADD", "XADD"} <= passing


@pytest.mark.parametrize(
    ("sent", "run"),
    [
        ("XADD m MAXLEN = 1000 LIMIT 10 1-1 f v", "XADD m MAXLEN = 1000 1-1 f v"),
        ("xadd m NOMKSTREAM minid = 5-1 limit 10 9-1 LIMIT v", "xadd m NOMKSTREAM minid = 5-1 9-1 LIMIT v"),
        ("XADD m 1-1 a b c d LIMIT 10", "XADD m 1-1 a b c d LIMIT 10"),
        ("XADD m MAXLEN = 10 1-1 a b LIMIT 10", "XADD m MAXLEN = 10 1-1 a b LIMIT 10"),
        ("XTRIM m MAXLEN = 1000 LIMIT 10", "XTRIM m MAXLEN = 1000"),
        ("XTRIM m MINID = 1-1 LIMIT 0 KEEPREF", "XTRIM m MINID = 1-1 KEEPREF"),
    ],
)
def test_how_much_is_trimmed_is_exact_and_has_no_limit(sent, run):
    """A source leaves LIMIT there, which a replica passes over and no other connection may say."""
    argv = sent.encode().split()
    assert passes(argv) == (sent == run)
    assert change(*argv) == Change((run.encode().split(),))
    assert change(*argv, late={(0, b"m")}) == Change(late=((0, b"m"),))


def test_what_does_not_pass_is_looked_at():
    assert not passes([b"SET", b"m", b"x", b"EX", b"1"])
    assert not passes([b"DEL", b"m1", b"m2"])
    assert not passes([b"EXPIRE", b"m", b"1"])
    assert not passes([b"SPOP", b"m"])
