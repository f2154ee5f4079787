"""A user with a prefix: every key that it names gets it, and what has no key is known to be right, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import commands, prefixes, sorting
from slots.commands import Command, CommandError, KeysError, Route
from slots.rights import EVERYTHING, Refusal, parse

PREFIX = b"shop:"
TABLE = list(commands.table().values())
RIGHTS = parse(EVERYTHING).within(PREFIX)
WORDS = b"STREAMS COUNT GROUP NOACK BLOCK STORE WEIGHTS BY GET LIMIT MATCH * $ > 0 1 2 3 -1 a key {a}b nosort".split()
ARGUMENTS = st.lists(st.sampled_from([*WORDS, b"", b"shop:a", b"\r\n"]), max_size=9)
# What they show or change is of the session, or of the servers as such. A command that is added here was thought about.
WITHOUT_KEYS = {
    *(
        "ACL|CAT",
        "ACL|GENPASS",
        "ACL|WHOAMI",
        "AUTH",
        "CLIENT|CACHING",
        "CLIENT|GETNAME",
        "CLIENT|GETREDIR",
        "CLIENT|ID",
    ),
    *("CLIENT|INFO", "CLIENT|NO-TOUCH", "CLIENT|REPLY", "CLIENT|SETINFO", "CLIENT|SETNAME", "CLIENT|TRACKING"),
    "CLIENT|TRACKINGINFO",
    *("COMMAND", "COMMAND|COUNT", "COMMAND|DOCS", "COMMAND|GETKEYS", "COMMAND|GETKEYSANDFLAGS", "COMMAND|INFO"),
    *("COMMAND|LIST", "DISCARD", "ECHO", "EXEC", "HELLO", "INFO", "KEYS", "LASTSAVE", "LOLWUT", "MULTI", "PING"),
    *("PSUBSCRIBE", "PUBLISH", "PUBSUB|CHANNELS", "PUBSUB|NUMSUB", "PUBSUB|SHARDCHANNELS", "PUBSUB|SHARDNUMSUB"),
    *(
        "PUNSUBSCRIBE",
        "QUIT",
        "READONLY",
        "READWRITE",
        "RESET",
        "ROLE",
        "SCAN",
        "SCRIPT|EXISTS",
        "SCRIPT|LOAD",
        "SELECT",
    ),
    *("SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "TIME", "UNSUBSCRIBE", "UNWATCH", "WAIT", "WAITAOF"),
}


def request(row: Command, arguments: list[bytes]) -> list[bytes] | None:
    """A request of a command whose keys can be told; None if it is not understood."""
    argv = [*row.name.encode().split(b"|"), *arguments]
    try:
        found = commands.find(argv)
        commands.key_positions(found, argv)
    except (CommandError, KeysError):
        return None
    return argv if found is row else None


@given(st.sampled_from(TABLE), ARGUMENTS)
def test_every_key_gets_the_prefix_and_nothing_else_does(row: Command, arguments: list[bytes]) -> None:
    argv = request(row, arguments)
    if argv is None or row.name in prefixes.CHANGES:
        return
    places = commands.key_positions(row, argv)
    changed = prefixes.changed(PREFIX, argv)
    expected = [PREFIX + word if place in places else word for place, word in enumerate(argv)]
    # The patterns of keys: test_requests has them.
    assert changed == (sorting.with_prefix(PREFIX, expected) if row.name.startswith("SORT") else expected)
    assert commands.key_positions(row, changed) == places
    # As the name is in capital letters or not.
    assert prefixes.changed(PREFIX, [argv[0].lower(), *argv[1:]])[1:] == changed[1:]


@given(st.sampled_from(TABLE), ARGUMENTS)
def test_a_key_without_the_prefix_is_refused(row: Command, arguments: list[bytes]) -> None:
    argv = request(row, arguments)
    if argv is None or not row.access or row.keys == "asked":
        return
    keys = commands.keys_of(row, argv)
    refused = RIGHTS.refusal(row, argv)
    if not all(key.startswith(PREFIX) for key in keys):
        assert refused == Refusal("key", refused.name if refused is not None else "")
    changed = RIGHTS.refusal(row, prefixes.changed(PREFIX, argv))
    assert changed is None or changed.of == "option"


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_a_command_without_keys_is_known_to_be_right_or_refused(row: Command) -> None:
    if row.access or row.route is Route.REFUSED or row.name.endswith("|HELP") or (row.container and row.arity != -1):
        return
    assert (prefixes.refusal(row) is None) == (row.name in WITHOUT_KEYS)


def test_a_refusal_says_what_to_do() -> None:
    table = commands.table()
    assert prefixes.refusal(table["FLUSHALL"]) == (
        "it would delete the keys of all users; delete your own with SCAN and UNLINK"
    )
    assert prefixes.refusal(table["CLUSTER|SLOTS"]) is None
    assert prefixes.refusal(table["SLOWLOG|GET"]) == "it concerns all users"


def test_a_command_that_was_learned_is_refused() -> None:
    learned = Command("JSON.GET", -2, 1, 1, 1, frozenset({"readonly"}), Route.KEYED, learned=True, access="r")
    assert prefixes.refusal(learned) == prefixes.LEARNED


@pytest.mark.parametrize(
    ("sent", "changed"),
    [
        ("KEYS *", "KEYS shop:*"),
        ("SCAN 0", "SCAN 0 MATCH shop:*"),
        ("scan 0 count 10", "scan 0 count 10 MATCH shop:*"),
        ("SCAN 0 match a* COUNT 10", "SCAN 0 match shop:a* COUNT 10"),
        ("SCAN 0 COUNT MATCH", "SCAN 0 COUNT MATCH MATCH shop:*"),
        ("SCAN 0 MATCH a MATCH b", "SCAN 0 MATCH shop:a MATCH shop:b"),
        ("SCAN 0 MATCH", "SCAN 0 MATCH"),
        ("SUBSCRIBE a b", "SUBSCRIBE shop:a shop:b"),
        ("UNSUBSCRIBE", "UNSUBSCRIBE"),
        ("PSUBSCRIBE a*", "PSUBSCRIBE shop:a*"),
        ("SSUBSCRIBE a", "SSUBSCRIBE shop:a"),
        ("SUNSUBSCRIBE", "SUNSUBSCRIBE"),
        ("PUBLISH a a", "PUBLISH shop:a a"),
        ("SPUBLISH a a", "SPUBLISH shop:a a"),
        ("PUBSUB CHANNELS", "PUBSUB CHANNELS shop:*"),
        ("PUBSUB CHANNELS a*", "PUBSUB CHANNELS shop:a*"),
        ("PUBSUB NUMSUB a b", "PUBSUB NUMSUB shop:a shop:b"),
        ("SUBSCRIBE __keyspace@0__:a", "SUBSCRIBE __keyspace@0__:shop:a"),
        ("SUBSCRIBE __keyevent@0__:del", "SUBSCRIBE __keyevent@0__:del"),
        ("PSUBSCRIBE __keyspace@*__:a*", "PSUBSCRIBE __keyspace@*__:shop:a*"),
        ("PSUBSCRIBE __key*__:*", "PSUBSCRIBE __key*__:*"),
        ("SORT a BY w_* GET # STORE b", "SORT shop:a BY shop:w_* GET # STORE shop:b"),
        ("sort a get *->f by nosort GET by", "sort shop:a get shop:*->f by nosort GET by"),
        ("SORT_RO a LIMIT 0 1 GET x* GET y*", "SORT_RO shop:a LIMIT 0 1 GET shop:x* GET shop:y*"),
        ("MIGRATE h 1 a 0 1", "MIGRATE h 1 shop:a 0 1"),
        ("NOTHING a", "NOTHING a"),
        ("GET", "GET"),
    ],
)
def test_requests(sent: str, changed: str) -> None:
    assert prefixes.changed(PREFIX, sent.encode().split()) == changed.encode().split()


@pytest.mark.parametrize(
    "name", ["a", "", "__keyspace@0__:a", "__keyspace@*__:*", "__keyevent@0__:del", "__key*__:*", "shop:a", "__key"]
)
def test_channels_are_shown_as_they_were_named(name: str) -> None:
    sent = prefixes.channel(PREFIX, name.encode())
    assert prefixes.without(PREFIX, sent) == name.encode()
    assert prefixes.without(b"", sent) == sent


@pytest.mark.parametrize("pattern", [b"a*", b"*", b"__keyspace@*__:a*", b"__keyevent@*__:expired", b"__key*__:*"])
def test_patterns_within_the_prefix_may_be_used(pattern: bytes) -> None:
    assert RIGHTS.allows_pattern(prefixes.channel(PREFIX, pattern))


@pytest.mark.parametrize("pattern", [b"*", b"a*", b"sho*", b"__key*", b"__key*__:a*", b"__keyspace@*__:*", b"[s]hop:*"])
def test_patterns_beyond_it_may_not(pattern: bytes) -> None:
    assert not RIGHTS.allows_pattern(pattern)


@pytest.mark.parametrize("words", ["BY w_*", "GET *", "BY nosort GET x*->f"])
def test_patterns_of_keys_are_within_the_prefix(words: str) -> None:
    sent = f"SORT shop:a {words}".encode().split()
    sort = commands.table()["SORT"]
    assert RIGHTS.refusal(sort, sent) == Refusal("option", words.split()[-2])
    assert RIGHTS.refusal(sort, sorting.with_prefix(PREFIX, sent)) is None
    few = parse("~a* +@all").within(PREFIX)
    assert few.refusal(sort, sorting.with_prefix(PREFIX, sent)) is not None


def test_rules_have_the_prefix() -> None:
    rights = parse("~a* %R~b* &c* +@all").within(PREFIX)
    assert rights.keys_shown == "~shop:a* %R~shop:b*"
    assert rights.channels_shown == "&shop:c*"
    assert not rights.allows_pattern(b"shop:d*")
    assert parse("+@all").within(PREFIX).keys == ()


@pytest.mark.parametrize("text", ["", "a b", "a*", "a?", "a[", "a\\", "é", "a" * 65, "'", "__slotferry:", "__x", "_"])
def test_what_is_no_prefix(text: str) -> None:
    with pytest.raises(ValueError, match=r"letters, digits|Slotferry's own"):
        prefixes.check(text)


@pytest.mark.parametrize("text", ["shop:", "{shop}:", "a" * 64, "Shop_1.x/@#-"])
def test_what_is_a_prefix(text: str) -> None:
    prefixes.check(text)
