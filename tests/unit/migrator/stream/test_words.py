"""What an older target is told in place of a newer source's commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.stream.changes import Change, change_of
from migrator.stream.words import CLAIM, CLAIM_KEPT, Words, key_in_doubt
from slots.scripts import Script

NAMES = (
    "BITOP GEOADD GEOSEARCHSTORE HSET LPOP PEXPIREAT RENAME RESTORE RPOP SET UNLINK XADD XCLAIM XDEL XGROUP XSETID "
    "XTRIM ZADD"
)
OLD = Words("target t:1", Abilities(False, False), frozenset(NAMES.encode().split()))
NEW = Words("target t:1", Abilities(True, True), frozenset({*OLD.commands, b"XDELEX"}))
CLAIMED = "XCLAIM s g consumer 0 1-1 TIME 5 RETRYCOUNT 1 FORCE JUSTID LASTID 2-2"


def words(text: str) -> list[bytes]:
    return text.encode().split()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("HSET h f v", "HSET h f v"),
        ("xadd s 1-1 f KEEPREF", "xadd s 1-1 f KEEPREF"),
        ("XADD s NOMKSTREAM KEEPREF MAXLEN = 5 1-1 MAXLEN KEEPREF", "XADD s NOMKSTREAM MAXLEN = 5 1-1 MAXLEN KEEPREF"),
        ("XADD s MINID 5-5 LIMIT 3 keepref 1-1 f v", "XADD s MINID 5-5 LIMIT 3 1-1 f v"),
        ("XADD s MAXLEN ~ 5 DELREF 1-1 f v", None),
        ("XADD s ACKED MAXLEN 5 1-1 f v", None),
        ("XADD s MAXLEN 5 1-1 ACKED DELREF", "XADD s MAXLEN 5 1-1 ACKED DELREF"),
        ("XTRIM s MAXLEN = 5 KEEPREF", "XTRIM s MAXLEN = 5"),
        ("XTRIM s MAXLEN = 5 acked", None),
        ("XGROUP CREATE s g 1-1 MKSTREAM ENTRIESREAD 7", "XGROUP CREATE s g 1-1 MKSTREAM"),
        ("XGROUP setid s ENTRIESREAD 1-1 entriesread 7", "XGROUP setid s ENTRIESREAD 1-1"),
        ("XGROUP DESTROY s ENTRIESREAD", "XGROUP DESTROY s ENTRIESREAD"),
        ("XSETID s 9-9 ENTRIESADDED 9 MAXDELETEDID 8-8", "XSETID s 9-9"),
        ("BITOP xor {a}1 {a}2 {a}3", "BITOP xor {a}1 {a}2 {a}3"),
        ("BITOP ANDOR {a}1 {a}2 {a}3", None),
        ("GEOSEARCHSTORE {g}1 {g}2 FROMMEMBER m BYBOX 1 1 km", "GEOSEARCHSTORE {g}1 {g}2 FROMMEMBER m BYBOX 1 1 km"),
        ("GEOSEARCHSTORE {g}1 {g}2 bypolygon 3 1 1 2 2 3 3", None),
        ("RESTORE key 0 payload REPLACE", None),
        ("LMPOP 1 list LEFT", None),
    ],
)
def test_what_an_old_target_is_told(command: str, said: str | None) -> None:
    assert OLD.said(words(command)) == (None if said is None else words(said))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ZADD z GT CH 1 a", None),
        ("zadd z nx lt 1 a", None),
        ("ZADD z NX CH 1 GT", "ZADD z NX CH 1 GT"),
        ("ZADD z inf LT", "ZADD z inf LT"),
        ("GEOADD g ch 1 1 m", None),
        ("GEOADD g 1 1 CH", "GEOADD g 1 1 CH"),
        ("XADD s NOMKSTREAM 1-1 f v", None),
        ("XADD s MAXLEN = 5 1-1 MINID v", "XADD s MAXLEN = 5 1-1 MINID v"),
        ("XTRIM s minid = 5-5", None),
        ("XTRIM s MAXLEN = 5", "XTRIM s MAXLEN = 5"),
        ("XGROUP CREATECONSUMER s g c", None),
        ("XGROUP DELCONSUMER s g CREATECONSUMER", "XGROUP DELCONSUMER s g CREATECONSUMER"),
        ("LPOP l 3", "LTRIM l 3 -1"),
        ("rpop l 3", "LTRIM l 0 -4"),
        ("LPOP l", "LPOP l"),
        ("SET k v KEEPTTL", None),
        ("SET k v", "SET k v"),
    ],
)
def test_what_a_target_before_redis_6_is_told(command: str, said: str | None) -> None:
    argv = words(command)
    before = replace(OLD, abilities=Abilities(False, False, False))
    assert before.said(argv) == (None if said is None else words(said))
    assert replace(OLD, commands=OLD.commands | {b"ACL"}).said(argv) == argv, "Redis 6.2"


@pytest.mark.parametrize(
    ("target", "counts_at_source", "script"),
    [(OLD, True, CLAIM), (NEW, False, CLAIM_KEPT), (OLD, False, None), (NEW, True, None)],
)
def test_an_entry_that_was_deleted_stays_pending_as_at_the_source(
    target: Words, counts_at_source: bool, script: Script | None
) -> None:
    argv = words(CLAIMED)
    said = replace(target, counts_entries=counts_at_source).said(argv)
    assert said == (argv if script is None else [b"EVAL", script.text.encode(), b"1", *argv[1:]])
    assert key_in_doubt(said) == (b"s" if script is CLAIM_KEPT else None)


def test_a_target_that_reads_the_payloads_may_lack_the_words() -> None:
    reads = replace(OLD, payloads=True)
    assert reads.said(words("RESTORE key 0 payload REPLACE")) == words("RESTORE key 0 payload REPLACE")
    assert reads.said(words("XTRIM s MAXLEN = 5 KEEPREF")) == words("XTRIM s MAXLEN = 5")
    assert reads.said(words("XTRIM s MAXLEN = 5 ACKED")) is None


@pytest.mark.parametrize(
    "command",
    [
        *("XADD s DELREF MAXLEN 5 1-1 f v", "XTRIM s MAXLEN 5 KEEPREF", "XSETID s 9-9 ENTRIESADDED 9"),
        *("XGROUP CREATE s g 1-1 ENTRIESREAD 7", "BITOP ONE {a}1 {a}2", CLAIMED),
    ],
)
def test_a_target_that_knows_the_words_is_told_them(command: str) -> None:
    assert NEW.said(words(command)) == words(command)


def told(argv: Sequence[bytes], by: Words = OLD) -> Change:
    change = change_of(list(argv), 3, 1000, lambda database, key: True, lambda database, key: False)
    return by.change(change, argv, 3)


def test_all_keys_of_what_cannot_be_said_are_late() -> None:
    assert told(words("COPY {a}1 {a}2")) == Change(late=((3, b"{a}1"), (3, b"{a}2")))
    assert told(words("RESTORE key 5000 payload")) == Change(late=((3, b"key"),)), "and its deadline is not written"
    assert told(words("MSET a 1 b 2")) == Change(late=((3, b"a"), (3, b"b")))


def test_what_can_be_said_keeps_its_deadline() -> None:
    change = told(words("SET key value PXAT 5000"))
    assert (change.commands, change.deadline) == (([b"SET", b"key", b"value"],), (b"key", 5000))
    assert told(words("RENAME {a}1 {a}2")).carried == (b"{a}1", b"{a}2")


@pytest.mark.parametrize(
    "command",
    [
        *(f"{name} hash 5000 FIELDS 1 field" for name in ("HEXPIRE", "HPEXPIRE", "HEXPIREAT", "hpexpireat")),
        "HSETEX hash FXX pxat 5000 fields 1 field value",
    ],
)
def test_deadlines_of_fields_end_a_copy_to_a_target_that_has_none(command: str) -> None:
    argv = words(command)
    with pytest.raises(CannotBeCut, match=r"fields of hash b'hash' have deadlines, which target t:1 knows nothing of"):
        told(argv)
    assert told(argv, NEW) == Change(late=((3, b"hash"),))


def test_fields_that_are_named_as_deadlines_are_have_none() -> None:
    assert told(words("HSETEX hash FXX FIELDS 1 PX 5")).commands == ([b"HSET", b"hash", b"PX", b"5"],)
    argv = words("HSETEX hash FIELDS 1 PX 5")
    assert OLD.change(Change(late=((0, b"hash"),)), argv, 0) == Change(late=((0, b"hash"),)), "the key is late already"


def test_deadlines_of_fields_of_others_do_not_matter() -> None:
    argv = words("HPEXPIREAT hash 5000 FIELDS 1 field")
    assert OLD.change(Change(), argv, 0) == Change()
